"""From what somebody wrote down to good or bad: labels and rewards are read strictly, never by truthiness."""

import math
import re
from dataclasses import dataclass
from typing import Any

from skyrl_nat.data.traces.record import Trace
from skyrl_nat.errors import DataError

LABEL = "label"
SUGGESTED = "suggested_label"
PARTS = "parts"
TRUE_WORDS = frozenset({"true", "1", "yes", "good"})
FALSE_WORDS = frozenset({"false", "0", "no", "bad"})
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is held of one trace."""

    is_good: bool | None
    """None where nothing usable was said."""
    reason: str
    """`label`, `reward`, or why there is no verdict."""


def parse_label(value: Any) -> bool:
    """Return a label as bool: `True`, `False`, 1, 0, or one of the words true/false, 1/0, yes/no, good/bad.

    Words are compared without case and surrounding blanks. `bool("False")` is True, which is why it is not used.

    Raises:
        DataError: It is anything else, None among them: "not labelled" is the absence of the key.
    """
    if isinstance(value, bool) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in TRUE_WORDS | FALSE_WORDS:
        return word in TRUE_WORDS
    raise DataError(
        f"A label must be true or false, 1 or 0, yes or no, good or bad, got {value!r}. Correct it, or remove it "
        "where the trace has none"
    )


def parse_reward(value: Any) -> tuple[float | None, str]:
    """Return a reward and an empty text, or None and why it cannot be used.

    A text is converted where the whole of it is a decimal number (`"0.7"`, `" 1 "`, `"5e-1"`); `"nan"`, `"70 %"`
    or `"0,7"` are not. Truth values are labels, not rewards.
    """
    if value is None:
        return None, "no reward"
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, "the reward is no number"
    if not math.isfinite(value):
        return None, "the reward is NaN" if math.isnan(value) else "the reward is infinite"
    return (float(value), "") if 0 <= value <= 1 else (None, "the reward is outside [0, 1]")


def label_of(trace: Trace, key: str = LABEL) -> bool | None:
    """Return a label of a trace; None where there is none.

    Raises:
        DataError: It is no label.
    """
    if key not in trace.labels:
        return None
    try:
        return parse_label(trace.labels[key])
    except DataError as error:
        raise DataError(f"Trace {trace.trace_id}, {key}: {error}") from error


def verdict_of(trace: Trace, *, threshold: float) -> Verdict:
    """Return whether a trace is good: its manual label, else whether its reward is at least the threshold.

    Suggested labels are never used. A reward exactly at the threshold is good.

    Raises:
        DataError: Its label is no label.
    """
    label = label_of(trace)
    if label is not None:
        return Verdict(is_good=label, reason="label")
    reward, fault = parse_reward(trace.reward)
    return Verdict(is_good=None if reward is None else reward >= threshold, reason=fault or "reward")
