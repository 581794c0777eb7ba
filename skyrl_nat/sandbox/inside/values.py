"""What leaves a job: plain JSON of bounded size, with exact types. Stdlib only."""

import json
import math
from typing import Any

MAX_VALUE_CHARS = 20_000
MAX_DEPTH = 12
MAX_INT_BITS = 200


def encode(value: Any) -> Any:
    """Return a value as plain JSON; what is not exactly a JSON type becomes `{"$foreign": type name}`.

    Exact types, because a subclass may compare equal to everything.
    """
    encoded = _encode(value, 0)
    if len(json.dumps(encoded)) > MAX_VALUE_CHARS:
        return {"$foreign": "longer than allowed"}
    return encoded


def _encode(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int and value.bit_length() < MAX_INT_BITS:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is list and depth < MAX_DEPTH:
        return [_encode(item, depth + 1) for item in value]
    if kind is dict and depth < MAX_DEPTH and all(type(key) is str for key in value):
        return {key: _encode(item, depth + 1) for key, item in value.items()}
    return {"$foreign": kind.__name__[:60]}


def describe(error: BaseException) -> str:
    """Return class and message, short."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - the policy may have written the exception
        text = ""
    return f"{type(error).__name__}: {text}"[:400]


def error_report(error: BaseException) -> dict:
    """Return what an exception says and the classes that it is one of."""
    names = [cls.__name__ for cls in type(error).__mro__]
    if "ValidationError" in names:  # pydantic's is a ValueError, but the tool did not raise it
        names = ["ValidationError"]
    return {"error": describe(error), "raised": names}
