"""Traces as JSON, strictly: every field is there, none is unknown, each has its type."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.errors import DataError

Check = Callable[[Any, str], Any]


def record_of(trace: Trace) -> dict[str, Any]:
    """Return a trace as plain values."""
    return dataclasses.asdict(trace)


def to_json(trace: Trace) -> str:
    """Return a trace as one line of JSON.

    Raises:
        DataError: A field has another type than the record says, or a value is no JSON.
    """
    place = f"trace {trace.trace_id!r}"
    record = record_of(trace)
    trace_of(record, place)
    try:
        return json.dumps(record, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{place} must hold JSON values only: {error}. Convert them first") from error


def trace_of(record: Any, place: str) -> Trace:
    """Return the trace of a parsed line.

    Args:
        record: What `json.loads` gave.
        place: File and line, for the message.

    Raises:
        DataError: With the place and the path in it of what is wrong.
    """
    return Trace(**_check_object(record, place, "", _TRACE))


def _check_object(value: Any, place: str, path: str, checks: Mapping[str, Check]) -> dict[str, Any]:
    name = path.rstrip(".") or "the trace"
    if not isinstance(value, dict):
        _refuse(f"{place}: {name}", "an object", value)
    missing = [key for key in checks if key not in value]
    unknown = [key for key in value if key not in checks]
    if missing or unknown:
        raise DataError(
            f"{place}: {name} must have exactly the fields of the record, missing are [{', '.join(missing)}], unknown "
            f"are [{', '.join(map(str, unknown))}]. Mend or remove the line"
        )
    return {key: check(value[key], f"{place}: {path}{key}") for key, check in checks.items()}


def _refuse(place: str, wanted: str, value: Any) -> NoReturn:
    raise DataError(f"{place} must be {wanted}, got {value!r:.80}. Mend or remove the line")


def _text(value: Any, place: str) -> str:
    return value if isinstance(value, str) else _refuse(place, "text", value)


def _name(value: Any, place: str) -> str:
    return _text(value, place) or _refuse(place, "text that is not empty", value)


def _is_true(value: Any, place: str) -> bool:
    return value if isinstance(value, bool) else _refuse(place, "true or false", value)


def _number(upper: float) -> Check:
    def check(value: Any, place: str) -> float | None:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= upper and math.isfinite(value)):
            _refuse(place, f"null or a number in [0, {upper}]", value)
        return value

    return check


def _count(value: Any, place: str) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if value is None or is_count else _refuse(place, "null or a whole number >= 0", value)


def _mapping(value: Any, place: str) -> dict[str, Any]:
    is_mapping = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return value if is_mapping else _refuse(place, "an object", value)


def _files(value: Any, place: str) -> dict[str, str]:
    return {path: _text(text, f"{place}[{path!r}]") for path, text in _mapping(value, place).items()}


def _kind(value: Any, place: str) -> StepKind:
    return StepKind(value) if value in list(StepKind) else _refuse(place, f"one of {', '.join(StepKind)}", value)


def _outcome(value: Any, place: str) -> TraceOutcome:
    names = list(TraceOutcome)
    return TraceOutcome(value) if value in names else _refuse(place, f"one of {', '.join(names)}", value)


def _role(value: Any, place: str) -> str:
    return value if value in _ROLES else _refuse(place, f"one of {', '.join(_ROLES)}", value)


def _steps(value: Any, place: str) -> tuple[TraceStep, ...]:
    if not isinstance(value, (list, tuple)):
        _refuse(place, "a list", value)
    head, _, path = place.rpartition(": ")
    return tuple(TraceStep(**_check_object(step, head, f"{path}[{index}].", _STEP)) for index, step in enumerate(value))


_ROLES = ("system", "user", "assistant", "tool")
_STEP: dict[str, Check] = {
    "kind": _kind,
    "role": _role,
    "text": _text,
    "tool": _text,
    "arguments": _mapping,
    "is_error": _is_true,
    "seconds": _number(math.inf),
    "num_prompt_tokens": _count,
    "num_completion_tokens": _count,
}
_TRACE: dict[str, Check] = {
    "trace_id": _name,
    "source": _name,
    "request": _text,
    "steps": _steps,
    "outcome": _outcome,
    "reward": _number(1.0),
    "started_at": _text,
    "seconds": _number(math.inf),
    "agent": _text,
    "model": _text,
    "task_id": _text,
    "files": _files,
    "labels": _mapping,
    "metadata": _mapping,
}
