"""Drawn inputs: within their bounds, the same for the same seed, refused where the data set is broken."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyrl_nat.environments.nat_agent.generators import EDGE_SHARE, draw, draw_input, from_schema
from skyrl_nat.environments.nat_agent.payload import ToolSpec
from skyrl_nat.errors import DataError

INTEGER = {"kind": "integer", "low": 2, "high": 5}
EVERY_KIND: list[dict[str, Any]] = [
    INTEGER,
    {"kind": "number", "low": -1.0, "high": 1.0, "digits": 3},
    {"kind": "boolean"},
    {"kind": "choice", "values": ["a", 1, None]},
    {"kind": "text", "alphabet": "xyz", "min": 0, "max": 9},
    {"kind": "words", "min": 1, "max": 4},
    {"kind": "template", "pattern": "{a}-{b}", "parts": {"a": INTEGER, "b": {"kind": "boolean"}}},
    {"kind": "list", "item": INTEGER, "min": 0, "max": 6},
    {"kind": "object", "fields": {"n": INTEGER, "t": {"kind": "text", "alphabet": "q", "min": 1, "max": 2}}},
    {"kind": "one_of", "of": [INTEGER, {"kind": "boolean"}]},
]


def many(generator: dict[str, Any], count: int = 300) -> list[Any]:
    rng = random.Random(7)
    return [draw(generator, rng) for _ in range(count)]


@pytest.mark.parametrize("generator", EVERY_KIND, ids=lambda generator: generator["kind"])
def test_same_seed_gives_the_same_values_and_another_one_others(generator: dict[str, Any]) -> None:
    first, again, other = (
        [draw(generator, rng) for _ in range(50)] for rng in (random.Random(1), random.Random(1), random.Random(2))
    )
    assert first == again
    assert first != other
    assert json.loads(json.dumps(first)) == first


@given(st.integers(-50, 50), st.integers(0, 60), st.integers())
def test_integers_stay_within_their_bounds(low: int, width: int, seed: int) -> None:
    value = draw({"kind": "integer", "low": low, "high": low + width, "edges": [low - 1, low]}, random.Random(seed))
    assert type(value) is int
    assert low <= value <= low + width


@given(st.floats(-9, 9), st.floats(0, 9), st.integers(0, 4), st.integers())
def test_numbers_are_floats_within_their_bounds_whatever_is_rounded(
    low: float, width: float, digits: int, seed: int
) -> None:
    value = draw({"kind": "number", "low": low, "high": low + width, "digits": digits}, random.Random(seed))
    assert type(value) is float
    assert low <= value <= low + width


def test_every_value_of_a_small_range_comes_up() -> None:
    assert set(many(INTEGER)) == {2, 3, 4, 5}
    assert set(many({"kind": "boolean"})) == {True, False}
    assert set(many({"kind": "choice", "values": ["a", "b"]})) == {"a", "b"}


def test_numbers_have_no_more_digits_than_asked_for() -> None:
    values = many({"kind": "number", "low": 0.0, "high": 9.0, "digits": 1})
    assert all(round(value, 1) == value for value in values)
    assert any(value != round(value) for value in values)


def test_edges_come_up_now_and_then_and_only_within_the_bounds() -> None:
    values = many({"kind": "integer", "low": 0, "high": 10**9, "edges": [7, -1]}, 2000)
    assert values.count(7) / 2000 == pytest.approx(EDGE_SHARE, abs=0.03)
    assert -1 not in values


@given(st.integers(0, 5), st.integers(0, 5), st.integers())
@settings(max_examples=50)
def test_texts_words_and_lists_have_the_lengths_asked_for(low: int, more: int, seed: int) -> None:
    bounds, rng = {"min": low, "max": low + more}, random.Random(seed)
    text = draw({"kind": "text", "alphabet": "ab", **bounds}, rng)
    assert low <= len(text) <= low + more
    assert set(text) <= set("ab")
    words = draw({"kind": "words", "values": ["one", "two"], "separator": "|", **bounds}, rng)
    assert low <= len([word for word in words.split("|") if word]) <= low + more
    assert low <= len(draw({"kind": "list", "item": INTEGER, **bounds}, rng)) <= low + more


def test_templates_and_objects_are_made_of_drawn_parts() -> None:
    assert set(many({"kind": "template", "pattern": "<{n}>", "parts": {"n": INTEGER}})) == {"<2>", "<3>", "<4>", "<5>"}
    assert many({"kind": "object", "fields": {"n": INTEGER}}, 1)[0].keys() == {"n"}
    assert {type(value) for value in many(EVERY_KIND[-1])} == {int, bool}


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": "dice"},
        {},
        {"kind": "integer", "low": 3},
        {"kind": "integer", "low": 3, "high": 1},
        {"kind": "integer", "low": "a", "high": 4},
        {"kind": "choice", "values": []},
        {"kind": "text", "alphabet": "", "min": 1, "max": 1},
        {"kind": "template", "pattern": "{a}", "parts": {}},
        {"kind": "list", "item": {"kind": "dice"}, "min": 1, "max": 1},
        {"kind": "one_of", "of": []},
    ],
)
def test_broken_generators_are_data_errors(broken: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="a generator must be one of integer"):
        draw(broken, random.Random(0))


def tool(**properties: dict[str, Any]) -> ToolSpec:
    inputs = {"type": "object", "properties": properties}
    return ToolSpec(name="t", description="", inputs=inputs, output={"type": "integer"})


def test_the_only_argument_is_drawn_bare_and_several_as_an_object() -> None:
    rng = random.Random(0)
    assert type(draw_input(tool(x={"type": "integer"}), {}, rng)) is int
    both = draw_input(tool(x={"type": "integer"}, y={"type": "string"}), {"x": INTEGER}, rng)
    assert 2 <= both["x"] <= 5
    assert type(both["y"]) is str


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer", "minimum": 3, "maximum": 4}, int),
        ({"type": "number", "minimum": 3.0, "maximum": 4.0}, float),
        ({"type": "string"}, str),
        ({"type": "boolean"}, bool),
        ({"type": "array", "items": {"type": "integer", "minimum": 3, "maximum": 4}}, list),
        ({"type": "object", "properties": {"a": {"type": "boolean"}}}, dict),
        ({"type": "string", "enum": ["on", "off"]}, str),
    ],
)
def test_schemas_suggest_values_of_their_type_and_bounds(schema: dict[str, Any], kind: type) -> None:
    values = many(dict(from_schema(schema)), 60)
    assert {type(value) for value in values} == {kind}
    if "enum" in schema:
        assert set(values) == {"on", "off"}
    if "minimum" in schema:
        assert all(3 <= value <= 4 for value in values)
    if kind is list:
        assert {item for value in values for item in value} == {3, 4}


def test_number_is_never_a_negative_zero() -> None:
    generator = {"kind": "number", "low": -0.4, "high": 0.4, "digits": 0}
    assert {str(draw(generator, random.Random(seed))) for seed in range(20)} == {"0.0"}
