"""What a planner is asked for, and how its answers become sources: a spec first, then its functions' code, thrice."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_nat.data.making.build import SCHEMAS, Source
from skyrl_nat.environments.nat_agent.generators import WORDS, Generator
from skyrl_nat.errors import DataError
from skyrl_nat.strict_json import parse_json

TYPES = tuple(SCHEMAS)
WORKFLOWS = ("single", "sequential_executor", "react_agent", "tool_calling_agent", "router_agent")
MIN_SAMPLES = 16
"""Some become examples, some hidden inputs, and fresh ones are drawn in their likeness."""
JSON_TEXT = {"type": "string", "minLength": 1}
"""A JSON value as text: services keep no free-form values in a schema."""

_TOOL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]{2,39}$"},
        "arguments": {
            "type": "array",
            "minItems": 1,
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]{0,19}$"},
                    "type": {"type": "string", "enum": list(TYPES)},
                },
                "required": ["name", "type"],
                "additionalProperties": False,
            },
        },
        "returns": {"type": "string", "enum": list(TYPES)},
        "description": {"type": "string", "minLength": 10, "maxLength": 300},
        "behaviour": {"type": "array", "items": {"type": "string"}, "maxItems": 6},
        "refuses_when": {"type": "string"},
        "samples": {"type": "array", "items": JSON_TEXT, "minItems": MIN_SAMPLES, "maxItems": 30},
        "refused_samples": {"type": "array", "items": JSON_TEXT, "maxItems": 5},
        "examples": {
            "type": "array",
            "minItems": 2,
            "maxItems": 4,
            "items": {
                "type": "object",
                "properties": {"input": JSON_TEXT, "output": JSON_TEXT},
                "required": ["input", "output"],
                "additionalProperties": False,
            },
        },
    },
    "required": [
        "name",
        "arguments",
        "returns",
        "description",
        "behaviour",
        "refuses_when",
        "samples",
        "refused_samples",
        "examples",
    ],
    "additionalProperties": False,
}
SPEC_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[a-z][a-z0-9_]{2,39}$"},
        "description": {"type": "string", "minLength": 10, "maxLength": 200},
        "difficulty": {"type": "integer", "minimum": 1, "maximum": 5},
        "workflow": {"type": "string", "enum": list(WORKFLOWS)},
        "tools": {"type": "array", "items": _TOOL, "minItems": 1, "maxItems": 4},
    },
    "required": ["name", "description", "difficulty", "workflow", "tools"],
    "additionalProperties": False,
}
CODE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "functions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "body": {"type": "string", "minLength": 1}},
                "required": ["name", "body"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["functions"],
    "additionalProperties": False,
}


def spec_prompt(request: str, variation: int, difficulty: int) -> str:
    """Return what asks for the spec of one agent.

    Args:
        request: What the user wants.
        variation: Number of the spec among those of this request.
        difficulty: 1 to 5.
    """
    return (
        "Design one small software agent for the request below: one to four tools and what runs them.\n"
        "Rules:\n"
        "- Every tool is a pure function of its arguments: no network, files, clock, randomness or LLM.\n"
        "- description and behaviour together define it wholly: rounding (to how many digits), ties, empty input, "
        "letter case, separators, units. Two engineers must write the same function from them.\n"
        "- refuses_when says for which inputs it raises ValueError, or is empty; refused_samples are such inputs.\n"
        f"- samples are at least {MIN_SAMPLES} different valid inputs, edge cases among them; most give different "
        "answers. Inputs and outputs are JSON as text: the value itself for one argument, else an object by argument.\n"
        "- workflow: single (one tool), sequential_executor (each tool takes what the one before gives, all texts), "
        "react_agent or tool_calling_agent (an LLM chooses), router_agent (each tool takes and gives one text).\n"
        f"Difficulty: {difficulty} of 5. Variation {variation}: differ from other answers to this request in the tools "
        f"chosen.\n\nRequest: {request}\n"
    )


def code_prompt(draft: Mapping[str, Any]) -> str:
    """Return what asks for the code of a draft's tools; its samples of inputs are not shown."""
    shown = [
        {key: tool[key] for key in ("name", "arguments", "returns", "description", "behaviour", "refuses_when")}
        | {"examples": tool["examples"]}
        for tool in draft["tools"]
    ]
    return (
        "Write the body of each function in Python 3.11: the statements inside `async def run(<arguments>):`, without "
        "the def line, ending in return. Standard library only, imports inside, no input or output. Raise ValueError "
        "where refuses_when says so and nowhere else. Return exactly the type named in returns.\n\n"
        f"{json.dumps(shown, indent=1)}\n"
    )


