"""Run a command and print the peak memory of all its processes together.

usage: peak_memory.py COMMAND [ARGUMENTS ...]

Proportional set size: pages that processes share are counted once. Sampled once a second.
"""

import contextlib
import subprocess
import sys
import time

import psutil


def tree_mib(root: psutil.Process) -> float:
    """Return the proportional set size of a process and everything below it, in MiB."""
    total = 0
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total / 2**20


def main(command: list[str]) -> int:
    """Run, watch, report; returns the command's exit code."""
    started = time.monotonic()
    child = subprocess.Popen(command)
    peak = 0.0
    while child.poll() is None:
        with contextlib.suppress(psutil.Error):
            peak = max(peak, tree_mib(psutil.Process(child.pid)))
        time.sleep(1.0)
    print(f"peak memory {peak / 1024:.2f} GiB, {time.monotonic() - started:.0f} s", file=sys.stderr)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
