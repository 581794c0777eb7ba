"""Run a command and print the peak memory of all its processes together, and who held it.

usage: peak_memory.py COMMAND [ARGUMENTS ...]

Proportional set size: pages that processes share are counted once. Sampled once a second.
"""

import contextlib
import subprocess
import sys
import time

import psutil

NUM_SHOWN = 8


def tree_gib(root: psutil.Process) -> dict[str, float]:
    """Return the proportional set size of a process and of everything below it, in GiB by name."""
    found: dict[str, float] = {}
    for process in [root, *root.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            title = " ".join(process.cmdline())[:60] or process.name()
            found[f"{process.pid} {title}"] = process.memory_full_info().pss / 2**30
    return found


def main(command: list[str]) -> int:
    """Run, watch, report; returns the command's exit code."""
    started = time.monotonic()
    child = subprocess.Popen(command)
    peak: dict[str, float] = {}
    while child.poll() is None:
        with contextlib.suppress(psutil.Error):
            peak = max(peak, tree_gib(psutil.Process(child.pid)), key=lambda found: sum(found.values()))
        time.sleep(1.0)
    print(f"peak memory {sum(peak.values()):.2f} GiB, {time.monotonic() - started:.0f} s", file=sys.stderr)
    for name, size in sorted(peak.items(), key=lambda item: -item[1])[:NUM_SHOWN]:
        print(f"{size:6.2f} GiB  {name}", file=sys.stderr)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
