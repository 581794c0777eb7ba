"""Files of one JSON value a line that only grow: a line is there whole or not at all, after a kill or a full disk too.

What is written is JSON as the standard has it: a number that is not finite becomes null, and its line says why.
"""

import json
import logging
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, cast

NOT_FINITE = "not_finite"
"""Key of a line's reasons: path of a null, keys with dots between them -> `nan`, `inf` or `-inf`."""
_logger = logging.getLogger(__name__)


def open_lines(path: Path) -> FileIO:
    """Open a file of lines, or begin one; folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return cast("FileIO", path.open("a+b", buffering=0))


def encode_line(record: Mapping[str, Any]) -> bytes:
    """Return a record as a line, with NaN and infinities as null and the reasons under `NOT_FINITE`."""
    try:
        return json.dumps(record, allow_nan=False).encode() + b"\n"
    except ValueError:
        return json.dumps(with_reasons(record), allow_nan=False).encode() + b"\n"


def with_reasons(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record in which every NaN and infinity is None, with the reasons under `NOT_FINITE` if there are any."""
    reasons: dict[str, str] = {}
    clean = _finite(record, "", reasons)
    return {**clean, NOT_FINITE: reasons} if reasons else clean


def append_lines(file: FileIO, lines: bytes, *, is_synced: bool = False) -> None:
    """Write whole lines at the end.

    Args:
        file: From `open_lines`.
        lines: Each with its end.
        is_synced: Return when they are on the disk, so that not even a machine that stops loses them.

    Raises:
        OSError: The disk refused a part; what was begun is taken back.
    """
    size = os.fstat(file.fileno()).st_size
    try:
        rest = memoryview(lines)
        while rest:
            rest = rest[file.write(rest) :]
        if is_synced:
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            os.ftruncate(file.fileno(), size)
        raise


def whole_lines(data: bytes, path: Path) -> list[bytes]:
    """Return lines without their ends; of a last one without an end only if nothing else of it is missing."""
    *lines, last = data.split(b"\n")
    if not last:
        return lines
    try:
        json.loads(last)
    except (ValueError, RecursionError):
        _logger.warning("%s: its last line was never finished and is left out: %r", path, last[:80])
        return lines
    return [*lines, last]


def mend_lines(file: FileIO, path: Path) -> list[bytes]:
    """Return the lines of a file without their ends, and bring it to the end of one, where the next may begin."""
    file.seek(0)
    data = file.readall()
    lines = whole_lines(data, path)
    num_kept = sum(len(line) + 1 for line in lines)
    if num_kept > len(data):
        append_lines(file, b"\n")
    elif num_kept < len(data):
        file.truncate(num_kept)
    return lines


def replace_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Put lines in the place of a file's, all or none; who has it open must open it again."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as file:
        file.writelines(line + b"\n" for line in lines)
    part.replace(path)


def _finite(value: Any, place: str, reasons: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        reasons[place] = str(value)
        return None
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value).items()
        return {name: _finite(item, f"{place}.{name}".lstrip("."), reasons) for name, item in items}
    if isinstance(value, list | tuple):
        items = enumerate(cast("list[Any]", value))
        return [_finite(item, f"{place}.{number}".lstrip("."), reasons) for number, item in items]
    return value
