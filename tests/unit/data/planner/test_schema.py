"""What of a schema reaches the service, what is dropped, and what is checked on this side (PL-07)."""

from typing import Any

import pytest

from skyrl_nat.config.planner import Backend
from skyrl_nat.data.planner.schema import reduce_schema, violations
from skyrl_nat.errors import DataError

STRING = {"type": "string"}


def reduced(schema: dict[str, Any], backend: Backend = Backend.gemini) -> tuple[Any, list[str]]:
    """Reduce a schema as the field `x` of an object."""
    whole = {"type": "object", "properties": {"x": schema}, "$defs": {"name": {**STRING, "maxLength": 9}}}
    found = reduce_schema(whole, backend)
    return found.schema["properties"]["x"], list(found.dropped)


def test_pl_07_a_full_schema_is_reduced_with_a_list_of_what_was_dropped():
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Plan",
        "type": "object",
        "properties": {
            "tools": {"type": "array", "items": {"$ref": "#/$defs/tool"}, "minItems": 1, "uniqueItems": True},
            "note": {"anyOf": [STRING, {"type": "null"}], "default": None},
            "level": {"type": "integer", "minimum": 1, "exclusiveMaximum": 4, "enum": [1, 2, 3]},
        },
        "required": ["tools", "level"],
        "additionalProperties": False,
        "$defs": {
            "tool": {
                "type": "object",
                "properties": {"name": {"$ref": "#/$defs/name"}, "kind": {"const": "text"}},
                "required": ["name"],
            },
            "name": {"type": "string", "pattern": "^[a-z]+$", "description": "in lower case"},
        },
    }
    found = reduce_schema(schema, Backend.gemini)
    assert found.schema == {
        "type": "object",
        "properties": {
            "tools": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "in lower case"},
                        "kind": {"type": "string", "enum": ["text"]},
                    },
                    "required": ["name"],
                    "propertyOrdering": ["name", "kind"],
                },
            },
            "note": {"type": "string", "nullable": True},
            "level": {"type": "integer", "minimum": 1},
        },
        "required": ["tools", "level"],
        "propertyOrdering": ["tools", "note", "level"],
    }
    assert list(found.dropped) == [
        "$: additionalProperties",
        "$.tools: uniqueItems",
        "$.tools[].name: pattern",
        "$.level: exclusiveMaximum",
        "$.level: enum of values that are no strings",
    ]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["string", "null"], "enum": ["a", "b", None]},
        {"enum": ["a", "b", None]},
        {"oneOf": [{"type": "null"}, {"enum": ["a", "b"]}]},
        {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]},
    ],
)
def test_pl_07_null_is_said_as_each_service_wants_it(schema: dict[str, Any]):
    assert reduced(schema) == ({"type": "string", "nullable": True, "enum": ["a", "b"]}, [])
    assert reduced(schema, Backend.openai) == ({"type": ["string", "null"], "enum": ["a", "b", None]}, [])


def test_pl_07_objects_to_choose_from_become_one_that_allows_them_all():
    """The shape of generators: told apart by `kind`, each with fields of its own."""

    def form(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"kind": {"const": kind}, **fields}, "required": ["kind", *fields]}

    schema = {
        "oneOf": [
            form("integer", low={"type": "integer", "minimum": 0}, high={"type": "integer"}),
            form("number", low={"type": "number", "minimum": -5}, digits={"type": "integer"}),
            form("boolean"),
        ]
    }
    assert reduced(schema) == (
        {
            "type": "object",
            "properties": {
                "kind": {"type": "string", "enum": ["integer", "number", "boolean"]},
                "low": {"type": "number", "minimum": -5},
                "high": {"type": "integer"},
                "digits": {"type": "integer"},
            },
            "required": ["kind"],
            "propertyOrdering": ["kind", "low", "high", "digits"],
        },
        ["$.x: oneOf of 3 forms"],
    )


def test_pl_07_of_different_types_the_first_is_offered_and_the_others_are_named_as_dropped():
    assert reduced({"type": ["integer", "string"]}) == (
        {"type": "integer"},
        ["$.x: type of 2 forms", "$.x: types other than integer"],
    )
    assert reduced({"anyOf": [{"type": "integer"}, {"type": "number"}]})[0] == {"type": "number"}


def test_references_in_all_of_are_written_out_and_words_beside_them_count():
    assert reduced({"allOf": [{"$ref": "#/$defs/name"}], "description": "d"}) == (
        {"type": "string", "description": "d"},
        ["$.x: maxLength"],
    )
    both = {
        "allOf": [
            {"type": "object", "properties": {"a": STRING}, "required": ["a"]},
            {"properties": {"b": STRING}, "required": ["b"]},
        ]
    }
    found, _ = reduced(both, Backend.openai)
    assert found["properties"] == {"a": STRING, "b": STRING}
    assert set(found["required"]) == {"a", "b"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object"}, r"every object .* must name its properties, \$\.x names none"),
        ({"type": "object", "additionalProperties": STRING}, r"\$\.x names none"),
        ({}, r"every value .* must have a type other than null, \$\.x is \{\}"),
        ({"type": "array"}, r"\$\.x\[\] is \{\}"),
        ({"type": "null"}, r"\$\.x is"),
        ({"$ref": "#/$defs/other"}, r"must lead to a place in it, .* \$\.x has #/\$defs/other"),
        ({"$ref": "http://somewhere/schema"}, r"must lead to a place in it"),
        ({"$ref": "#"}, r"must not refer to itself, \$\.x leads to # again"),
        ({"type": "array", "items": {"$ref": "#/properties/x"}}, r"must not refer to itself, \$\.x\[\]\[\] leads to"),
        ({"type": "text"}, r"must be a JSON schema, it breaks the rules at \$\.properties\.x\.type"),
    ],
)
def test_pl_07_what_a_service_cannot_be_told_is_refused(schema: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message):
        reduced(schema)


def test_pl_07_an_answer_is_held_against_the_full_schema():
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 3},
            "k": {"enum": ["a", "b"]},
            "u": {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "null"}]},
        },
        "additionalProperties": False,
    }
    assert violations({"n": 3, "k": "a", "u": "xy"}, schema) == []
    assert violations({"n": 2, "k": "c", "u": "y", "more": 1}, schema) == [
        "$: Additional properties are not allowed ('more' was unexpected)",
        "$.k: 'c' is not one of ['a', 'b']",
        "$.n: 2 is less than the minimum of 3",
        "$.u: 'y' does not match '^x'",
    ]
    many = {"type": "array", "items": STRING}
    assert len(violations(list(range(99)), many)) == 5
