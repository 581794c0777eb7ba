"""`pytest` and `nat` for a job's shell, run in forks of the preloaded interpreter.

A small program on the shell's PATH (`warm_client.py`) sends its arguments, environment and standard streams to the
first process of the job, over a socket that the shell inherits; the first process forks what does the
work. It never imports what it is asked to run. Where the socket is gone the true program starts, cold. Stdlib only.
"""

import contextlib
import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

import isolation
from forked_worker import lead_group

DESCRIPTOR = 100
"""Where a shell and all that it starts find the socket; bash itself uses lower ones."""
MAX_REQUEST_BYTES = 150_000
NUM_STREAMS = 4
"""Standard input, output and error, and a pipe for the exit code."""
PROGRAMS = {"pytest": "pytest", "nat": "nat.cli.main"}
_CLIENT = Path(__file__).with_name("warm_client.py")
_DIRECT = """#!/bin/sh
exec {python} -I -S {client} {program} "$@"
"""
_PYTHON = """#!/bin/sh
if [ "$1" = -m ] && [ "$2" = pytest ]; then
    shift 2
    exec {python} -I -S {client} pytest "$@"
fi
exec {python} "$@"
"""


class Desk:
    """Takes requests while a shell runs; in the first process of its job."""

    def __init__(self) -> None:
        """Make the two ends of the socket."""
        self._own, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._running: dict[int, tuple[int, int]] = {}

    def descriptors(self) -> Iterable[int]:
        """Return what to wait for: requests, and the ends of running programs."""
        return [self._own.fileno(), *self._running]

    def children(self) -> list[int]:
        """Return the programs that run."""
        return [pid for pid, _ in self._running.values()]

    def make_shims(self) -> str:
        """Write the programs and return their folder."""
        folder = Path(tempfile.mkdtemp(prefix="shims-"))
        values = {"python": sys.executable, "client": _CLIENT}
        texts = {name: _DIRECT.format(program=name, **values) for name in PROGRAMS}
        texts |= dict.fromkeys(("python", "python3"), _PYTHON.format(**values))
        for name, text in texts.items():
            fd = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755)
            os.write(fd, text.encode())
            os.close(fd)
        return str(folder)

    def give_to_worker(self) -> None:
        """Keep only the streams and the client's end; in the shell's process, before it starts."""
        os.dup2(self._theirs.fileno(), DESCRIPTOR)
        os.closerange(3, DESCRIPTOR)
        os.closerange(DESCRIPTOR + 1, 1024)

    def serve(self, ready: Iterable[int]) -> None:
        """Start what is asked for and report what has ended."""
        for fd in ready:
            if fd == self._own.fileno():
                self._take()
            elif fd in self._running:
                pid, reply = self._running.pop(fd)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                _reply(reply, code if code >= 0 else 128 - code)
                os.close(fd)

    def _take(self) -> None:
        data, streams, _, _ = socket.recv_fds(self._own, MAX_REQUEST_BYTES, 16)
        try:
            request = json.loads(data)
            program, arguments, folder = request["program"], request["arguments"], request["folder"]
            environment = request["environment"]
            if program not in PROGRAMS or len(streams) != NUM_STREAMS:
                raise ValueError(program)
        except (ValueError, KeyError, TypeError, RecursionError):
            for fd in streams:  # not of the client's making: it is the job's own loss
                os.close(fd)
            return
        child = os.fork()
        if child == 0:
            _be_program(program, arguments, folder, environment, streams)
        lead_group(child)
        for fd in streams[:-1]:
            os.close(fd)
        self._running[os.pidfd_open(child)] = (child, streams[-1])


def _reply(fd: int, code: int) -> None:
    with contextlib.suppress(OSError):
        os.set_blocking(fd, False)
        os.write(fd, bytes([code & 0xFF]))
    os.close(fd)


def _be_program(program: str, arguments: list, folder: str, environment: dict, streams: list[int]) -> NoReturn:
    code = 1
    try:
        high = [os.dup2(fd, DESCRIPTOR + 1 + index) for index, fd in enumerate(streams[:-1])]
        for target, fd in enumerate(high):
            os.dup2(fd, target)
        os.closerange(3, 1024)
        isolation.become_worker()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        code = _run_program(program, [str(word) for word in arguments], folder)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:  # noqa: BLE001 - a fork must end here whatever happens
        with contextlib.suppress(BaseException):
            os.write(2, f"{program}: {type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code & 0xFF)


def _run_program(program: str, arguments: list[str], folder: str) -> int:
    import logging

    logging.disable(logging.NOTSET)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.current_thread().name = "MainThread"
    module = importlib.import_module(PROGRAMS[program])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    sys.path[0:0] = [folder, *paths]
    sys.argv = [program, *arguments]
    if program == "pytest":
        return int(module.main(arguments))
    loader = importlib.import_module("nat.runtime.loader")
    loader.discover_entrypoints.cache_clear()  # the preload knew nothing of the job's package
    loader.get_all_entrypoints_distro_mapping.cache_clear()
    return int(module.run_cli() or 0)
