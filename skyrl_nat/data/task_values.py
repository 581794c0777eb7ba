"""One value of a task file at a time: what it must be, and the plain Python value it becomes."""

import math
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from skyrl_nat.data.task_schema import is_list, is_text, stored_kind
from skyrl_nat.strict_json import parse_json

MAX_EXACT = 2**53
"""Beyond it a float no longer holds every integer."""
_NUMBER_THAT_WAS_A_FLOAT = re.compile(r"[+-]?\d+\.0+|[+-]?\d+(\.\d+)?[eE][+-]?\d+|[nN]a[nN]|<NA>|None")
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class SurrogateMender:
    """Puts U+FFFD in the place of lone surrogates, which no UTF-8 file can hold, and counts them."""

    def __init__(self) -> None:
        """Start at none."""
        self.count = 0

    def text(self, text: str) -> str:
        """Return a text without lone surrogates; two that make a pair become the character that they stand for."""
        if not _SURROGATE.search(text):
            return text
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        mended, count = _SURROGATE.subn("\ufffd", joined)
        self.count += count
        return mended

    def value(self, value: Any) -> Any:
        """Return a JSON value with all its texts and keys mended.

        Raises:
            ValueError: A key is no text, or two keys become one.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if not isinstance(value, dict):
            return value
        wrong = [key for key in value if not isinstance(key, str)]
        if wrong:
            raise ValueError(f"keys must be text, got {wrong[0]!r}")
        mended = {self.text(key): self.value(item) for key, item in value.items()}
        if len(mended) < len(value):
            raise ValueError("two keys differ in lone surrogates only")
        return mended


def exact_id(value: Any) -> str:
    """Return a task id as text; an integer keeps all its digits.

    Raises:
        ValueError: There is none, or it went through a float.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = filled_text(value)
    if _NUMBER_THAT_WAS_A_FLOAT.fullmatch(text):
        raise ValueError(f"must be an id that never was a float, got {text!r}: write integers or text")
    return text


def filled_text(value: Any) -> str:
    """Return a text that is not empty.

    Raises:
        ValueError: It is missing, empty or no text.
    """
    if value is None or value == "":
        raise ValueError("must not be empty")
    if not isinstance(value, str):
        raise ValueError(f"must be text, got {value!r}")
    return value


def level(value: Any) -> int:
    """Return a difficulty; a whole number that came back as float is taken.

    Raises:
        ValueError: It is missing, no whole number that a float can hold exactly, or outside of 1..5.
    """
    if value is None:
        raise ValueError("must not be empty")
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_EXACT:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"must be a whole number, got {value!r}")
    if not 1 <= value <= 5:
        raise ValueError(f"must be in 1..5, got {value}")
    return value


def json_reader(kind: pa.DataType, mender: SurrogateMender) -> Callable[[Any], Any]:
    """Return what turns a value of a JSON, struct, map or list column into a plain value."""
    if is_text(stored_kind(kind)) or pa.types.is_null(kind):
        return lambda text: _parse(text, mender)
    return lambda value: plain(value, kind, "")


def json_object(value: Any) -> dict[str, Any]:
    """Return a payload.

    Raises:
        ValueError: It is something else than an object.
    """
    if not isinstance(value, dict):
        raise ValueError(f"must be a JSON object, got {type(value).__name__}")
    return value


def plain(value: Any, kind: pa.DataType, path: str) -> Any:
    """Return a nested value as JSON has it.

    The rule for nulls: a struct gives every row the union of all rows' fields and fills them with null, so that a
    field that is null is left out, at every depth, and likewise in a map; a null inside a list stays. Where null is to
    be kept as a value, the column must be JSON text.

    Args:
        value: As `to_pylist` gives it.
        kind: Its type; a field that it declares as required must not be null.
        path: Where the value is, for the message: `.messages[1].content`.

    Raises:
        ValueError: With the path, where a required value is null or JSON has no such value.
    """
    kind = stored_kind(kind)
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = [(field, f"{path}.{field.name}") for field in kind]
        found = ((field.name, _required(value[field.name], field, place)) for field, place in fields)
        return {name: item for name, item in found if item is not None}
    if pa.types.is_map(kind):
        items = ((key, _required(item, kind.item_field, f"{path}.{key}")) for key, item in value)
        return json_object({filled_text(key): item for key, item in items if item is not None})
    if is_list(kind):
        return [_required(item, kind.value_field, f"{path}[{number}]") for number, item in enumerate(value)]
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"must hold JSON values, got {value!r} at {path}: store it as text")
    return value


def _required(value: Any, field: pa.Field, path: str) -> Any:
    if value is None and not field.nullable:
        raise ValueError(f"must have no null where one is declared as required, got one at {path}")
    return plain(value, field.type, path)


def _parse(text: Any, mender: SurrogateMender) -> Any:
    if text is None:
        raise ValueError("must not be empty")
    try:
        value = parse_json(text)
        return mender.value(value) if _ESCAPED_SURROGATE.search(text) else value
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON text: {error}") from error
