"""Visible halves of tasks in version 2, by hand: one tool; a custom workflow with options; everything that there is."""

from typing import Any


def schema(**types: str) -> dict[str, Any]:
    """Return the JSON schema of an object."""
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}


DOUBLE: dict[str, Any] = {
    "spec_version": 2,
    "name": "double_number",
    "package": "agent",
    "tools": [
        {
            "name": "double_number",
            "description": "Return x times 2.",
            "inputs": schema(x="integer"),
            "output": {"type": "integer"},
            "examples": [{"input": 4, "output": 8}],
        }
    ],
    "workflow": {"type": "single", "uses": ["double_number"]},
}
REPORT: dict[str, Any] = {
    "spec_version": 2,
    "name": "report_flow",
    "package": "agent",
    "tools": [
        {
            "name": "word_count",
            "description": "Return the number of words in text.",
            "inputs": schema(text="string"),
            "output": {"type": "integer"},
            "errors": [{"when": "text has no word"}],
            "examples": [{"input": "a b", "output": 2}],
        },
        {
            "name": "scale",
            "description": "Return count times factor.",
            "inputs": schema(count="integer"),
            "output": {"type": "number"},
            "config": [{"name": "factor", "type": "float", "default": 1.0, "value": 2.5}],
            "compare": {"kind": "float", "abs_tol": 0.01, "rel_tol": 0.001},
        },
    ],
    "workflow": {
        "type": "custom",
        "uses": ["word_count", "scale"],
        "function": {
            "name": "report_flow",
            "description": "Return the scale of the word_count of text.",
            "inputs": schema(text="string"),
            "output": {"type": "number"},
            "uses": ["word_count", "scale"],
            "examples": [{"input": "a b", "output": 5.0}],
        },
    },
}
TRIP: dict[str, Any] = {
    "spec_version": 2,
    "name": "trip_agent",
    "description": "Says what to pack.",
    "package": "trip",
    "tools": [
        {
            "name": "convert",
            "description": "Convert a temperature.",
            "inputs": {
                "type": "object",
                "properties": {
                    "value": {"type": "number"},
                    "to_unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
            },
            "output": {"type": "number"},
            "behaviour": ["Results are rounded to one digit."],
            "errors": [{"when": "the unit is unknown", "raises": "KeyError"}],
            "examples": [{"input": {"value": 212.0, "to_unit": "celsius"}, "output": 100.0}],
        },
        {
            "name": "packing",
            "description": "Return what to pack.",
            "inputs": schema(celsius="number"),
            "output": {"type": "array", "items": {"type": "string"}},
            "compare": {"kind": "unordered"},
        },
    ],
    "workflow": {"type": "react_agent", "uses": ["convert", "packing"]},
    "integration": {"llms": ["main"], "mcp": ["convert"], "num_tests": 3, "is_installable": True},
    "e2e": [{"input": "Pack for 5 degrees.", "output": "Take a coat."}],
}
ALL = {"double": DOUBLE, "report": REPORT, "trip": TRIP}
