"""Tasks as datasets of the Hugging Face `datasets` library, and back, exactly.

The columns are those of a task file, so that `dataset.to_parquet` writes a task file and `load_dataset("parquet", ...)`
reads one.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from skyrl_nat.data.task_faults import FileFaults, RowFaults
from skyrl_nat.data.task_ids import check_unique, hashes_of
from skyrl_nat.data.task_reader import BATCH_ROWS, RowParser
from skyrl_nat.data.task_schema import problems_of
from skyrl_nat.data.task_writer import table_of
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.types import Task

if TYPE_CHECKING:
    from datasets import Dataset, IterableDataset


def to_dataset(tasks: Iterable[Task]) -> "Dataset":
    """Return tasks as a dataset that is held in memory; for large sets write a file and load that.

    Raises:
        DataError: Rows that are no tasks, counted and the first few shown.
        ConfigError: The library is not installed.
    """
    return _library().Dataset(table_of(tasks))


def from_dataset(dataset: "Dataset | IterableDataset", *, family: str | None = None) -> list[Task]:
    """Return the rows of one split as tasks, in its order, filters and shuffles included.

    Args:
        dataset: With the columns of a task file; payload and hidden columns may be JSON text or structs.
        family: Refuse tasks of another family; None takes all.

    Raises:
        DataError: It is no single split, its columns do not fit, rows are no tasks (all counted, the first few shown),
            or an id comes twice.
        ConfigError: The library is not installed.
    """
    library = _library()
    if not isinstance(dataset, library.Dataset | library.IterableDataset):
        raise DataError(f"A dataset must be one split, got {type(dataset).__name__}. Choose one, such as data['train']")
    tasks: list[Task] = []
    rows, faults, first_row = RowFaults(), FileFaults(), 0
    faults.num_files = 1
    for batch in dataset.with_format("arrow").iter(BATCH_ROWS):
        table = cast(pa.Table, batch)
        if problems := problems_of(table.schema):
            raise DataError(f"The dataset: {'; '.join(problems)}")
        tasks += RowParser(table.schema, family).parse(table, first_row, rows)
        first_row += table.num_rows
    if rows.count:
        faults.add("dataset", rows.describe("The dataset"))
    faults.check()
    ids = [task.task_id for task in tasks]
    check_unique(hashes_of(ids, len(ids)), lambda: iter(ids))
    return tasks


def _library() -> ModuleType:
    try:
        import datasets
    except ImportError as error:
        raise ConfigError("Hugging Face datasets must be installed, it is not. Run: pip install datasets") from error
    return datasets
