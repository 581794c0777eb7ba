"""Where traces are kept: JSON lines in a folder per day."""

import logging
import os
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from skyrl_nat.data.task_values import SurrogateMender
from skyrl_nat.data.traces.collected import Collected, read_json_lines
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.record_json import to_json, trace_of
from skyrl_nat.data.traces.scrub import Scrubber
from skyrl_nat.errors import DataError
from skyrl_nat.json_lines import append_lines, open_lines

REPEATED = "trace that came again"
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Written:
    """What became of a batch."""

    num_traces: int = 0
    num_surrogates: int = 0
    """Lone surrogates that became U+FFFD."""
    secrets: Counter[str] = field(default_factory=Counter[str])
    """Tag -> how many were taken out."""
    faults: list[str] = field(default_factory=list[str])
    """One sentence for each trace that could not be written."""


class TraceStore:
    """`<folder>/YYYY-MM-DD/traces-*.jsonl`, by the day on which an execution began, UTC.

    Each store object writes files of its own, so that any number of writers need no lock between them; a batch is on
    the disk when `append` returns. Of two traces with one id, the one written last wins; between writers that work at
    the same time, the one of the writer that was opened last.
    """

    def __init__(self, folder: Path, scrubber: Scrubber | None = None) -> None:
        """Take the folder, which is made with the first batch, and what takes secrets out."""
        self._folder = folder
        self._scrubber = scrubber or Scrubber()
        self._name = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        self._token = uuid.uuid4().hex[:8]
        self._lock = threading.Lock()

    def append(self, traces: Iterable[Trace]) -> Written:
        """Write traces; one that cannot be written is counted and never loses the others.

        Raises:
            OSError: The disk is full or the folder cannot be written; what was begun of the batch is taken back.
        """
        written = Written()
        lines: dict[date, list[bytes]] = defaultdict(list)
        for trace in traces:
            try:
                clean, secrets = self._scrubber.trace(trace)
                line, num_surrogates = _encode(to_json(clean))
            except (DataError, AttributeError, TypeError, RecursionError) as error:
                written.faults.append(f"{trace!r:.80}: {error!r}")
                continue
            lines[_day_of(trace)].append(line)
            written.secrets += secrets
            written.num_surrogates += num_surrogates
        for day, batch in lines.items():
            self._write(day, b"".join(batch))
            written.num_traces += len(batch)
        if written.faults:
            _logger.warning("%d traces could not be written, first: %s", len(written.faults), written.faults[0])
        if written.num_surrogates or written.secrets:
            taken = sum(written.secrets.values())
            _logger.info("%d lone surrogates became U+FFFD, %d secrets taken out", written.num_surrogates, taken)
        return written

    def read(self, first: date | None = None, last: date | None = None) -> Collected:
        """Return the traces of the days from `first` to `last`, both included, each id once.

        Raises:
            DataError: The folder is missing.
        """
        if not self._folder.is_dir():
            raise DataError(f"A trace store must be a folder, {self._folder} is none. Check the path")
        collected = Collected()
        newest: dict[str, Trace] = {}
        for path in sorted(self._folder.glob("*/traces-*.jsonl")):
            day = _parse_day(path.parent.name)
            if day is None:
                collected.leave_out("file outside a folder YYYY-MM-DD", str(path))
            elif (first or date.min) <= day <= (last or date.max):
                _read_file(path, newest, collected)
        collected.traces = list(newest.values())
        return collected.say()

    def _write(self, day: date, data: bytes) -> None:
        # The process id is asked for each time, so that a forked child writes a file of its own.
        path = self._folder / day.isoformat() / f"traces-{self._name}-{os.getpid()}-{self._token}.jsonl"
        with self._lock, open_lines(path) as file:
            append_lines(file, data, is_synced=True)


def _read_file(path: Path, newest: dict[str, Trace], collected: Collected) -> None:
    for place, record in read_json_lines(path, collected):
        try:
            trace = trace_of(record, place)
        except DataError as error:
            collected.leave_out("line that is no trace", str(error))
            continue
        if newest.pop(trace.trace_id, None) is not None:
            collected.leave_out(REPEATED, place)
        newest[trace.trace_id] = trace


def _encode(text: str) -> tuple[bytes, int]:
    """Return a line as bytes, and how many lone surrogates became U+FFFD; pairs become the one sign they mean."""
    try:
        return text.encode() + b"\n", 0
    except UnicodeEncodeError:
        mender = SurrogateMender()
        return mender.text(text).encode() + b"\n", mender.count


def _day_of(trace: Trace) -> date:
    """Return the day of the beginning, or today where it is unknown."""
    try:
        started = datetime.fromisoformat(trace.started_at)
    except ValueError:
        return datetime.now(UTC).date()
    return (started if started.tzinfo else started.replace(tzinfo=UTC)).astimezone(UTC).date()


def _parse_day(name: str) -> date | None:
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None
