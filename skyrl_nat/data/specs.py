"""Task files: parquet in, plain `Task` records out, and back.

Columns: `task_id`, `family`, `difficulty`, `payload` (what the policy may see) and a column `hidden.<name>` for
each entry of the hidden half, all as JSON text. JSON text, because a parquet struct would give every row the union of
all rows' keys, and lists would come back as arrays. Columns of their own, so that a reader can leave them out.
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

SCHEMA = pa.schema(
    [
        pa.field("task_id", pa.string(), nullable=False),
        pa.field("family", pa.string(), nullable=False),
        pa.field("difficulty", pa.int32(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
    ]
)
"""What every file has; hidden columns come after it."""
HIDDEN_PREFIX = "hidden."
BUILTIN_PREFIX = "builtin:"

_logger = logging.getLogger(__name__)


def resolve_file(name: str) -> Path:
    """Return the path of a task file; `builtin:<family>/<split>` is one that is shipped."""
    if not name.startswith(BUILTIN_PREFIX):
        return Path(name)
    family, _, split = name.removeprefix(BUILTIN_PREFIX).partition("/")
    return Path(__file__).resolve().parents[1] / "environments" / family / "data" / f"{split}.parquet"


def load_tasks(files: list[str], *, family: str | None = None, max_difficulty: int = 5) -> list[Task]:
    """Return the tasks of all files, in order.

    Args:
        files: Paths, or `builtin:` names.
        family: Refuse tasks of another family; None takes all.
        max_difficulty: Tasks above it are left out, and counted in the log.

    Raises:
        DataError: A file cannot be read or a row is not a task (all of them in one message), an id comes
            twice, or nothing is left.
    """
    tasks: list[Task] = []
    faults: list[str] = []
    for name in files:
        try:
            tasks += _read_file(name, family)
        except DataError as error:
            faults.append(str(error))
    if faults:
        raise DataError(
            f"every task file must be readable, {len(faults)} of {len(files)} are not:\n" + "\n".join(faults)
        )
    seen: set[str] = set()
    twice = sorted({task.task_id for task in tasks if task.task_id in seen or seen.add(task.task_id)})
    if twice:
        raise DataError(
            f"task ids must be unique over all files, got {len(twice)} of them twice: {', '.join(twice[:5])}. "
            "Rename them, or name each file once"
        )
    kept = [task for task in tasks if task.difficulty <= max_difficulty]
    if len(kept) < len(tasks):
        _logger.info(
            "left out %d of %d tasks above difficulty %d",
            len(tasks) - len(kept),
            len(tasks),
            max_difficulty,
        )
    if not kept:
        raise DataError(
            f"task files must hold at least one task, got {len(tasks)} rows in {len(files)} files of which "
            f"{len(tasks)} are above environment.max_difficulty ({max_difficulty}). Add files or raise it"
        )
    return kept


def write_tasks(tasks: Iterable[Task], path: Path) -> None:
    """Write tasks to a parquet file; the same tasks give the same bytes.

    Raises:
        DataError: A field is missing or no JSON, with the row.
    """
    rows = []
    for index, task in enumerate(tasks):
        try:
            rows.append(
                {
                    "task_id": _text(task.task_id, "task_id"),
                    "family": _text(task.family, "family"),
                    "difficulty": task.difficulty,
                    "payload": json.dumps(task.payload, allow_nan=False),
                    **{
                        f"{HIDDEN_PREFIX}{name}": json.dumps(value, allow_nan=False)
                        for name, value in task.hidden.items()
                    },
                }
            )
        except (TypeError, ValueError) as error:
            raise DataError(f"row {index} for {path} must be a whole task of JSON values: {error}") from error
    names = dict.fromkeys(name for row in rows for name in row if name.startswith(HIDDEN_PREFIX))
    schema = pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in names)])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, compression="zstd")


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{field} is {value!r}")
    return value


def _read_file(name: str, family: str | None) -> list[Task]:
    path = resolve_file(name)
    if not path.exists():
        raise DataError(f"{name}: there is no such file")
    if path.is_dir():
        raise DataError(f"{name}: is a folder, name the parquet files in it")
    if path.stat().st_size == 0:
        raise DataError(f"{name}: the file is empty (0 bytes)")
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{name}: is no readable parquet file: {error}") from error
    missing = [field.name for field in SCHEMA if field.name not in table.column_names]
    if missing:
        raise DataError(f"{name}: has no column {', '.join(missing)}")
    for field in SCHEMA:
        found = table.schema.field(field.name).type
        is_right = pa.types.is_integer(found) if field.name == "difficulty" else _is_text(found)
        if not is_right:
            raise DataError(f"{name}: column {field.name} must be {field.type}, got {found}")
    return [_task(row, f"{name}, row {index}", family) for index, row in enumerate(table.to_pylist())]


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _task(row: dict[str, Any], place: str, family: str | None) -> Task:
    empty = [field.name for field in SCHEMA if row[field.name] is None or row[field.name] == ""]
    if empty:
        raise DataError(f"{place}: {', '.join(empty)} must not be empty")
    payload = _parse_json(row["payload"], f"{place}: payload")
    if not isinstance(payload, dict):
        raise DataError(f"{place}: payload must be a JSON object, got {type(payload).__name__}")
    hidden = {
        name.removeprefix(HIDDEN_PREFIX): _parse_json(text, f"{place}: {name}")
        for name, text in row.items()
        if name.startswith(HIDDEN_PREFIX) and text is not None
    }
    if family is not None and row["family"] != family:
        raise DataError(f"{place}: family must be {family}, got {row['family']}")
    if not 1 <= row["difficulty"] <= 5:
        raise DataError(f"{place}: difficulty must be in 1..5, got {row['difficulty']}")
    return Task(
        task_id=row["task_id"],
        family=row["family"],
        difficulty=row["difficulty"],
        payload=payload,
        hidden=hidden,
    )


def _parse_json(text: Any, place: str) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{place} must be JSON text: {error}") from error
