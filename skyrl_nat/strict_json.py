"""JSON as the standard has it: Python's reader takes NaN and infinities too, which no other reader does."""

import json
import math
from typing import Any, NoReturn, cast


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: It is no JSON, or holds NaN or an infinity.
        RecursionError: It nests too deeply.
    """
    return json.loads(text, parse_constant=refuse_constant)


def parse_untrusted(text: bytes, max_depth: int) -> Any:
    """Return the value of JSON text that every reader understands alike.

    Raises:
        ValueError: It is no JSON in UTF-8, holds a number too large to be one, a key twice or half of a letter, or
            nests deeper than `max_depth`.
    """
    try:
        value = json.loads(
            text.decode("utf-8"),
            parse_constant=refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_once,
        )
        _require_depth(value, max_depth)
    except RecursionError:
        raise ValueError(f"JSON must nest at most {max_depth} deep") from None
    return value


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities, for readers of their own."""
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]} is too large for a number")
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} must stand once in an object")
        found[key] = value
    return found


def _require_depth(value: Any, max_depth: int) -> None:
    level: list[Any] = [value]
    for _ in range(max_depth + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                _require_text(cast("dict[str, Any]", item).keys())
                below += cast("dict[str, Any]", item).values()
            elif isinstance(item, list):
                below += cast("list[Any]", item)
            elif isinstance(item, str):
                _require_text([item])
        if not below:
            return
        level = below
    raise ValueError(f"JSON must nest at most {max_depth} deep")


def _require_text(texts: Any) -> None:
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("text must hold whole letters, half of a surrogate pair stands alone") from error
