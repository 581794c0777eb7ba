"""What a collector brings home: traces, and what it left out and why."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.record_json import record_of, trace_of
from skyrl_nat.errors import DataError
from skyrl_nat.strict_json import parse_json

TORN_LINE = "torn last line"
NO_JSON = "line that is no JSON"
BROKEN = (DataError, KeyError, TypeError, AttributeError, ValueError, OverflowError, OSError)
"""What reading a value raises that is not made as its format says."""
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Collected:
    """Traces in the order in which they were found."""

    traces: list[Trace] = field(default_factory=list[Trace])
    left_out: Counter[str] = field(default_factory=Counter[str])
    """What was left out -> how often."""
    first_places: dict[str, str] = field(default_factory=dict[str, str])
    """What was left out -> where it was first."""

    def is_whole(self, trace: Trace, place: str) -> bool:
        """Whether every field has the type that the record says; else the trace is counted as left out."""
        try:
            trace_of(record_of(trace), place)
        except BROKEN as error:
            self.leave_out("trace with a broken field", str(error))
            return False
        return True

    def add(self, trace: Trace, place: str) -> None:
        """Take a trace, if it is whole."""
        if self.is_whole(trace, place):
            self.traces.append(trace)

    def leave_out(self, what: str, place: str) -> None:
        """Count something that became no part of a trace."""
        self.left_out[what] += 1
        self.first_places.setdefault(what, place)

    def say(self) -> "Collected":
        """Log what was left out, if anything was; returns itself."""
        if self.left_out:
            said = (f"{number} x {what} (first: {self.first_places[what]})" for what, number in self.left_out.items())
            _logger.warning("%d traces collected, left out: %s", len(self.traces), "; ".join(said))
        return self


def read_json_lines(path: Path, collected: Collected) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each line; lines that are no JSON are left out and counted.

    Raises:
        DataError: The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                place = f"{path}, line {number}"
                try:
                    value = parse_json(line.decode("utf-8-sig"))
                except (ValueError, RecursionError):
                    collected.leave_out(NO_JSON if line.endswith(b"\n") else TORN_LINE, place)
                    continue
                yield place, value
    except OSError as error:
        raise DataError(f"{path} must be a file that can be read, but: {error}. Check the path") from error


def text_of(content: Any, collected: Collected, place: str) -> str:
    """Return the text of a message's content: text, or parts of which those that are no text are counted."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise DataError(f"{place}: content must be text or a list of parts, got {content!r:.60}. Mend the message")
    texts: list[str] = []
    for part in content:
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
        else:
            kind = part.get("type", "?") if isinstance(part, dict) else type(part).__name__
            collected.leave_out(f"part of kind {kind}", place)
    return "\n".join(texts)
