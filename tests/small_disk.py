"""A disk that really is too small: a tmpfs where it may be mounted, else a limit on the size of files."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MIB = 2**20


@contextmanager
def small_disk(folder: Path, num_mib: int) -> Iterator[None]:
    """Let a folder take so many MiB in all, or each file in it, where nothing can be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_mib}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode == 0:
        try:
            yield
        finally:
            # Processes that were killed may hold files there for a moment longer.
            subprocess.run(["umount", "-l", str(folder)], check=True)
        return
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_mib * MIB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
