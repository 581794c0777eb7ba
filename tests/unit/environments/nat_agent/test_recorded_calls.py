"""Tables of answers: others than the right ones, none that merely raises."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skyrl_nat.environments.nat_agent.recorded_calls import (
    answers_to_strangers,
    call_key,
    other_answers,
    recorded_calls,
    without_new_refusals,
)

OUT = {"output": "1"}
OTHER = {"output": "2"}
NO = {"raises": "ValueError", "message": "no"}


def changed(value: Any, *, is_larger: bool) -> Any:
    return json.loads(other_answers({"k": {"output": json.dumps(value)}}, is_larger=is_larger)["k"]["output"])


@pytest.mark.parametrize(
    ("value", "larger", "smaller"),
    [
        (0, 1, -1),
        (-1, 3, -3),
        (-0.5, 2.0, -2.0),
        (14, 29, -29),
        (True, False, False),
        ("", "?", "?"),
        ("ab", "abab?", ""),
        ([], [None], [None]),
        ([1, 2], [1, 2, 5], []),
        ({}, {"?": None}, {"?": None}),
        ({"a": 1, "b": {"c": "x"}}, {"a": 3, "b": {"c": "xx?"}}, {"a": -3, "b": {"c": ""}}),
        (None, "?", 0),
    ],
)
def test_other_answers_by_hand(value: Any, larger: Any, smaller: Any) -> None:
    assert changed(value, is_larger=True) == larger
    assert changed(value, is_larger=False) == smaller


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e100, 1e100) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, st.booleans())
def test_other_answer_is_never_the_same(value: Any, is_larger: bool) -> None:
    assert changed(value, is_larger=is_larger) != value


def test_nothing_raises_among_other_answers() -> None:
    assert other_answers({"k": NO}, is_larger=True) == {"k": {"output": "null"}}


@pytest.mark.parametrize(
    ("right", "wrong", "kept"),
    [(OUT, OTHER, OTHER), (OUT, NO, OUT), (NO, OUT, OUT), (NO, {"raises": "KeyError"}, {"raises": "KeyError"})],
)
def test_refusal_stays_only_where_it_was_one(right: dict, wrong: dict, kept: dict) -> None:
    assert without_new_refusals({"k": wrong}, {"k": right}) == {"k": kept}


def test_strangers_have_one_answer_for_each_tool() -> None:
    calls = recorded_calls([{"call": "a", "options": {}, "input": n, "output": n} for n in (1, 2)])
    assert list(calls) == [call_key("a", {}, 1), call_key("a", {}, 2)]
    assert answers_to_strangers(calls) == {'["a"]': {"output": "5"}}
