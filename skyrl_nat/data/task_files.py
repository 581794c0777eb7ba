"""Names in the config become parquet files that are whole and have the right columns."""

import glob
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from skyrl_nat.data.task_faults import FileFaults
from skyrl_nat.data.task_schema import problems_of, task_columns
from skyrl_nat.errors import DataError

BUILTIN_PREFIX = "builtin:"
_MAGIC = b"PAR1"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFile:
    """A parquet file with the columns of tasks; of its footer only what is needed later."""

    name: str
    """As messages show it."""
    path: Path
    schema: pa.Schema
    group_rows: list[int]
    """Rows of each row group."""
    group_bytes: list[int]
    """Size of each row group when it is unpacked."""
    stamp: tuple[int, int]
    """Size and time of the last change."""

    @property
    def num_rows(self) -> int:
        """Rows of all groups."""
        return sum(self.group_rows)


def resolve_file(name: str) -> Path:
    """Return the path of a task file; `builtin:<family>/<split>` is one that is shipped."""
    if not name.startswith(BUILTIN_PREFIX):
        return Path(name)
    family, _, split = name.removeprefix(BUILTIN_PREFIX).partition("/")
    return Path(__file__).resolve().parents[1] / "environments" / family / "data" / f"{split}.parquet"


def find_files(names: Sequence[str], faults: FileFaults) -> list[TaskFile]:
    """Return the usable files of all names, in order; what is wrong with the others goes into `faults`.

    A name is a file, a `builtin:` name, a folder (its `*.parquet`, in the order of their names) or a pattern with
    `*`, `?` or `[`. Names that begin with `.` or `_` are not part of a folder: they are unfinished or marks.
    """
    found: list[TaskFile] = []
    ignored: set[str] = set()
    for name in names:
        try:
            paths = _expand(name)
        except DataError as error:
            faults.num_files += 1
            faults.add(name, f"{name}: {error}")
            continue
        for path in paths:
            faults.num_files += 1
            shown = name if name.startswith(BUILTIN_PREFIX) else str(path)
            try:
                file = open_file(path, shown)
            except DataError as error:
                faults.add(shown, f"{shown}: {error}")
                continue
            ignored |= set(file.schema.names) - set(task_columns(file.schema))
            found.append(file)
    if ignored:
        _logger.info("columns that are no part of a task are not read: %s", ", ".join(sorted(ignored)))
    return found


def open_file(path: Path, name: str) -> TaskFile:
    """Read the footer of a file.

    Raises:
        DataError: It is no whole parquet file, or its columns are not those of tasks; without the file's name.
    """
    try:
        if reason := _why_broken(path):
            raise DataError(reason)
        state = path.stat()
        with open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            sizes = [(group.num_rows, group.total_byte_size) for group in groups]
        problems = problems_of(schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"is no readable parquet file: {error}. Write it again") from error
    if problems:
        raise DataError("; ".join(problems))
    return TaskFile(
        name=name,
        path=path,
        schema=schema,
        group_rows=[rows for rows, _ in sizes],
        group_bytes=[size for _, size in sizes],
        stamp=(state.st_size, state.st_mtime_ns),
    )


def open_parquet(path: Path) -> pq.ParquetFile:
    """Return an open file whose pages are compared with their checksums, where it has them."""
    return pq.ParquetFile(path, page_checksum_verification=True)


def _expand(name: str) -> list[Path]:
    path = resolve_file(name)
    if path.is_dir():
        paths = list(_visible(path.glob("*.parquet")))
        if not paths:
            raise DataError("is a folder without .parquet files. Name the one that has them")
        return sorted(paths)
    if path.exists() or not glob.has_magic(name):
        return [path]
    paths = list(_visible(Path(match) for match in glob.glob(name, recursive=True)))  # noqa: PTH207
    if not paths:
        raise DataError("no file fits this pattern. Correct it, or give an absolute path")
    return sorted(paths)


def _visible(paths: Iterator[Path]) -> Iterator[Path]:
    return (path for path in paths if not path.name.startswith((".", "_")))


def _why_broken(path: Path) -> str:
    """Return in plain words why a file cannot be a whole parquet file; empty where it may be."""
    if not path.exists():
        return "there is no such file"
    if path.is_dir():
        return "is a folder inside of a folder or pattern, name it itself"
    size = path.stat().st_size
    if size == 0:
        return "the file is empty (0 bytes)"
    with path.open("rb") as file:
        head = file.read(12)
        file.seek(max(0, size - len(_MAGIC)))
        tail = file.read()
    if not head.startswith(_MAGIC):
        return f"is no parquet file, it begins with {head!r}"
    if tail != _MAGIC or size < len(_MAGIC) * 3:
        return f"is cut off: it begins as a parquet file and does not end as one ({size} bytes)"
    return ""
