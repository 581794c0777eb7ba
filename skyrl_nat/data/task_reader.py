"""Rows of task files become tasks, a batch at a time, and every row that is none is told."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from skyrl_nat.data.task_faults import FileFaults, RowFaults
from skyrl_nat.data.task_files import TaskFile, open_parquet
from skyrl_nat.data.task_schema import HIDDEN_PREFIX, task_columns
from skyrl_nat.data.task_values import SurrogateMender, exact_id, filled_text, json_object, json_reader, level
from skyrl_nat.types import Task

BATCH_ROWS = 1024

_logger = logging.getLogger(__name__)


class RowParser:
    """Turns rows of one schema into tasks."""

    def __init__(self, schema: pa.Schema, family: str | None) -> None:
        """Take a schema that has no problems.

        Args:
            schema: Of the file.
            family: Rows of another one are refused; None takes all.
        """
        self.columns = task_columns(schema)
        self.mender = SurrogateMender()
        self._family = family
        read_payload = json_reader(schema.field("payload").type, self.mender)
        self._readers: dict[str, Callable[[Any], Any]] = {
            "task_id": exact_id,
            "family": self._check_family,
            "difficulty": level,
            "payload": lambda value: json_object(read_payload(filled(value))),
        }
        for name in self.columns:
            if name.startswith(HIDDEN_PREFIX):
                self._readers[name] = json_reader(schema.field(name).type, self.mender)

    def parse(self, batch: pa.RecordBatch | pa.Table, first_row: int, faults: RowFaults) -> list[Task]:
        """Return the tasks of a batch; rows that are none are left out and noted."""
        values = {name: values_of(batch.column(name)) for name in self.columns}
        tasks: list[Task] = []
        for number in range(batch.num_rows):
            row = {name: column[number] for name, column in values.items()}
            name = ""
            fields: dict[str, Any] = {}
            hidden: dict[str, Any] = {}
            try:
                for name, value in row.items():
                    if isinstance(value, Exception):
                        raise ValueError(f"cannot be read: {value}")
                    if not name.startswith(HIDDEN_PREFIX):
                        fields[name] = self._readers[name](value)
                    elif value is not None:
                        hidden[name.removeprefix(HIDDEN_PREFIX)] = self._readers[name](value)
            except ValueError as error:
                faults.add(first_row + number, f"column {name} {error}")
                continue
            tasks.append(Task(**fields, hidden=hidden))
        return tasks

    def _check_family(self, value: Any) -> str:
        family = filled_text(value)
        if self._family is not None and family != self._family:
            raise ValueError(f"must be {self._family}, got {family}")
        return family


def filled(value: Any) -> Any:
    """Return a value that is there.

    Raises:
        ValueError: It is missing.
    """
    if value is None:
        raise ValueError("must not be empty")
    return value


def values_of(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return plain values; an error in the place of one that has none, such as a text that is no UTF-8."""
    try:
        return column.to_pylist()
    except (ValueError, OverflowError):
        return [_value_or_error(item) for item in column]


def scan_tasks(files: Sequence[TaskFile], family: str | None, faults: FileFaults) -> Iterator[list[Task]]:
    """Yield the tasks of all files in batches; rows and files that cannot be read go into `faults`."""
    num_replaced = 0
    for file in files:
        rows, first_row = RowFaults(), 0
        parser = RowParser(file.schema, family)
        try:
            with open_parquet(file.path) as opened:
                for batch in opened.iter_batches(BATCH_ROWS, columns=parser.columns):
                    yield parser.parse(batch, first_row, rows)
                    first_row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            faults.add(file.name, f"{file.name}: rows from {first_row} on cannot be read: {error}")
        if rows.count:
            faults.add(file.name, rows.describe(file.name))
        num_replaced += parser.mender.count
    if num_replaced:
        _logger.warning("%d lone surrogates in task files were read as U+FFFD", num_replaced)


def _value_or_error(item: pa.Scalar) -> Any:
    try:
        return item.as_py()
    except (ValueError, OverflowError) as error:
        return error
