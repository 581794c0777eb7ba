"""How far a run is, from the files that its trainer writes; they may grow at any moment, or be somebody else's."""

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from skyrl_nat.json_lines import with_reasons
from skyrl_nat.service.paths import inside_file

METRICS = "metrics.jsonl"
TAIL_BYTES = 128 * 1024
MAX_LINE_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class MetricsLine:
    """One line of metrics.jsonl."""

    step: int
    values: dict[str, Any]
    """Numbers that are not finite are None, `not_finite` says what they were."""
    end: int
    """Where the next line begins."""


def newest_line(root: Path, run: str) -> MetricsLine | None:
    """Return the last whole line of a run's metrics; None where there is none yet."""
    path = inside_file(root, run, METRICS)
    if path is None:
        return None
    found = deque(lines_from(path, max(0, path.stat().st_size - TAIL_BYTES)), maxlen=1)
    return found[0] if found else None


def lines_from(path: Path, offset: int) -> Iterator[MetricsLine]:
    """Yield the whole lines of a file of metrics behind an offset; what is no line of metrics is passed over."""
    with path.open("rb") as file:
        file.seek(offset)
        while line := file.readline(MAX_LINE_BYTES):
            if not line.endswith(b"\n"):
                return
            if (found := _parse(line, file.tell())) is not None:
                yield found


def _parse(line: bytes, end: int) -> MetricsLine | None:
    try:
        # As it may be written by others: with NaN, which becomes None with its reason.
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    values = cast("dict[str, Any]", value)
    step = values.get("step")
    if not isinstance(step, int) or isinstance(step, bool):
        return None
    return MetricsLine(step, with_reasons(values), end)


def log_tail(root: Path, run: str, name: str, num_lines: int) -> str | None:
    """Return the last lines of a file of a run folder; None where there is none."""
    path = inside_file(root, run, name)
    if path is None:
        return None
    with path.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - TAIL_BYTES)
        file.seek(start)
        text = file.read(TAIL_BYTES).decode("utf-8", errors="replace")
    lines = text.splitlines(keepends=True)
    if start and len(lines) > 1:
        lines = lines[1:]
    return "".join(lines[-num_lines:])
