"""The resumable order in which tasks are played: a pure function of seed and position."""

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skyrl_nat.data.task_source import TaskList, TaskSource
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

WINDOW = 8
"""Blocks (row groups) over which rows are mixed. More mix better and take more memory."""


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The windows of an epoch, in the order in which they are played."""

    starts: np.ndarray
    """First offset of each window, and the length of the epoch."""
    windows: list[tuple[int, np.ndarray]]
    """Difficulty (0 for all) and blocks of each window."""


class PromptStream:
    """An endless stream of tasks, shuffled anew every epoch; its whole state is `position`.

    The task at stream index i depends only on seed, i and the tasks, so that an interrupted run plays
    exactly the tasks that an uninterrupted one would have played.

    An epoch is a permutation of all tasks. The blocks of the source (row groups of a table; a list is one block) are
    shuffled as a whole and cut into windows of `WINDOW` blocks; the rows of a window are shuffled. So every block is
    read once an epoch, only a window is held, and any position is found without playing what is before it. With
    `easy_first` the difficulties come one after the other, each in this way over the blocks that have it: a block
    is then read once for each difficulty that it holds.
    """

    def __init__(
        self, tasks: Sequence[Task] | TaskSource, *, seed: int, position: int = 0, easy_first: bool = False
    ) -> None:
        """Take the tasks in file order.

        Args:
            tasks: At least one.
            seed: Of the shuffling.
            position: Stream index of the next task.
            easy_first: Order every epoch by difficulty, shuffled within a level.

        Raises:
            DataError: If there are no tasks.
        """
        if not len(tasks):
            raise DataError("The training set must hold at least one task, got 0. Check environment.train_files")
        self._tasks = TaskList(tasks) if isinstance(tasks, Sequence) else tasks
        self._seed = seed
        self._starts = self._tasks.block_starts
        self._difficulties = self._tasks.difficulties if easy_first else None
        self._counts = self._count_rows()
        self._epoch = functools.lru_cache(2)(self._make_epoch)
        self._order = functools.lru_cache(2)(self._make_order)
        self.position = position

    def __len__(self) -> int:
        """Return the number of tasks of one epoch."""
        return len(self._tasks)

    def task_at(self, index: int) -> Task:
        """Return the task at a stream index."""
        epoch, offset = divmod(index, len(self._tasks))
        starts = self._epoch(epoch).starts
        window = int(np.searchsorted(starts, offset, side="right")) - 1
        return self._tasks[int(self._order(epoch, window)[offset - starts[window]])]

    def next(self) -> tuple[int, Task]:
        """Return the next stream index and its task, and move on."""
        index = self.position
        self.position += 1
        return index, self.task_at(index)

    def _count_rows(self) -> dict[int, np.ndarray]:
        """Return by difficulty, in order, how many rows of each block have it; under 0 all rows."""
        if self._difficulties is None:
            return {0: np.diff(self._starts)}
        return {
            int(level): np.add.reduceat(self._difficulties == level, self._starts[:-1], dtype=np.int64)
            for level in np.unique(self._difficulties)
        }

    def _make_epoch(self, epoch: int) -> _Epoch:
        windows: list[tuple[int, np.ndarray]] = []
        sizes: list[int] = []
        for level, counts in self._counts.items():
            blocks = np.flatnonzero(counts)
            blocks = blocks[_permutation(f"{self._seed}/{epoch}/{level}", len(blocks))]
            for first in range(0, len(blocks), WINDOW):
                windows.append((level, blocks[first : first + WINDOW]))
                sizes.append(int(counts[windows[-1][1]].sum()))
        return _Epoch(np.cumsum([0, *sizes]), windows)

    def _make_order(self, epoch: int, window: int) -> np.ndarray:
        level, blocks = self._epoch(epoch).windows[window]
        rows = np.concatenate([self._rows(level, int(block)) for block in blocks])
        return rows[_permutation(f"{self._seed}/{epoch}/{level}/{window}", len(rows))]

    def _rows(self, level: int, block: int) -> np.ndarray:
        start, stop = self._starts[block : block + 2].tolist()
        if self._difficulties is None:
            return np.arange(start, stop)
        return start + np.flatnonzero(self._difficulties[start:stop] == level)


def _permutation(name: str, length: int) -> np.ndarray:
    """Return a random order that depends on its name only: numpy keeps raw streams, but not shuffles, over versions."""
    generator = np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()))
    return np.argsort(generator.random_raw(length), kind="stable")
