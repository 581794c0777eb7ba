"""Ends what a process has started once that was killed: an engine's would keep the GPU's memory for ever.

Runs as a process of its own that imports nothing of ours and waits for the end of its input.
"""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterable
from typing import TextIO

import psutil

KILLS_S = 5.0
"""For the reaper to kill all."""


class Reaper:
    """Holds a reaper's input open; it closes when this process ends, however that happens."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        """Start the reaper.

        Args:
            processes: What is ended, with all their children, once this process is gone.
        """
        known = [(process.pid, process.create_time()) for process in processes]
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._process.stdin is not None
        print(json.dumps(known), file=self._process.stdin, flush=True)

    def act(self) -> None:
        """Let the reaper end them now, while this process lives."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(KILLS_S)

    def dismiss(self) -> None:
        """End the reaper, which ends nobody; for what was shut down in order."""
        self._process.kill()
        self._process.wait()


def reap(orders: TextIO) -> None:
    """Wait until nobody can write any more, then kill.

    Args:
        orders: A line with process ids and their start times: a number that was given out again is left alone.
    """
    known: list[tuple[int, float]] = json.loads(orders.readline() or "[]")
    orders.read()
    for pid, started in known:
        try:
            process = psutil.Process(pid)
            if process.create_time() == started:
                for one in [process, *process.children(recursive=True)]:
                    one.kill()
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    reap(sys.stdin)
