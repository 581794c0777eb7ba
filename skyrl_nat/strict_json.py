"""JSON as the standard has it: Python's reader takes NaN and infinities too, which no other reader does."""

import json
from typing import Any, NoReturn


def parse_json(text: str | bytes) -> Any:
    """Return the value of JSON text.

    Raises:
        ValueError: It is no JSON, or holds NaN or an infinity.
        RecursionError: It nests too deeply.
    """
    return json.loads(text, parse_constant=refuse_constant)


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and infinities, for readers of their own."""
    raise ValueError(f"{name} is no JSON number")
