"""Rows of a known schema as JSON lines, parquet and Hugging Face data sets, and back, exactly."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from skyrl_nat.data.replacing import replacing
from skyrl_nat.errors import ConfigError, DataError

if TYPE_CHECKING:
    from datasets import Dataset

Row = dict[str, Any]


def write_rows(rows: Sequence[Row], path: Path, schema: pa.Schema) -> None:
    """Write rows to a `.jsonl` or `.parquet` file, which appears whole or not at all.

    Raises:
        DataError: The ending is neither, or a row does not fit the schema.
    """
    table = _table(rows, schema)
    with replacing(path) as part:
        if path.suffix == ".jsonl":
            lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
            with part.open("w", encoding="utf-8") as file:
                file.writelines(lines)
        elif path.suffix == ".parquet":
            pq.write_table(table, part, compression="zstd")
        else:
            raise DataError(f"A data set must be a .jsonl or .parquet file, got {path.name}. Rename it")


def read_rows(path: Path, schema: pa.Schema) -> list[Row]:
    """Read what `write_rows` wrote.

    Raises:
        DataError: The file cannot be read or does not have the schema.
    """
    try:
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            if not table.schema.equals(schema):
                raise ValueError(f"its columns are {', '.join(table.schema.names)}, or of other types")
            return table.to_pylist()
        with path.open(encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
    except (OSError, ValueError, RecursionError, pa.ArrowException) as error:
        raise DataError(
            f"{path} must be a data set of columns {', '.join(schema.names)}: {error}. Export it again"
        ) from error
    return _table(rows, schema).to_pylist()


def to_hf_dataset(rows: Sequence[Row], schema: pa.Schema) -> "Dataset":
    """Return rows as a data set of the library `datasets`; `to_list` gives them back.

    Raises:
        DataError: A row does not fit the schema.
        ConfigError: The library is not installed.
    """
    try:
        from datasets import Dataset
    except ImportError as error:
        raise ConfigError(
            "Hugging Face data sets need the library `datasets`, which is not installed. pip install datasets"
        ) from error
    return Dataset(_table(rows, schema))


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table; a row with a column more or less than the schema is refused, not cut or filled."""
    try:
        table = pa.Table.from_pylist(list(rows), schema=schema)
    except (pa.ArrowException, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"Every row must have the columns {', '.join(schema.names)}: {error}. Export it again"
        ) from error
    changed = next((index for index, row in enumerate(table.to_pylist()) if row != rows[index]), None)
    if changed is not None:
        raise DataError(
            f"Every row must have exactly the columns {', '.join(schema.names)}, row {changed} has others or null in "
            "them. Export it again"
        )
    return table
