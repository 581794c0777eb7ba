"""`metrics.jsonl` as columns over steps."""

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.json_lines import NOT_FINITE, whole_lines
from skyrl_nat.service.run_folders import RunFolder

MARK = "step"


@dataclass(slots=True)
class MetricTable:
    """Metrics by step. Lines of one step are merged, the later one counts."""

    rows: dict[int, dict[str, float | None]] = field(default_factory=dict[int, dict[str, float | None]])
    reasons: dict[str, dict[int, str]] = field(default_factory=dict[str, dict[int, str]])
    """Key -> step -> `nan`, `inf` or `-inf`, where a number was none."""

    @property
    def steps(self) -> list[int]:
        """All steps, ascending."""
        return sorted(self.rows)

    def names(self) -> list[str]:
        """Return all names, sorted."""
        return sorted({key for row in self.rows.values() for key in row})

    def series(self, keys: Sequence[str], steps: Sequence[int]) -> dict[str, list[float | None]]:
        """Return one list per key, with None where a step has no number."""
        return {key: [self.rows[step].get(key) for step in steps] for key in keys}

    def not_finite(self, keys: Sequence[str]) -> dict[str, dict[int, str]]:
        """Return why some are None."""
        return {key: self.reasons[key] for key in keys if key in self.reasons}

    def last(self) -> dict[str, float]:
        """Return the newest number of every metric."""
        found: dict[str, float] = {}
        for step in self.steps:
            found |= {key: value for key, value in self.rows[step].items() if value is not None}
        return found

    def add(self, record: dict[str, Any]) -> None:
        """Take one line; what is no number is left out."""
        step = record.get(MARK)
        if not isinstance(step, int) or isinstance(step, bool):
            return
        row = self.rows.setdefault(step, {})
        known = record.get(NOT_FINITE)
        known = known if isinstance(known, dict) else {}
        for key, value in record.items():
            if key in (MARK, NOT_FINITE) or isinstance(value, bool) or not isinstance(value, int | float | None):
                continue
            is_finite = value is not None and math.isfinite(value)
            row[key] = value if is_finite else None
            if not is_finite:
                self.reasons.setdefault(key, {})[step] = str(known.get(key, value))


def read_metrics(run: RunFolder) -> MetricTable:
    """Return the metrics of a run; empty before its first step."""
    path = run.file("metrics.jsonl")
    if path is None:
        return MetricTable()
    found = path.stat()
    return _read(path, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=16)
def _read(path: Path, changed: int, size: int) -> MetricTable:
    """Read the file as it was at that time: it only grows, so that time and size name its content."""
    del changed, size
    table = MetricTable()
    for line in whole_lines(path.read_bytes(), path):
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            table.add(record)
    return table
