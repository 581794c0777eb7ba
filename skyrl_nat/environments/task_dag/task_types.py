"""What kinds of tasks there are, how long they take and how often they fail."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """One kind of task."""

    hours: float
    """Duration as planned."""
    failure_rate: float
    """Probability that it fails, in [0, 1]."""
    spread: float = 0.2
    """The real duration is drawn between `1 - spread` and `1 + spread` times the planned one."""


GROUP = "group"
"""Holds other tasks. Nobody can do one that was never decomposed."""
TYPES: dict[str, TaskType] = {
    "research": TaskType(hours=3, failure_rate=0.04),
    "design": TaskType(hours=2, failure_rate=0.04),
    "make": TaskType(hours=4, failure_rate=0.08),
    "test": TaskType(hours=2, failure_rate=0.06),
    "review": TaskType(hours=1, failure_rate=0.02),
    "deliver": TaskType(hours=1, failure_rate=0.04),
    GROUP: TaskType(hours=0, failure_rate=1.0, spread=0.0),
}
CALM: dict[str, TaskType] = {
    name: TaskType(hours=kind.hours, failure_rate=0.0, spread=0.0) for name, kind in TYPES.items()
}
"""The same types where everything goes as planned."""
