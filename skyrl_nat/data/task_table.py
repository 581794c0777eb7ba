"""Tasks of files that are larger than memory: an index of two bytes per row, and row groups read on demand."""

import functools
import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from skyrl_nat.data.task_faults import FileFaults, RowFaults
from skyrl_nat.data.task_files import TaskFile, find_files, open_file, open_parquet
from skyrl_nat.data.task_ids import check_unique, hashes_of
from skyrl_nat.data.task_reader import BATCH_ROWS, RowParser, scan_tasks, values_of
from skyrl_nat.data.task_values import exact_id
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

MAX_GROUP_BYTES = 256 * 2**20
"""A row group is read at once; larger ones are refused."""
GROUPS_HELD = 8
"""Row groups that are kept, those used last; the prompt stream needs as many at a time."""
FILES_OPEN = 4


class TaskTable:
    """A `TaskSource` over parquet files.

    Opening reads every row once, in batches, so that a bad row is told before the run and not within it; for that time
    it holds 9 bytes per row, afterwards two. Blocks are the row groups, without those of which no row is kept.
    """

    def __init__(
        self, files: Sequence[TaskFile], faults: FileFaults, *, family: str | None = None, max_difficulty: int = 5
    ) -> None:
        """Read and check all rows.

        Args:
            files: With the right columns.
            faults: Of the other files that were named.
            family: Refuse tasks of another family; None takes all.
            max_difficulty: Tasks above it are left out.

        Raises:
            DataError: A file cannot be used, a row group is too large, a row is no task (all in one message), or an id
                comes twice.
        """
        _check_group_sizes(files, faults)
        self._files = list(files)
        self._parsers = [RowParser(file.schema, family) for file in files]
        self._difficulties = self._scan(family, faults)
        self._is_kept = self._difficulties <= max_difficulty
        groups = [(number, group) for number, file in enumerate(files) for group in range(len(file.group_rows))]
        ends = np.cumsum([self._files[number].group_rows[group] for number, group in groups], dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends])
        kept = np.array([self._is_kept[a:b].sum() for a, b in itertools.pairwise(starts.tolist())], dtype=np.int64)
        self._groups = np.array(groups, dtype=np.int32).reshape(-1, 2)[kept > 0]
        self._rows = np.stack([starts[:-1], starts[1:]], axis=1)[kept > 0]
        self._block_starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept[kept > 0])])
        self._read_block = functools.lru_cache(GROUPS_HELD)(self._read_block_now)
        self._open = functools.lru_cache(FILES_OPEN)(self._open_now)

    @classmethod
    def open(cls, names: Sequence[str], *, family: str | None = None, max_difficulty: int = 5) -> "TaskTable":
        """Open the files of names as `load_tasks` takes them.

        Raises:
            DataError: A file or a row cannot be used.
        """
        faults = FileFaults()
        return cls(find_files(names, faults), faults, family=family, max_difficulty=max_difficulty)

    def __len__(self) -> int:
        """Return how many tasks are kept."""
        return int(self._block_starts[-1])

    def __getitem__(self, index: int) -> Task:
        """Return one task; its row group is read unless it is held.

        Raises:
            DataError: The file is no longer what it was.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"index must be in 0..{len(self) - 1}, got {index}")
        block = int(np.searchsorted(self._block_starts, index, side="right")) - 1
        place = index - int(self._block_starts[block])
        number, faults = int(self._groups[block, 0]), RowFaults()
        tasks = self._parsers[number].parse(self._read_block(block).slice(place, 1), place, faults)
        if not tasks:
            raise DataError(faults.describe(self._files[number].name))
        return tasks[0]

    def ids(self) -> Iterator[str]:
        """Go through the ids of all tasks that are kept, reading that column only."""
        return itertools.compress(self._all_ids(), self._is_kept)

    @property
    def num_left_out(self) -> int:
        """Rows above the greatest difficulty."""
        return len(self._difficulties) - len(self)

    @property
    def difficulties(self) -> np.ndarray:
        """The difficulty of each index."""
        return self._difficulties[self._is_kept] if self.num_left_out else self._difficulties

    @property
    def block_starts(self) -> np.ndarray:
        """First index of each row group, and the length."""
        return self._block_starts

    def _scan(self, family: str | None, faults: FileFaults) -> np.ndarray:
        total = sum(file.num_rows for file in self._files)
        difficulties, hashes = np.zeros(total, dtype=np.int8), np.zeros(total, dtype=np.int64)
        end = 0
        for tasks in scan_tasks(self._files, family, faults):
            start, end = end, end + len(tasks)
            difficulties[start:end] = [task.difficulty for task in tasks]
            hashes[start:end] = hashes_of((task.task_id for task in tasks), len(tasks))
        faults.check()
        check_unique(hashes, self._all_ids)
        return difficulties

    def _all_ids(self) -> Iterator[str]:
        for file in self._files:
            with open_parquet(file.path) as opened:
                for batch in opened.iter_batches(BATCH_ROWS, columns=["task_id"]):
                    yield from map(exact_id, values_of(batch.column("task_id")))

    def _read_block_now(self, block: int) -> pa.Table:
        number, group = self._groups[block].tolist()
        start, stop = self._rows[block].tolist()
        try:
            table = self._open(number).read_row_group(group, columns=self._parsers[number].columns)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._files[number].name} must stay readable, but: {error}. Restore it") from error
        is_kept = self._is_kept[start:stop]
        return table if is_kept.all() else table.take(np.flatnonzero(is_kept))

    def _open_now(self, number: int) -> pq.ParquetFile:
        file = self._files[number]
        if open_file(file.path, file.name).stamp != file.stamp:
            raise DataError(f"{file.name} must not change while tasks are read from it, it has. Start again")
        return open_parquet(file.path)


def _check_group_sizes(files: Sequence[TaskFile], faults: FileFaults) -> None:
    for file in files:
        largest = max(file.group_bytes, default=0)
        if largest > MAX_GROUP_BYTES:
            faults.add(
                file.name,
                f"{file.name}: a row group must be at most {MAX_GROUP_BYTES >> 20} MiB in a set that is not held in "
                f"memory, got {largest >> 20} MiB. Write the file again with row groups of about 1000 rows",
            )
