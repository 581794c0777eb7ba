"""Processes by a variable of their environment: whatever a run starts inherits it, wherever it is adopted later."""

import time
from pathlib import Path

import psutil


def processes_with(variable: str, value: str) -> list[psutil.Process]:
    """Return all living processes that were started with a variable.

    psutil reads the variables up to the first empty one, and a process that gives itself a title, such as Ray's agents,
    may have that at the very beginning.
    """
    found, wanted = [], f"{variable}={value}".encode()
    for process in psutil.process_iter():
        try:
            variables = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
            if wanted in variables and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.NoSuchProcess):
            continue
    return found


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
