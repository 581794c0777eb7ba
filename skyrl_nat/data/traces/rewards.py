"""Rewards of a trace: parts in [0, 1] that may not apply, and a rubric over those that do."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from skyrl_nat.config.checks import require, require_positive
from skyrl_nat.data.traces.asked_format import format_kept
from skyrl_nat.data.traces.code_pieces import python_pieces
from skyrl_nat.data.traces.execution import Executes
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome
from skyrl_nat.data.traces.verdicts import PARTS
from skyrl_nat.environments.nat_agent.patterns import parse_python
from skyrl_nat.rewards.rubric import Rubric
from skyrl_nat.sandbox.base import Sandbox

if TYPE_CHECKING:
    from skyrl_nat.data.traces.learned import LearnedReward

Part = Callable[[Trace], float | None]
"""A part of the reward: in [0, 1], or None where it does not apply to the trace."""
DEFAULT_WEIGHTS = {
    "executes": 0.25,
    "syntax": 0.1,
    "tool_success": 0.15,
    "completion": 0.25,
    "efficiency": 0.05,
    "format": 0.1,
    "learned": 0.1,
}
DOES_NOT_APPLY = "does not apply"
_logger = logging.getLogger(__name__)


@dataclass(kw_only=True, slots=True)
class TraceRewardConfig:
    """How traces are rewarded."""

    weights: dict[str, float] = field(default_factory=dict[str, float])
    """Weights by part, over `DEFAULT_WEIGHTS`; 0 switches a part off. Divided by the sum of those that apply."""
    max_steps: int = 50
    """Steps of the agent at which the efficiency of steps is 0."""
    max_tokens: int = 50_000
    """Tokens written by the agent at which the efficiency of tokens is 0."""
    code_timeout_s: float = 10.0
    """Wall-clock limit of one piece of code."""
    max_pieces: int = 20
    """Pieces of code of one trace that are run."""

    def __post_init__(self) -> None:
        require_positive(self, "traces.rewards", "max_steps", "max_tokens", "code_timeout_s", "max_pieces")
        require(
            math.isfinite(self.code_timeout_s),
            "traces.rewards.code_timeout_s",
            "be a finite number",
            self.code_timeout_s,
            "The default is 10.",
        )
        for name, weight in self.weights.items():
            path = f"traces.rewards.weights.{name}"
            require(name in DEFAULT_WEIGHTS, path, f"be one of {', '.join(DEFAULT_WEIGHTS)}", name, "Rename it.")
            is_weight = isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight < math.inf
            require(is_weight, path, "be a finite number >= 0", weight, "Use 0 to switch the part off.")
        total = sum(self.all_weights().values())
        require(total > 0, "traces.rewards.weights", "leave one weight above 0", self.weights, "Raise one.")

    def all_weights(self) -> dict[str, float]:
        """Return the weight of every part."""
        return {**DEFAULT_WEIGHTS, **self.weights}


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceScore:
    """The reward of one trace."""

    reward: float | None
    """Weighted mean of the parts; None where none applies."""
    parts: dict[str, float]
    left_out: dict[str, str]
    """Part -> why it is not among them."""


class TraceScorer:
    """The parts with a weight, and the rubric over them. Thread-safe where the sandbox is."""

    def __init__(
        self, config: TraceRewardConfig, *, sandbox: Sandbox | None = None, learned: "LearnedReward | None" = None
    ) -> None:
        """Take what the parts need.

        Args:
            config: Weights and limits.
            sandbox: For `executes`, which is left out without one; stays its owner's to close.
            learned: For `learned`, which is left out without one.
        """
        self._rubric = Rubric(weights={name: weight for name, weight in config.all_weights().items() if weight > 0})
        self._executes = None
        if sandbox is not None:
            self._executes = Executes(sandbox, timeout_s=config.code_timeout_s, max_pieces=config.max_pieces)
        offered: dict[str, Part | None] = {
            "executes": self._executes,
            "syntax": syntax,
            "tool_success": tool_success,
            "completion": completion,
            "efficiency": lambda trace: efficiency(trace, max_steps=config.max_steps, max_tokens=config.max_tokens),
            "format": format_kept,
            "learned": learned,
        }
        self._parts = {name: offered[name] for name in self._rubric.weights}

    def score(self, trace: Trace) -> TraceScore:
        """Return the reward of a trace with its parts."""
        values = {name: part(trace) if part else None for name, part in self._parts.items()}
        reasons = {name: _reason(values[name]) if part else "not set up" for name, part in self._parts.items()}
        if self._executes and trace.trace_id in self._executes.failures:
            reasons["executes"] = f"infrastructure: {self._executes.failures[trace.trace_id]}"
        return combine(self._rubric, values, {name: reason for name, reason in reasons.items() if reason})

    def apply(self, trace: Trace) -> Trace:
        """Return a trace with its reward and its parts; one that was rewarded before keeps that reward."""
        score = self.score(trace)
        reward = score.reward if trace.reward is None else trace.reward
        return replace(trace, reward=reward, labels={**trace.labels, PARTS: score.parts})


def combine(rubric: Rubric, values: Mapping[str, Any], left_out: Mapping[str, str]) -> TraceScore:
    """Return the weighted mean of the values that are numbers in [0, 1]; `left_out` says why others are not."""
    reasons = {name: left_out.get(name, "") or _reason(value) for name, value in values.items()}
    parts = {name: float(value) for name, value in values.items() if not reasons[name]}
    missing = {name: reason for name, reason in reasons.items() if reason}
    for name, reason in missing.items():
        if reason.startswith("not a number"):
            _logger.warning("the reward part %s is left out: %s", name, reason)
    return TraceScore(reward=rubric.score(parts).total if parts else None, parts=parts, left_out=missing)


def syntax(trace: Trace) -> float | None:
    """Return the share of the pieces of Python that parse; None where there are none."""
    pieces = python_pieces(trace)
    return sum(parses(piece.source) for piece in pieces) / len(pieces) if pieces else None


def tool_success(trace: Trace) -> float | None:
    """Return the share of tool calls without an error; None where no tool was called."""
    errors = [step.is_error for step in trace.steps if step.kind is StepKind.tool]
    return errors.count(False) / len(errors) if errors else None


def completion(trace: Trace) -> float | None:
    """Return 1 for success, 0 for failure and error, None where nobody has said."""
    return None if trace.outcome is TraceOutcome.unknown else float(trace.outcome is TraceOutcome.success)


def efficiency(trace: Trace, *, max_steps: int, max_tokens: int) -> float | None:
    """Return how far a trace stayed below its limits: the mean of `max(0, 1 - used / limit)` for steps and for tokens.

    Steps are what the agent said, thought and called. Tokens are those it wrote, as far as they were recorded; where
    none were, steps alone count. More of either never gives more. None where the agent did nothing.
    """
    steps = [step for step in trace.steps if step.kind is not StepKind.message or step.role == "assistant"]
    if not steps:
        return None
    tokens = [step.num_completion_tokens for step in steps if step.num_completion_tokens is not None]
    shares = [len(steps) / max_steps, *([sum(tokens) / max_tokens] if tokens else [])]
    return sum(max(0.0, 1.0 - share) for share in shares) / len(shares)


def parses(source: str) -> bool:
    """Return whether a text is Python."""
    try:
        parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _reason(value: Any) -> str:
    """Return why a value cannot enter the rubric; empty where it can."""
    if value is None:
        return DOES_NOT_APPLY
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return "" if is_number else f"not a number in [0, 1]: {value!r}"
