"""What the learned reward sees of a trace: numbers that need neither a sandbox nor a model."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass

from skyrl_nat.data.traces.asked_format import format_kept
from skyrl_nat.data.traces.code_pieces import answer_texts, python_pieces
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.rewards import syntax, tool_success

NEUTRAL = 0.5
"""Value of a share that does not apply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One number of a trace; always finite."""

    name: str
    about: str
    of: Callable[[Trace], float]


def feature_values(trace: Trace) -> list[float]:
    """Return the numbers of a trace in the order of `FEATURES`."""
    return [feature.of(trace) for feature in FEATURES]


def feature_table() -> str:
    """Return the features as a Markdown table."""
    rows = [f"| `{feature.name}` | {feature.about} |" for feature in FEATURES]
    return "\n".join(["| feature | what it is |", "|---|---|", *rows])


def _tools(trace: Trace) -> list[TraceStep]:
    return [step for step in trace.steps if step.kind is StepKind.tool]


def _tokens(trace: Trace) -> float:
    return _log(sum(step.num_completion_tokens or 0 for step in trace.steps))


def _num_chars(trace: Trace, kind: StepKind) -> float:
    return _log(sum(len(step.text) for step in trace.steps if step.kind is kind))


def _answer_chars(trace: Trace) -> float:
    return _log(len(answer_texts(trace)[-1]) if answer_texts(trace) else 0)


def _repeated_calls(trace: Trace) -> float:
    calls = [(step.tool, json.dumps(step.arguments, sort_keys=True, default=str)) for step in _tools(trace)]
    return 1 - len(set(calls)) / len(calls) if calls else 0.0


def _ends_with_error(trace: Trace) -> float:
    tools = _tools(trace)
    return float(bool(tools) and tools[-1].is_error)


def _ends_with_answer(trace: Trace) -> float:
    return float(bool(trace.steps) and trace.steps[-1].kind is StepKind.message and trace.steps[-1].role == "assistant")


def _log(value: float | None) -> float:
    """Return log(1 + value); 0 for what is missing, negative or not finite."""
    return math.log1p(value) if value is not None and math.isfinite(value) and value > 0 else 0.0


def _share(value: float | None) -> float:
    return NEUTRAL if value is None else value


def _feature(name: str, about: str, of: Callable[[Trace], float]) -> Feature:
    return Feature(name=name, about=about, of=of)


FEATURES = (
    _feature("num_steps", "log(1 + steps)", lambda t: _log(len(t.steps))),
    _feature("num_tools", "log(1 + tool calls)", lambda t: _log(len(_tools(t)))),
    _feature("num_errors", "log(1 + tool calls that failed)", lambda t: _log(sum(s.is_error for s in _tools(t)))),
    _feature("repeated_calls", "share of tool calls equal to an earlier one", _repeated_calls),
    _feature("ends_with_error", "1 where the last tool call failed", _ends_with_error),
    _feature("ends_with_answer", "1 where the agent had the last word", _ends_with_answer),
    _feature("request_chars", "log(1 + characters of the request)", lambda t: _log(len(t.request))),
    _feature("answer_chars", "log(1 + characters of the last answer)", _answer_chars),
    _feature("message_chars", "log(1 + characters of all messages)", lambda t: _num_chars(t, StepKind.message)),
    _feature("reasoning_chars", "log(1 + characters of all reasoning)", lambda t: _num_chars(t, StepKind.reasoning)),
    _feature("tokens", "log(1 + tokens that the agent wrote); 0 where not recorded", _tokens),
    _feature("seconds", "log(1 + wall clock in s); 0 where not recorded", lambda t: _log(t.seconds)),
    _feature("num_files", "log(1 + files left behind)", lambda t: _log(len(t.files))),
    _feature("num_code", "log(1 + pieces of Python)", lambda t: _log(len(python_pieces(t)))),
    _feature("succeeded", "1 where the outcome is success", lambda t: float(t.outcome is TraceOutcome.success)),
    _feature("failed", "1 where it is failure", lambda t: float(t.outcome is TraceOutcome.failure)),
    _feature("broke_off", "1 where it is error", lambda t: float(t.outcome is TraceOutcome.error)),
    _feature("syntax", "the reward part; 0.5 where it does not apply", lambda t: _share(syntax(t))),
    _feature("tool_success", "the reward part; 0.5 where it does not apply", lambda t: _share(tool_success(t))),
    _feature("format", "the reward part; 0.5 where it does not apply", lambda t: _share(format_kept(t))),
    _feature("has_format", "1 where a form was asked for", lambda t: float(format_kept(t) is not None)),
)
"""`num_code` and `num_tools` are 0 exactly where `syntax` and `tool_success` do not apply."""
