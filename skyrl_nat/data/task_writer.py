"""Tasks become task files: an explicit schema, row groups of a bounded size, complete files or none."""

import itertools
import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skyrl_nat.data.replacing import replacing
from skyrl_nat.data.task_faults import RowFaults
from skyrl_nat.data.task_schema import HIDDEN_PREFIX, schema_with
from skyrl_nat.data.task_values import SurrogateMender, exact_id, filled_text, json_object, level
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

GROUP_ROWS = 1024
GROUP_CHARS = 16 * 2**20
"""A row group ends with the row that reaches one of the two."""

Row = dict[str, Any]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of the tasks."""

    files: list[Path]
    num_tasks: int
    num_replaced: int
    """Lone surrogates that became U+FFFD."""


def write_tasks(tasks: Iterable[Task], path: Path, *, hidden_names: Sequence[str] | None = None) -> Written:
    """Write tasks to a parquet file, which appears when it is complete; the same tasks give the same bytes.

    Args:
        tasks: In the order of the rows.
        path: Replaced if it is there.
        hidden_names: What the hidden halves may hold. None finds out, which holds all tasks in memory; with names
            any number of tasks passes through.

    Raises:
        DataError: Rows that are no tasks, counted and the first few shown.
    """
    encoder = _Encoder(str(path), hidden_names)
    path.parent.mkdir(parents=True, exist_ok=True)
    names, rows = encoder.open(tasks)
    with replacing(path) as part:
        _write_file(rows, schema_with(names), part)
    return encoder.report([path])


def write_shards(
    tasks: Iterable[Task], folder: Path, *, rows_per_file: int = 100_000, hidden_names: Sequence[str] | None = None
) -> Written:
    """Write tasks to the files `part-00000.parquet` and so on of a new folder, all with the same columns.

    Raises:
        DataError: Rows that are no tasks, or the folder already holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} must be a new or an empty folder, so that no other tasks mix in. Name another")
    encoder = _Encoder(str(folder), hidden_names)
    folder.parent.mkdir(parents=True, exist_ok=True)
    names, rows = encoder.open(tasks)
    files: list[Path] = []
    with replacing(folder) as part:
        part.mkdir()
        for chunk in _chunks(rows, rows_per_file):
            files.append(folder / f"part-{len(files):05}.parquet")
            _write_file(chunk, schema_with(names), part / files[-1].name)
        if not files:
            raise DataError(f"{folder} must get at least one task, got 0. Pass some")
    return encoder.report(files)


def table_of(tasks: Iterable[Task]) -> pa.Table:
    """Return tasks as the table that a task file holds.

    Raises:
        DataError: Rows that are no tasks, counted and the first few shown.
    """
    encoder = _Encoder("a table", None)
    names, rows = encoder.open(tasks)
    table = pa.Table.from_pylist(list(rows), schema=schema_with(names))
    encoder.report([])
    return table


class _Encoder:
    """Makes rows of tasks and keeps the count."""

    def __init__(self, place: str, hidden_names: Sequence[str] | None) -> None:
        self._place = place
        self._names = None if hidden_names is None else list(hidden_names)
        self._mender = SurrogateMender()
        self._num_tasks = 0

    def open(self, tasks: Iterable[Task]) -> tuple[list[str], Iterator[Row]]:
        """Return the names of the hidden halves and the rows, which raise at their end where one was bad."""
        rows = self._rows(tasks)
        if self._names is not None:
            return self._names, rows
        held = list(rows)
        found = dict.fromkeys(name for row in held for name in row if name.startswith(HIDDEN_PREFIX))
        return [name.removeprefix(HIDDEN_PREFIX) for name in found], iter(held)

    def report(self, files: list[Path]) -> Written:
        """Return the counts, and say what was replaced."""
        if self._mender.count:
            _logger.warning("%s: %d lone surrogates were written as U+FFFD", self._place, self._mender.count)
        return Written(files=files, num_tasks=self._num_tasks, num_replaced=self._mender.count)

    def _rows(self, tasks: Iterable[Task]) -> Iterator[Row]:
        faults = RowFaults()
        for number, task in enumerate(tasks):
            try:
                yield self._row(task)
            except ValueError as error:
                faults.add(number, str(error))
            self._num_tasks += 1
        if faults.count:
            raise DataError(
                f"Every row must be a whole task of JSON values, nothing was written of {faults.describe(self._place)}"
            )

    def _row(self, task: Task) -> Row:
        columns = {
            "task_id": lambda: exact_id(self._mender.text(filled_text(task.task_id))),
            "family": lambda: self._mender.text(filled_text(task.family)),
            "difficulty": lambda: level(task.difficulty),
            "payload": lambda: self._json(json_object(task.payload)),
            **{f"{HIDDEN_PREFIX}{name}": lambda name=name: self._hidden(task, name) for name in task.hidden},
        }
        row: Row = {}
        for name, make in columns.items():
            try:
                row[name] = make()
            except ValueError as error:
                raise ValueError(f"column {name} {error}") from error
        return row

    def _hidden(self, task: Task, name: str) -> str:
        if self._names is not None and name not in self._names:
            raise ValueError(f"must be one of {', '.join(self._names) or 'no'} hidden names")
        return self._json(task.hidden[name])

    def _json(self, value: Any) -> str:
        try:
            return json.dumps(self._mender.value(value), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"must be JSON: {error}") from error


def _write_file(rows: Iterable[Row], schema: pa.Schema, path: Path) -> None:
    # Statistics would only make the footer, which readers hold, larger; checksums tell of damage within a page.
    with pq.ParquetWriter(
        path, schema, compression="zstd", use_dictionary=False, write_statistics=False, write_page_checksum=True
    ) as writer:
        for group in _groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema=schema), row_group_size=len(group))


def _groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    num_chars = 0
    for row in rows:
        group.append(row)
        num_chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(group) == GROUP_ROWS or num_chars >= GROUP_CHARS:
            yield group
            group, num_chars = [], 0
    if group:
        yield group


def _chunks(rows: Iterator[Row], size: int) -> Iterator[Iterator[Row]]:
    for row in rows:
        yield itertools.chain([row], itertools.islice(rows, size - 1))
