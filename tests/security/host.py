"""What an attack is after, and how to tell whether it got there: the machine's side of the attack table."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

SECRET_VARIABLES = ("WANDB_API_KEY", "GEMINI_API_KEY")
_SHARED = ("/tmp", "/dev/shm", "/var/tmp")


class Host:
    """A secret in a file and in variables, sockets that anybody may use, a process of the same user."""

    def __init__(self) -> None:
        """Lay everything out; the sandbox must be opened after this."""
        self.token = f"secret-{secrets.token_hex(8)}"
        self.mark = f"mark-{secrets.token_hex(8)}"
        for name in SECRET_VARIABLES:
            os.environ[name] = self.token
        self.folder = Path(tempfile.mkdtemp(prefix="skyrl-nat-host-"))
        self.folder.chmod(0o777)
        self.secret = self.folder / "secret.txt"
        self.secret.write_text(self.token)
        self.secret.chmod(0o644)
        self._sockets = [
            self._listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            self._listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
            self._listen(socket.AF_UNIX, socket.SOCK_STREAM, str(self.folder / "stream")),
            self._listen(socket.AF_UNIX, socket.SOCK_DGRAM, str(self.folder / "datagram")),
            self._listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self.mark}"),
        ]
        self._process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
        self._limits = Path(f"/proc/{self._process.pid}/limits").read_text()
        self._files = self._state()
        self._processes = self._family()

    @staticmethod
    def _listen(family: int, kind: int, address: Any) -> socket.socket:
        opened = socket.socket(family, kind)
        opened.bind(address)
        if kind == socket.SOCK_STREAM:
            opened.listen()
        if isinstance(address, str) and not address.startswith("\0"):
            Path(address).chmod(0o777)
        opened.setblocking(False)
        return opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        for opened in self._sockets:
            opened.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in SECRET_VARIABLES:
            os.environ.pop(name, None)

    def arguments(self) -> dict[str, Any]:
        """Return what every attack may know."""
        return {
            "secret": str(self.secret),
            "folder": str(self.folder),
            "mark": self.mark,
            "pid": self._process.pid,
            "parent": os.getpid(),
            "tcp": self._sockets[0].getsockname()[1],
            "udp": self._sockets[1].getsockname()[1],
            "source": __file__,
        }

    def note_processes(self) -> None:
        """Remember which processes may be there; with the servers up and no job running."""
        self._processes = self._family()

    def harm(self) -> list[str]:
        """Return what has come through since the host was laid out."""
        found = []
        if self._process.poll() is not None:
            found.append("killed a process of the machine")
        elif Path(f"/proc/{self._process.pid}/limits").read_text() != self._limits:
            found.append("changed the limits of a process of the machine")
        if (state := self._state()) != self._files:
            found.append(f"changed files of the machine: {state}")
        found += [f"left {folder}/{self.mark}" for folder in _SHARED if Path(folder, self.mark).exists()]
        for opened in self._sockets:
            with contextlib.suppress(BlockingIOError):
                if opened.type == socket.SOCK_STREAM:
                    opened.accept()[0].close()
                else:
                    opened.recv(1)
                found.append(f"reached {opened.getsockname()}")
        return found

    def survivors(self, wait_s: float = 1.5) -> list[str]:
        """Return processes that a job left."""
        deadline = time.monotonic() + wait_s
        while (extra := self._family() - self._processes) and time.monotonic() < deadline:
            time.sleep(0.02)
        return [f"{pid}: {_read(f'/proc/{pid}/stat')[:60]}" for pid in sorted(extra)]

    def _state(self) -> list[tuple[Any, ...]]:
        paths = [self.folder, *sorted(self.folder.iterdir()), Path(sys.executable).resolve(), Path.home()]
        found = [(str(path), path.stat()) for path in paths]
        return [(path, stat.st_mode, stat.st_uid, stat.st_nlink, stat.st_mtime_ns) for path, stat in found]

    @staticmethod
    def _family() -> set[int]:
        """Return the descendants of this process, and the orphans that may have been some."""
        parents = {}
        for entry in Path("/proc").iterdir():
            name = entry.name
            if name.isdigit() and (fields := _read(f"/proc/{name}/stat").rpartition(")")[2].split()):
                parents[int(name)] = int(fields[1])
        family = {os.getpid(), 1}
        while more := {pid for pid, parent in parents.items() if parent in family} - family:
            family |= more
        return family


def _read(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""
