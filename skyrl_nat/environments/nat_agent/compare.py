"""Equality of plain JSON values outside the sandbox: exact types, a tolerance for floats only."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

ABSOLUTE_TOLERANCE = 1e-6
RELATIVE_TOLERANCE = 1e-9


def is_same(expected: Any, found: Any) -> bool:
    """Return whether two JSON values are the same; True is not 1 and 1 is not 1.0."""
    if type(expected) is not type(found):
        return False
    if isinstance(expected, float):
        if not (math.isfinite(expected) and math.isfinite(found)):
            return False
        return math.isclose(expected, found, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    if isinstance(expected, list):
        return len(expected) == len(found) and all(map(is_same, expected, found))
    if isinstance(expected, dict):
        return expected.keys() == found.keys() and all(is_same(expected[key], found[key]) for key in expected)
    return bool(expected == found)


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
