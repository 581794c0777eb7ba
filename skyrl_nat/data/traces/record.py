"""What a trace is: one recorded execution of an agent, from the request to the outcome."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StepKind(StrEnum):
    """What happened in one step."""

    message = "message"
    """Somebody said something: `role` and `text`."""
    reasoning = "reasoning"
    """The model thought aloud; not part of what it said."""
    tool = "tool"
    """A tool was called: `tool`, `arguments`, then `text` is what it answered."""


class TraceOutcome(StrEnum):
    """How an execution ended."""

    success = "success"
    failure = "failure"
    """It came to its end and did not do what was asked."""
    error = "error"
    """It did not come to its end."""
    unknown = "unknown"
    """Nobody has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One thing that happened."""

    kind: StepKind
    role: str = "assistant"
    """`system`, `user`, `assistant` or `tool`."""
    text: str = ""
    tool: str = ""
    """Name of the tool called; empty for messages and reasoning."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    is_error: bool = False
    """Whether the tool failed."""
    seconds: float | None = None
    """Wall clock; None where it was not recorded."""
    num_prompt_tokens: int | None = None
    num_completion_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One recorded execution."""

    trace_id: str
    """Unique; the same execution recorded twice has one id (see each collector)."""
    source: str
    """Where it comes from: `hook`, `openhands`, `nat`, `chat` or `checkpoint`."""
    request: str
    """What was asked for."""
    steps: tuple[TraceStep, ...]
    outcome: TraceOutcome = TraceOutcome.unknown
    reward: float | None = None
    """In [0, 1] where something judged it; None is not 0."""
    started_at: str = ""
    """UTC, ISO 8601; empty where it is unknown."""
    seconds: float | None = None
    agent: str = ""
    model: str = ""
    task_id: str = ""
    """The task it belongs to, where the request is one of ours: traces of one task form a group."""
    files: dict[str, str] = field(default_factory=dict[str, str])
    """What the execution left behind, path -> text."""
    labels: dict[str, Any] = field(default_factory=dict[str, Any])
    """What people or rewards said of it: `label`, `suggested_label`, `parts`."""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """Further JSON values."""
