"""Manual labels: a file to which lines are only ever added, so that who said what and when is never lost."""

import contextlib
import fcntl
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import IO

from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.verdicts import LABEL
from skyrl_nat.errors import DataError
from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines, whole_lines

_logger = logging.getLogger(__name__)


class Mark(StrEnum):
    """What somebody did with a trace."""

    good = "good"
    bad = "bad"
    skip = "skip"
    """Looked at, no label given."""
    undo = "undo"
    """Takes back the mark before it that still stands, of the same trace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelEvent:
    """One line of the file."""

    trace_id: str
    mark: Mark
    by: str
    at: str
    """UTC, ISO 8601."""


class LabelFile:
    """Labels by trace: the last mark that was not undone wins. Several processes may write to one file."""

    def __init__(self, path: Path) -> None:
        """Take the file, which is made with the first mark."""
        self._path = path

    def add(self, trace_id: str, mark: Mark, *, by: str) -> LabelEvent:
        """Write a mark to the disk.

        Raises:
            DataError: There is nothing to undo, or the file holds something that is no mark.
        """
        with open_lines(self._path) as file, _locked(file):
            standing = _standing(_events(mend_lines(file, self._path), self._path))
            if mark is Mark.undo and trace_id not in standing:
                raise DataError(f"There must be a mark to undo, but {trace_id} has none that stands. Mark it first")
            event = LabelEvent(trace_id=trace_id, mark=mark, by=by, at=datetime.now(UTC).isoformat())
            append_lines(file, encode_line(asdict(event)), is_synced=True)
        return event

    def events(self) -> list[LabelEvent]:
        """Return every line, undone marks too.

        Raises:
            DataError: A line is no mark, named by its number.
        """
        if not self._path.exists():
            return []
        return _events(whole_lines(self._path.read_bytes(), self._path), self._path)

    def marks(self) -> dict[str, LabelEvent]:
        """Return the mark that stands, by trace."""
        return {trace_id: marks[-1] for trace_id, marks in _standing(self.events()).items()}

    def labels(self) -> dict[str, bool]:
        """Return good as True and bad as False, by trace; those that were skipped are not among them."""
        marks = self.marks().items()
        return {trace_id: event.mark is Mark.good for trace_id, event in marks if event.mark is not Mark.skip}


def apply_labels(traces: Iterable[Trace], labels: Mapping[str, bool]) -> list[Trace]:
    """Return traces with their manual labels; what else was said of them stays."""
    traces = list(traces)
    if homeless := set(labels) - {trace.trace_id for trace in traces}:
        _logger.warning("%d of %d labels belong to none of the %d traces", len(homeless), len(labels), len(traces))
    return [
        replace(trace, labels={**trace.labels, LABEL: labels[trace.trace_id]}) if trace.trace_id in labels else trace
        for trace in traces
    ]


@contextlib.contextmanager
def _locked(file: IO[bytes]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _events(lines: list[bytes], path: Path) -> list[LabelEvent]:
    events = list[LabelEvent]()
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            event = LabelEvent(**{**values, "mark": Mark(values["mark"])})
            if not all(isinstance(value, str) for value in values.values()):
                raise TypeError("all values must be text")
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise DataError(f"{path}: line {number} must be a mark, got {line[:80]!r} ({error}). Repair it") from error
        events.append(event)
    return events


def _standing(events: Iterable[LabelEvent]) -> dict[str, list[LabelEvent]]:
    """Return the marks that were not undone, oldest first, of every trace that has one."""
    standing: dict[str, list[LabelEvent]] = {}
    for event in events:
        marks = standing.setdefault(event.trace_id, [])
        if event.mark is not Mark.undo:
            marks.append(event)
        elif marks:
            marks.pop()
    return {trace_id: marks for trace_id, marks in standing.items() if marks}
