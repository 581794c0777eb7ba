"""Task files in: `load_tasks` holds them, `open_tasks` leaves what is large on disk. Out: `write_tasks`."""

import logging
from collections.abc import Sequence

from skyrl_nat.data.task_faults import FileFaults
from skyrl_nat.data.task_files import BUILTIN_PREFIX, TaskFile, find_files, resolve_file
from skyrl_nat.data.task_ids import check_unique, hashes_of
from skyrl_nat.data.task_reader import scan_tasks
from skyrl_nat.data.task_schema import HIDDEN_PREFIX, SCHEMA
from skyrl_nat.data.task_source import TaskList, TaskSource
from skyrl_nat.data.task_table import TaskTable
from skyrl_nat.data.task_writer import write_shards, write_tasks
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

__all__ = [
    "BUILTIN_PREFIX",
    "HIDDEN_PREFIX",
    "SCHEMA",
    "load_tasks",
    "open_tasks",
    "resolve_file",
    "write_shards",
    "write_tasks",
]

MAX_ROWS_HELD = 50_000
MAX_BYTES_HELD = 256 * 2**20
"""Sets with more rows, or more bytes when unpacked, stay on disk in `open_tasks`."""

_logger = logging.getLogger(__name__)


def load_tasks(files: Sequence[str], *, family: str | None = None, max_difficulty: int = 5) -> list[Task]:
    """Return the tasks of all files, in order.

    Args:
        files: Paths, folders, patterns or `builtin:` names.
        family: Refuse tasks of another family; None takes all.
        max_difficulty: Tasks above it are left out, and counted in the log.

    Raises:
        DataError: A file cannot be read or a row is not a task (all of them in one message), an id comes
            twice, or nothing is left.
    """
    faults = FileFaults()
    return _hold(find_files(files, faults), faults, family, max_difficulty)


def open_tasks(files: Sequence[str], *, family: str | None = None, max_difficulty: int = 5) -> TaskSource:
    """Return the tasks of all files for the prompt stream; a large set is checked as a whole but not held.

    Arguments and errors are those of `load_tasks`.
    """
    faults = FileFaults()
    found = find_files(files, faults)
    num_bytes = sum(sum(file.group_bytes) for file in found)
    if sum(file.num_rows for file in found) <= MAX_ROWS_HELD and num_bytes <= MAX_BYTES_HELD:
        return TaskList(_hold(found, faults, family, max_difficulty))
    table = TaskTable(found, faults, family=family, max_difficulty=max_difficulty)
    _tell_left_out(len(table) + table.num_left_out, len(table), len(found), max_difficulty)
    return table


def _hold(found: list[TaskFile], faults: FileFaults, family: str | None, max_difficulty: int) -> list[Task]:
    tasks = [task for batch in scan_tasks(found, family, faults) for task in batch]
    faults.check()
    ids = [task.task_id for task in tasks]
    check_unique(hashes_of(ids, len(ids)), lambda: iter(ids))
    kept = [task for task in tasks if task.difficulty <= max_difficulty]
    _tell_left_out(len(tasks), len(kept), faults.num_files, max_difficulty)
    return kept


def _tell_left_out(num_tasks: int, num_kept: int, num_files: int, max_difficulty: int) -> None:
    if num_kept < num_tasks:
        _logger.info("left out %d of %d tasks above difficulty %d", num_tasks - num_kept, num_tasks, max_difficulty)
    if not num_kept:
        raise DataError(
            f"task files must hold at least one task, got {num_tasks} rows in {num_files} files of which "
            f"{num_tasks} are above environment.max_difficulty ({max_difficulty}). Add files or raise it"
        )
