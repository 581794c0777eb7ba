"""What a rank or an engine did since it was last asked, in seconds of the host's clock."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Activity(StrEnum):
    """What a GPU can be busy with; where two are claimed at once, the earlier one of this list counts."""

    TRAIN = "train"
    """Log-probs and optimizer steps."""
    PUSH = "push"
    """Sending or taking weights."""
    OFFLOAD = "offload"
    """Giving memory back and taking it again."""
    ROLLOUT = "rollout"
    """At least one request in flight and not paused."""


class Interval(NamedTuple):
    """One stretch of one activity; times are `time.time()`, which the processes of a node share."""

    activity: Activity
    start: float
    end: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """An answer of one rank or engine; counts are of engines, 0 elsewhere."""

    intervals: list[Interval]
    card: str = ""
    """Name of the GPU as its driver says it; empty on CPUs and where the process does not know."""
    num_prompt_tokens: int = 0
    """Of the requests that were answered, as the two below."""
    num_completion_tokens: int = 0
    num_context_tokens: int = 0
    """Tokens whose keys and values were read: for each sampled token, all that come before it."""
    request_s: float = 0.0
    """Requests in flight times seconds, pauses left out: divided by the busy seconds, the mean batch."""


class ActivityLog:
    """Notes the intervals of one process."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """Start with nothing noted; `now` is replaced in tests."""
        self._now = now
        self._intervals: list[Interval] = []

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Note how long the block takes, also if it fails."""
        start = self._now()
        try:
            yield
        finally:
            self._note(activity, start, self._now())

    def take(self) -> Usage:
        """Return what was noted and forget it."""
        intervals, self._intervals = self._intervals, []
        return Usage(intervals=intervals)

    def _note(self, activity: Activity, start: float, end: float) -> None:
        last = self._intervals[-1] if self._intervals else None
        if last is not None and (last.activity, last.end) == (activity, start):
            self._intervals[-1] = last._replace(end=end)
        else:
            self._intervals.append(Interval(activity, start, end))
