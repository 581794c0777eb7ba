"""Processes that an engine started: found by what is new below this one, and ended for certain."""

from collections.abc import Iterable

import psutil

_GRACE_S = 5.0


def children() -> set[psutil.Process]:
    """Return all processes below this one but Python's resource tracker, which everything here shares."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if not any("resource_tracker" in part for part in process.cmdline()):
                found.add(process)
        except psutil.NoSuchProcess:
            continue
    return found


def end_processes(processes: Iterable[psutil.Process]) -> None:
    """Ask the processes to end, then make them; blocks for some seconds at most."""
    alive = [process for process in processes if process.is_running()]
    for end in (psutil.Process.terminate, psutil.Process.kill):
        for process in alive:
            try:
                end(process)
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(alive, _GRACE_S)
