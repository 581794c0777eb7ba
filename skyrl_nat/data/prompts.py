"""The resumable order in which tasks are played: a pure function of seed and position."""

import random
from collections.abc import Sequence

from skyrl_nat.errors import DataError
from skyrl_nat.types import Task


class PromptStream:
    """An endless stream of tasks, shuffled anew every epoch; its whole state is `position`.

    The task at stream index i depends only on seed, i and the tasks, so that an interrupted run plays
    exactly the tasks that an uninterrupted one would have played.
    """

    def __init__(self, tasks: Sequence[Task], *, seed: int, position: int = 0, easy_first: bool = False) -> None:
        """Take the tasks in file order.

        Args:
            tasks: At least one.
            seed: Of the shuffling.
            position: Stream index of the next task.
            easy_first: Order every epoch by difficulty, shuffled within a level.

        Raises:
            DataError: If there are no tasks.
        """
        if not tasks:
            raise DataError("The training set must hold at least one task, got 0. Check environment.train_files")
        self._tasks = list(tasks)
        self._seed = seed
        self._easy_first = easy_first
        self._orders: dict[int, list[int]] = {}
        self.position = position

    def __len__(self) -> int:
        """Return the number of tasks of one epoch."""
        return len(self._tasks)

    def task_at(self, index: int) -> Task:
        """Return the task at a stream index."""
        epoch, offset = divmod(index, len(self._tasks))
        if epoch not in self._orders:
            order = list(range(len(self._tasks)))
            random.Random(f"{self._seed}/{epoch}").shuffle(order)
            if self._easy_first:
                order.sort(key=lambda i: self._tasks[i].difficulty)
            self._orders = {epoch: order} if epoch - 1 not in self._orders else {**self._orders, epoch: order}
        return self._tasks[self._orders[epoch][offset]]

    def next(self) -> tuple[int, Task]:
        """Return the next stream index and its task, and move on."""
        index = self.position
        self.position += 1
        return index, self.task_at(index)