def source_of(draft: Mapping[str, Any], bodies: Mapping[str, str]) -> Source:
    """Return a draft as a source without inputs.

    Raises:
        DataError: A body is missing, or tools and workflow do not fit.
    """
    kind, tools = draft["workflow"], draft["tools"]
    missing = [tool["name"] for tool in tools if not bodies.get(tool["name"], "").strip()]
    if missing:
        raise DataError(f"every tool must have code, missing: {', '.join(missing)}")
    if kind == "single" and len(tools) != 1:
        raise DataError(f"a single workflow must have one tool, got {len(tools)}")
    source: Source = {
        "id": draft["name"],
        "difficulty": draft["difficulty"],
        "description": draft["description"],
        "tools": [_tool(tool, bodies[tool["name"]]) for tool in tools],
    }
    if kind != "single":
        source["workflow_type"] = kind
    if draft["difficulty"] >= 4:
        source["whole"] = {"tests": 2, "mcp": [tools[0]["name"]]}
    return source


def values_of(tool: Mapping[str, Any], texts: Sequence[str]) -> list[Any]:
    """Return inputs of a tool from their JSON texts.

    Raises:
        DataError: One is no JSON or not of the tool's types.
    """
    kinds = {argument["name"]: argument["type"] for argument in tool["arguments"]}
    found = [json_value(text, tool["name"]) for text in texts]
    return [_typed(value, kinds, tool["name"]) for value in found]


def json_value(text: str, place: str) -> Any:
    """Return the value of JSON text.

    Raises:
        DataError: It is none, or not finite.
    """
    try:
        return parse_json(text)
    except ValueError as error:
        raise DataError(f"{place} must have JSON values as text, got {text[:60]!r}: {error}") from error


def _tool(tool: Mapping[str, Any], body: str) -> Source:
    values = values_of(tool, tool["samples"])
    names = [argument["name"] for argument in tool["arguments"]]
    columns = {names[0]: values} if len(names) == 1 else {name: [value[name] for value in values] for name in names}
    found: Source = {
        "name": tool["name"],
        "args": {argument["name"]: argument["type"] for argument in tool["arguments"]},
        "returns": tool["returns"],
        "does": tool["description"],
        "behaviour": list(tool["behaviour"]),
        "body": body,
        "draw": {a["name"]: generator_of(a["type"], columns[a["name"]]) for a in tool["arguments"]},
    }
    if tool["refuses_when"]:
        found["raises"] = tool["refuses_when"]
    return found


def generator_of(kind: str, values: Sequence[Any]) -> Generator:
    """Return a generator of values like the given ones."""
    if kind.startswith("list["):
        items = [item for value in values for item in value]
        lengths = [len(value) for value in values]
        return {
            "kind": "list",
            "item": generator_of(kind[5:-1], items),
            "min": min(lengths, default=0),
            "max": max(lengths, default=3),
        }
    if kind == "bool":
        return {"kind": "boolean"}
    if kind in ("int", "float") and values:
        ends = {"low": min(values), "high": max(values), "edges": sorted(set(values))}
        return {"kind": "integer", **ends} if kind == "int" else {"kind": "number", "digits": 2, **ends}
    if kind == "str" and any(" " in value for value in values):
        words = sorted({word for value in values for word in value.split()})
        known = {"kind": "choice", "values": list(values)}
        return {"kind": "one_of", "of": [known, {"kind": "words", "values": words, "min": 1, "max": 5}]}
    return {"kind": "choice", "values": list(values) or list(WORDS)}


def _typed(value: Any, kinds: Mapping[str, str], tool: str) -> Any:
    """Return a value with whole numbers as floats where those are asked for."""
    if len(kinds) == 1:
        return _cast(value, next(iter(kinds.values())), tool)
    if not isinstance(value, dict) or set(value) != set(kinds):
        raise DataError(f"an input of {tool} must be an object with {', '.join(kinds)}, got {str(value)[:80]}")
    return {name: _cast(value[name], kind, tool) for name, kind in kinds.items()}


def _cast(value: Any, kind: str, tool: str) -> Any:
    if kind.startswith("list[") and isinstance(value, list):
        return [_cast(item, kind[5:-1], tool) for item in value]
    if kind == "float" and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value).__name__ != kind:
        raise DataError(f"an input of {tool} must be {kind}, got {value!r}")
    return value
