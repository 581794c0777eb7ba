"""What a process and everything below it hold: memory, threads, open files."""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

POOLS = ("event_engine", "default-executo")
"""gRPC's own threads, by the names that the kernel keeps: some for each core, and more while there is more to do."""


@dataclass(slots=True)
class Held:
    """Sums over processes."""

    processes: int = 0
    zombies: int = 0
    threads: int = 0
    """But for gRPC's pools."""
    files: int = 0
    """Open file descriptors."""
    resident_mib: float = 0.0
    proportional_mib: float = 0.0
    """Proportional set size: pages that processes share are counted once."""
    own_mib: float = 0.0
    """Anonymous memory: what a process has allocated, whoever else maps the same libraries or shared memory."""


def family(root: int) -> list[psutil.Process]:
    """Return a process and all its descendants that are there now."""
    process = psutil.Process(root)
    return [process, *process.children(recursive=True)]


def held(processes: Iterable[psutil.Process]) -> Held:
    """Return what processes hold; those that end meanwhile hold nothing."""
    total = Held()
    for process in processes:
        with contextlib.suppress(OSError, psutil.Error):
            is_zombie = process.status() == psutil.STATUS_ZOMBIE
            sizes = _sizes(process.pid)
            threads, files = _threads(process.pid), process.num_fds()
            total.processes += 1
            total.zombies += is_zombie
            total.threads += threads
            total.files += files
            total.resident_mib += sizes.get("Rss", 0.0)
            total.proportional_mib += sizes.get("Pss", 0.0)
            total.own_mib += sizes.get("Anonymous", 0.0)
    return total


def _sizes(pid: int) -> dict[str, float]:
    """Return sizes in MiB by the kernel's names; none of a zombie."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except ProcessLookupError:
        return {}
    words = [line.split() for line in lines]
    return {name.rstrip(":"): int(number) / 1024 for name, number, *_ in words}


def _threads(pid: int) -> int:
    """Return the number of threads that are not of gRPC's pools."""
    return sum(number for name, number in thread_names(pid).items() if name not in POOLS)


def thread_names(pid: int) -> dict[str, int]:
    """Return how many threads of each name a process has; none of one that is gone."""
    names: Counter[str] = Counter()
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            names[file.read_text().strip()] += 1
    return dict(names)


def size_of(folder: int) -> tuple[float, int]:
    """Return MiB in use on the file system of an open folder, nameless files included, and the number of its files.

    Args:
        folder: Descriptor.
    """
    found = os.fstatvfs(folder)
    return (found.f_blocks - found.f_bfree) * found.f_frsize / 2**20, len(os.listdir(folder))
