"""One command of an agent: bash in the work folder, its output, and the files that it left.

The first process of the job holds the clock and the output and answers the quick `pytest` and `nat`
(`warm`). It looks at files only when nothing of the job is alive any more. Stdlib only.
"""

import contextlib
import os
import select
import sys
from pathlib import Path
from typing import NoReturn

import isolation
import job_clock
import warm
from collecting import collect
from forked_worker import end_worker, lead_group, reap_orphans
from installing import PROGRAM_FOLDER, install

HEAD_BYTES = TAIL_BYTES = 8000
_BASH = "/bin/bash"
PYTEST = {
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    "PYTEST_ADDOPTS": "-p pytest_asyncio.plugin -o asyncio_mode=auto -o asyncio_default_fixture_loop_scope=function",
}
"""The tests of a package are async, and looking for plugins takes seconds."""


class Output:
    """Beginning and end of what a command prints."""

    def __init__(self) -> None:
        """Start empty."""
        self._head = bytearray()
        self._tail = bytearray()
        self._num_bytes = 0

    def add(self, chunk: bytes) -> None:
        """Take what comes next."""
        self._num_bytes += len(chunk)
        room = HEAD_BYTES - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """Return it, with a line about what is missing."""
        left_out = self._num_bytes - len(self._head) - len(self._tail)
        cut = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return (bytes(self._head) + cut + bytes(self._tail)).decode("utf-8", "replace")


def run_bash(arguments: dict, folder: str, deadline: float) -> dict:
    """Return `{"end", "exit_code", "output", "files", "left_out"}`; `arguments` holds `command`."""
    read_end, write_end = os.pipe()
    desk = warm.Desk()
    child = os.fork()
    if child == 0:
        _be_bash(arguments["command"], folder, write_end, desk)
    lead_group(child)
    os.close(write_end)
    output = Output()
    is_over = _follow(child, read_end, desk, deadline, output)
    exit_code = None
    if not is_over:
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    end_worker(child)
    _drain(read_end, output)
    end = "timeout" if is_over else "died" if exit_code < 0 else "done"
    files, left_out = collect(folder)
    return {
        "end": end,
        "exit_code": exit_code if end == "done" else None,
        "output": output.text(),
        "files": files,
        "left_out": left_out,
    }


def _be_bash(command: str, folder: str, write_end: int, desk: warm.Desk) -> NoReturn:
    try:
        for target in (1, 2):
            os.dup2(write_end, target)
        desk.give_to_worker()
        isolation.become_worker()
        shims = desk.make_shims()
        install(Path(folder), Path(shims))
        paths = f"{folder}:{folder}/src:{shims}:{PROGRAM_FOLDER}"
        environment = os.environ | {"PATH": f"{shims}:{os.environ['PATH']}", "PWD": folder, "PYTHONPATH": paths}
        if "pytest_asyncio" in sys.modules:  # NAT is preloaded
            environment |= PYTEST
        os.execve(_BASH, ["bash", "-c", command], environment)
    finally:
        os._exit(127)


def _follow(child: int, read_end: int, desk: warm.Desk, deadline: float, output: Output) -> bool:
    """Serve a command until it ends; returns whether its time was over first."""
    ended = os.pidfd_open(child)
    try:
        while not job_clock.has_passed(deadline):
            ready, _, _ = select.select([read_end, ended, *desk.descriptors()], [], [], 0.05)
            if read_end in ready:
                chunk = os.read(read_end, 1 << 16)
                output.add(chunk)
            desk.serve(ready)
            reap_orphans({child, *desk.children()})
            if ended in ready:
                return False
        return True
    finally:
        os.close(ended)


def _drain(read_end: int, output: Output) -> None:
    """Take what is still in the pipe; nobody can write any more."""
    with contextlib.suppress(OSError):
        os.set_blocking(read_end, False)
        while chunk := os.read(read_end, 1 << 16):
            output.add(chunk)
    os.close(read_end)
