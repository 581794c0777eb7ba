"""What a job can really reach: every try here must fail in a sandbox that confines. Stdlib only.

The parent lays out what to try (`skyrl_nat/sandbox/self_test.py`) and sees on its own side what came through.
"""

import contextlib
import importlib
import os
import signal
import socket
import sys
from pathlib import Path

import isolation
import seccomp
from forked_worker import Emit


def report(emit: Emit, arguments: dict, folder: str) -> None:
    """Try everything once and tell.

    Args:
        emit: Takes the report.
        arguments: `files` to read, `folders` to write a file `name` into, `pid` to kill, `tcp`, `udp` (ports),
            `socket_file`, `abstract_socket`.
        folder: The work folder.
    """
    emit(
        {
            "uid": os.getuid(),
            "groups": os.getgroups(),
            "capabilities": isolation.capabilities(),
            "has_filter": seccomp.is_active(),
            "environment": sorted(os.environ),
            "read": [path for path in arguments["files"] if _can(lambda path=path: Path(path).read_bytes())],
            "written": [
                path for path in arguments["folders"] if _can(lambda path=path: _write(path, arguments["name"]))
            ],
            "has_signalled": _can(lambda: os.kill(arguments["pid"], signal.SIGKILL)),
            "num_visible": _count_processes(),
            "reached": _reach(arguments),
            "is_work_writable": _can(lambda: _write(folder, "probe")),
            "is_interpreter_readable": _can(lambda: importlib.import_module("wave"))
            and os.access(sys.executable, os.X_OK),
        }
    )


def _can(action: object) -> bool:
    try:
        action()
    except (OSError, ImportError):
        return False
    return True


def _write(folder: str, name: str) -> None:
    Path(folder, name).write_text("x")


def _count_processes() -> int:
    with contextlib.suppress(OSError):
        return sum(entry.name.isdigit() for entry in Path("/proc").iterdir())
    return 0


def _reach(arguments: dict) -> list[str]:
    """Return the sockets of the machine that a connection, or a datagram, seems to reach."""
    targets = {
        "tcp": (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", arguments["tcp"])),
        "udp": (socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.1", 9)),
        "udp to this machine": (socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", arguments["udp"])),
        "socket file": (socket.AF_UNIX, socket.SOCK_STREAM, arguments["socket_file"]),
        "abstract socket": (socket.AF_UNIX, socket.SOCK_STREAM, arguments["abstract_socket"]),
    }
    reached = []
    for name, (family, kind, address) in targets.items():
        with contextlib.suppress(OSError), socket.socket(family, kind) as tried:
            tried.settimeout(1.0)
            tried.connect(address)
            tried.send(b"x")
            if name != "udp to this machine":  # a network of its own answers there; the parent sees what arrives
                reached.append(name)
    return reached
