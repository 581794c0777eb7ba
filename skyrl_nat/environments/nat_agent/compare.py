"""Equality of plain JSON values outside the sandbox: exact types, a tolerance for floats only."""

import ast
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

ABSOLUTE_TOLERANCE = 1e-6
RELATIVE_TOLERANCE = 1e-9
EXACT: Mapping[str, Any] = {"kind": "exact"}


def is_same(expected: Any, found: Any, rule: Mapping[str, Any] = EXACT) -> bool:
    """Return whether two JSON values are the same; True is not 1 and 1 is not 1.0.

    Args:
        expected: The right value.
        found: What was answered.
        rule: `{"kind": "exact"}`, `{"kind": "float", "abs_tol", "rel_tol"}` for wider tolerances, or
            `{"kind": "unordered"}` for lists whose order says nothing.
    """
    if type(expected) is not type(found):
        return False
    if isinstance(expected, float):
        if not (math.isfinite(expected) and math.isfinite(found)):
            return False
        relative, absolute = rule.get("rel_tol", RELATIVE_TOLERANCE), rule.get("abs_tol", ABSOLUTE_TOLERANCE)
        return math.isclose(expected, found, rel_tol=relative, abs_tol=absolute)
    if isinstance(expected, list):
        if rule["kind"] == "unordered":
            expected, found = sorted(expected, key=_order), sorted(found, key=_order)
        return len(expected) == len(found) and all(is_same(*pair, rule) for pair in zip(expected, found, strict=True))
    if isinstance(expected, dict):
        return expected.keys() == found.keys() and all(is_same(expected[key], found[key], rule) for key in expected)
    return bool(expected == found)


def is_same_text(expected: Any, text: Any, rule: Mapping[str, Any] = EXACT) -> bool:
    """Return whether a text says a value, as protocols that carry only text do (MCP)."""
    if not isinstance(text, str):
        return False
    if isinstance(expected, str):
        return expected == text
    for read in (json.loads, ast.literal_eval):
        try:
            return is_same(expected, read(text), rule)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    return False


def _order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def share_above_constant(is_right: Sequence[bool], expected: Sequence[Any]) -> float:
    """Return the share of right answers, measured from what the best constant answer would get.

    With `s` the share that is right and `c` that of the commonest expected output:
    `max(0, (s - c) / (1 - c))`. So a tool that answers "True" to everything earns nothing.
    With only one distinct expected output it is `s` itself.

    Args:
        is_right: One value per case; not empty.
        expected: The right outputs, in the same order.
    """
    share = sum(is_right) / len(is_right)
    constant = max(Counter(map(repr, expected)).values()) / len(expected)
    if constant == 1.0:
        return share
    return max(0.0, (share - constant) / (1.0 - constant))
