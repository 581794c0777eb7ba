"""Processes by a variable of their environment: whatever a run starts inherits it, wherever it is adopted later."""

import time
from contextlib import suppress
from pathlib import Path

import psutil


def processes_with(variable: str, value: str) -> list[psutil.Process]:
    """Return all living processes that were started with a variable, and all that those have started.

    A process that gives itself a long title, as Ray's agents do, writes it over the first of its variables.
    """
    wanted = f"{variable}={value}".encode()
    found: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with suppress(OSError, psutil.NoSuchProcess):
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found |= {each.pid: each for each in [process, *process.children(recursive=True)]}
    return [process for process in found.values() if _is_alive(process)]


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def require_none(variable: str, value: str, within_s: float) -> None:
    """Wait until no such process is left."""
    deadline = time.monotonic() + within_s
    while left := processes_with(variable, value):
        assert time.monotonic() < deadline, [(process.pid, words_of(process)) for process in left]
        time.sleep(0.2)


def words_of(process: psutil.Process) -> list[str]:
    """Return the beginning of a command line."""
    try:
        return process.cmdline()[:4]
    except psutil.NoSuchProcess:
        return ["gone"]
