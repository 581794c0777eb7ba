"""Equality of JSON values: exact types, floats by tolerance, texts by what they say."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyrl_nat.environments.nat_agent.compare import is_same, is_same_text, share_above_constant

UNORDERED = {"kind": "unordered"}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-9, 9) | st.text("ab", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xy", max_size=2), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("expected", "found", "verdict"),
    [
        (1, 1, True),
        (1, True, False),
        (True, 1, False),
        (1, 1.0, False),
        (1.0, 1, False),
        (0.1 + 0.2, 0.3, True),
        (1.0, 1.00001, False),
        (float("nan"), float("nan"), False),
        (float("inf"), float("inf"), False),
        (0.0, -0.0, True),
        ("1", 1, False),
        (None, None, True),
        (None, False, False),
        ([1, 2.0], [1, 2.0], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ([], {}, False),
        ({"a": [True]}, {"a": [True]}, True),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, {"b": 1}, False),
        (3, {"$foreign": "Any"}, False),
        (2**199 + 1, 2**199, False),
        (2**199, 2**199, True),
        (2**53, 2.0**53, False),
    ],
)
def test_equality_needs_exact_types_sb_07(expected: object, found: object, verdict: bool) -> None:
    assert is_same(expected, found) is verdict


def test_always_equal_object_is_never_asked() -> None:
    class Any(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert not is_same(3, Any(7))


@given(JSON)
def test_every_value_is_the_same_as_its_own_json(value: Any) -> None:
    assert is_same(value, json.loads(json.dumps(value)))


@given(JSON, JSON)
def test_sides_may_change_places(one: Any, other: Any) -> None:
    assert is_same(one, other) is is_same(other, one)
    assert is_same(one, other, UNORDERED) or not is_same(one, other)


def test_tolerance_of_the_rule_holds_for_floats_alone() -> None:
    wide = {"kind": "float", "abs_tol": 0.5, "rel_tol": 0.0}
    assert is_same(1.0, 1.4, wide)
    assert is_same([{"a": 1.0}], [{"a": 1.5}], wide)
    assert not is_same(1.0, 1.6, wide)
    assert not is_same(1, 2, {**wide, "abs_tol": 5})
    assert is_same(200.0, 201.0, {"kind": "float", "abs_tol": 0.0, "rel_tol": 0.01})
    assert not is_same(0.0, 1e-5, {"kind": "float"})


@given(st.lists(JSON, max_size=4), st.integers())
def test_order_says_nothing_where_the_rule_says_so(items: list[Any], seed: int) -> None:
    shuffled = random.Random(seed).sample(items, len(items))
    assert is_same(items, shuffled, UNORDERED)
    assert not is_same([*items, 1], [*items, 2], UNORDERED)
    assert not is_same([*items, 1], items, UNORDERED)


def test_unordered_lists_still_need_exact_types() -> None:
    assert not is_same([1, True], [True, True], UNORDERED)
    assert not is_same([1], [1.0], UNORDERED)


def test_deep_values_are_compared_and_never_raise() -> None:
    deep = json.loads("[" * 300 + "]" * 300)
    assert is_same(deep, json.loads("[" * 300 + "]" * 300))
    assert not is_same(deep, [])
    for rule in ({"kind": "exact"}, UNORDERED):
        assert not is_same([1], [deep], rule)


@pytest.mark.parametrize(
    ("expected", "text", "verdict"),
    [
        (True, "True", True),
        (True, "true", True),
        (True, "1", False),
        (3.0, "3.0", True),
        (3.0, "3", False),
        (3, "3", True),
        (3, "3.0", False),
        (None, "None", True),
        (None, "null", True),
        ("3", "3", True),
        ("True", "True", True),
        ("a", '"a"', False),
        (["a", 1], '["a", 1]', True),
        (["a", 1], "['a', 1]", True),
        ({"a": [True]}, "{'a': [True]}", True),
        ({"a": [True]}, '{"a": [true]}', True),
        (3, " 3 ", True),
        (1.0, "NaN", False),
        (1.0, "1e999", False),
        (3, "9" * 6000, False),
        (3, "[" * 3000, False),
        ([1], "__import__('os')", False),
        ({"a": 1}, "{[]: 1}", False),
        ([1], "{{}}", False),
        (3, "", False),
        (3, None, False),
        (3, 3, False),
        (3, ["3"], False),
    ],
)
def test_texts_say_values_as_mcp_carries_them(expected: object, text: object, verdict: bool) -> None:
    assert is_same_text(expected, text) is verdict


def test_texts_are_compared_by_the_rule() -> None:
    assert is_same_text([1, 2], "[2, 1]", UNORDERED)
    assert is_same_text(1.0, "1.05", {"kind": "float", "abs_tol": 0.1})


def test_share_is_measured_from_the_best_constant() -> None:
    expected = [True, True, True, False]
    assert share_above_constant([True, True, True, False], expected) == 0.0  # what "always True" gets
    assert share_above_constant([True] * 4, expected) == 1.0
    assert share_above_constant([True, False, False, False], expected) == 0.0
    assert share_above_constant([True, True, False, False], [1, 2, 3, 4]) == pytest.approx((0.5 - 0.25) / 0.75)


def test_share_with_one_distinct_output_is_the_plain_share() -> None:
    assert share_above_constant([True, False], ["x", "x"]) == 0.5


def test_true_and_one_are_different_outputs() -> None:
    assert share_above_constant([True, True], [True, 1]) == 1.0
    assert share_above_constant([True, False], [True, 1]) == 0.0


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([1, 2, True, "x"])), min_size=1))
def test_share_is_within_bounds_and_full_exactly_where_all_is_right(pairs: list[tuple[bool, Any]]) -> None:
    is_right, expected = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    share = share_above_constant(is_right, expected)
    assert 0.0 <= share <= 1.0
    assert (share == 1.0) == all(is_right)
