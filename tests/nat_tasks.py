"""Small tasks of the family `nat_agent`, written by hand: two tools whose answers can be worked out in the head."""

import copy
from typing import Any

from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, Vector, parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.solution import render_solution
from skyrl_nat.types import Task

BODIES = {
    "scale": "if x < 0:\n    raise ValueError('negative')\nreturn x * config.factor",
    "shout": "return text.upper() + '!'",
}
SCALE: dict[str, Any] = {
    "name": "scale",
    "description": "Return x times factor.",
    "inputs": {"type": "object", "properties": {"x": {"type": "integer"}}},
    "output": {"type": "integer"},
    "errors": [{"when": "x is negative"}],
    "config": [{"name": "factor", "type": "int", "default": 3, "value": 2}],
    "examples": [{"input": 4, "output": 8}],
}
SHOUT: dict[str, Any] = {
    "name": "shout",
    "description": "Return text in upper case with an exclamation mark.",
    "inputs": {"type": "object", "properties": {"text": {"type": "string"}}},
    "output": {"type": "string"},
}
GENERATORS: dict[str, Any] = {
    "scale": {"x": {"kind": "integer", "low": -20, "high": 900}},
    "shout": {"text": {"kind": "text", "alphabet": "abcdefghij", "min": 3, "max": 8}},
}
VECTORS: list[dict[str, Any]] = [
    {"tool": "scale", "input": 1000, "output": 2000},
    {"tool": "scale", "input": 1001, "output": 2002},
    {"tool": "scale", "input": 1002, "output": 2004},
    {"tool": "shout", "input": "left", "output": "LEFT!"},
    {"tool": "shout", "input": "upwards", "output": "UPWARDS!"},
]


def source_of(body: str, argument: str) -> str:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    return f"async def run({argument}):\n{lines}"


def make_task(kind: str = "react_agent", *, tools: str = "scale shout", **integration: Any) -> Task:
    """A task of the named tools; `kind` is the workflow's type, `single` takes one tool."""
    names = tools.split()
    payload = {
        "spec_version": 2,
        "name": "small",
        "package": "agent",
        "tools": [copy.deepcopy(tool) for tool in (SCALE, SHOUT) if tool["name"] in names],
        "workflow": {"type": kind, "uses": names},
        "integration": {"llms": ["main"] if kind.endswith("_agent") else [], **integration},
    }
    arguments = {"scale": "x", "shout": "text"}
    references = {name: {"source": source_of(BODIES[name], arguments[name]), "config": {}} for name in names}
    if "scale" in names:
        references["scale"]["config"] = {"factor": 2}
    hidden = {
        "reference": references,
        "generators": copy.deepcopy({name: GENERATORS[name] for name in names}),
        "vectors": [vector for vector in VECTORS if vector["tool"] in names],
        "errors": [{"tool": "scale", "input": -5, "raises": "ValueError"}] if "scale" in names else [],
        "mutants": [
            {"tool": "scale", "source": references["scale"]["source"].replace("x * ", "x + ")},
            {"tool": "shout", "source": source_of(BODIES["shout"].replace("upper", "lower"), "text")},
        ]
        if len(names) == 2
        else [],
        "e2e": [_end_to_end(kind)],
    }
    return Task(task_id=f"small/{kind}", family="nat_agent", payload=payload, hidden=hidden)


def _end_to_end(kind: str) -> dict[str, Any]:
    if kind == "single":
        return {"input": 2500, "output": 5000}
    if kind == "router_agent":
        return {"input": "hello", "output": "HELLO!", "script": [{"say": "shout"}]}
    return {
        "input": "Please use scale for 2500.",
        "output": "It gave 5000.",
        "script": [{"call": "scale", "input": {"x": 2500}}, {"final": "It gave {0}."}],
    }


def halves(task: Task) -> tuple[AgentSpec, HiddenSpec]:
    return parse_spec(task.payload), parse_hidden(task.hidden)


def answer(task: Task, **bodies: str) -> dict[str, str]:
    """Files of an honest answer, with some bodies replaced by wrong ones."""
    spec, _ = halves(task)
    shown = [Vector(**item) for item in VECTORS if item["tool"] in [tool.name for tool in spec.functions]]
    refused = [Vector(tool="scale", input=-7, raises="ValueError")]
    return render_solution(spec, {**BODIES, **bodies}, shown, refused if "scale" in str(spec.tools) else [])
