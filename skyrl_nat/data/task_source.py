"""What the prompt stream needs of a set of tasks, and the small set that is simply held."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np

from skyrl_nat.errors import DataError
from skyrl_nat.types import Task


class TaskSource(Protocol):
    """Tasks by index, in the order of the files."""

    def __len__(self) -> int:
        """Return how many there are."""
        ...

    def __getitem__(self, index: int, /) -> Task:
        """Return one task."""
        ...

    def ids(self) -> Iterator[str]:
        """Go through all ids without making tasks."""
        ...

    @property
    def difficulties(self) -> np.ndarray:
        """The difficulty of each index."""
        ...

    @property
    def block_starts(self) -> np.ndarray:
        """First index of each block that is read at once, none of them empty, and at the end the length."""
        ...


class TaskList:
    """Tasks that are held in memory: one block."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Take the tasks."""
        self._tasks = list(tasks)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        """Return one task."""
        return self._tasks[index]

    def ids(self) -> Iterator[str]:
        """Go through all ids."""
        return (task.task_id for task in self._tasks)

    @property
    def difficulties(self) -> np.ndarray:
        """The difficulty of each index."""
        return np.array([task.difficulty for task in self._tasks], dtype=np.int8)

    @property
    def block_starts(self) -> np.ndarray:
        """The first index and the length."""
        return np.array([0, len(self._tasks)])


def check_disjoint(train: TaskSource, held_out: Sequence[Task]) -> None:
    """Pass where no held-out task is trained on.

    Raises:
        DataError: With the first few ids that both sets hold.
    """
    held_ids = {task.task_id for task in held_out}
    shared = sorted(name for name in train.ids() if name in held_ids)
    if shared:
        raise DataError(f"Held-out tasks must not be trained on, both sets hold: {', '.join(shared[:5])}. Split again")
