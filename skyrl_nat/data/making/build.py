"""A task from its readable source: what the policy sees, and the hidden half that judges it."""

import random
import textwrap
from collections.abc import Iterator
from typing import Any

from skyrl_nat.data.making.asker import Asker
from skyrl_nat.environments.nat_agent.cases import draw_end_to_end
from skyrl_nat.environments.nat_agent.mutants import mutate
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import (
    AgentSpec,
    HiddenSpec,
    Reference,
    Vector,
    WorkflowType,
    parse_hidden,
    parse_spec,
)
from skyrl_nat.environments.nat_agent.solution import render_solution
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

FAMILY = "nat_agent"
PACKAGE = "agent"
MIN_NOTICED = 0.8
"""Share of a reference's mutants that the vectors must notice."""
NUM_MUTANTS = 12
"""Of each function, to measure that share."""
MAX_MUTANTS = 3
"""Of each function, kept in the task."""
NUM_AGENT_RUNS = 6
SCHEMAS = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "str": {"type": "string"},
    "bool": {"type": "boolean"},
    "list[int]": {"type": "array", "items": {"type": "integer"}},
    "list[float]": {"type": "array", "items": {"type": "number"}},
    "list[str]": {"type": "array", "items": {"type": "string"}},
}

Source = dict[str, Any]
"""One task as its author writes it: `id`, `difficulty`, `description`, `tools`, `workflow` or `workflow_type` and
`uses`, `whole` (`tests`, `mcp`), `e2e`. A tool: `name`, `args`, `returns`, `does`, `behaviour`, `raises`, `body`,
`options`, `draw`, `laws`, `examples` (visible inputs), `inputs` (hidden ones), `errors` (refused ones), `canaries`."""


def all_functions(source: Source) -> list[Source]:
    """Return tools and workflow of a source entry."""
    return [*source["tools"], *([source["workflow"]] if "workflow" in source else [])]


def build_task(source: Source, task_id: str, oracle: ReferenceOracle) -> Task:
    """Return one task with recorded outputs; the same source gives the same task.

    Args:
        source: What its author wrote.
        task_id: Its id in the data set.
        oracle: Asks the references in a sandbox.

    Raises:
        DataError: The source contradicts itself, or its inputs notice too few mistakes.
    """
    for tool in all_functions(source):
        _check_source(source["id"], tool)
    ask = Asker(oracle, draft_of(source))
    ask.fetch(_all_calls(source))
    payload = _payload(source, ask)
    payload["e2e"] = _visible_end_to_end(source, parse_spec(payload), ask)
    spec = parse_spec(payload)
    hidden: dict[str, Any] = {
        "reference": {
            name: {"source": item.source, "config": item.config} for name, item in ask.hidden.reference.items()
        },
        "generators": ask.hidden.generators,
        "vectors": [
            {"tool": tool["name"], "input": value, "output": ask.output(tool["name"], value)}
            for tool in all_functions(source)
            for value in tool.get("inputs", tool["examples"])
        ],
        "errors": [
            {"tool": tool["name"], "input": value, "raises": ask.raised(tool["name"], value)}
            for tool in all_functions(source)
            for value in tool.get("errors", [])
        ],
        "properties": [{"tool": tool["name"], **law} for tool in all_functions(source) for law in tool.get("laws", [])],
        "canaries": [{"tool": tool["name"], **item} for tool in source["tools"] for item in tool.get("canaries", [])],
        "e2e": _end_to_end(source, spec, ask),
    }
    hidden["mutants"] = _mutants(source, hidden, ask)
    parsed = parse_hidden(hidden)
    hidden["solution"] = render_solution(spec, _bodies(source), _own_cases(spec, parsed), parsed.errors)
    return Task(
        task_id=task_id,
        family=FAMILY,
        payload=payload,
        hidden=hidden,
        difficulty=source["difficulty"],
    )


def draft_of(source: Source) -> HiddenSpec:
    """Return the references and generators of a source."""
    return HiddenSpec(
        reference={tool["name"]: _reference(tool) for tool in all_functions(source)},
        generators={tool["name"]: tool["draw"] for tool in all_functions(source) if "draw" in tool},
        vectors=(),
    )


def _all_calls(source: Source) -> Iterator[tuple[tuple[str, ...], Any]]:
    for tool in all_functions(source):
        for value in [*tool["examples"], *tool.get("inputs", []), *tool.get("errors", [])]:
            yield (tool["name"],), value
    if chain := _chain(source):
        yield from ((chain, value) for value in source["e2e"])


def _chain(source: Source) -> tuple[str, ...]:
    """Return the functions that an end-to-end input passes; none where an LLM decides."""
    kind = _workflow_type(source)
    if kind.has_llm:
        return ()
    return tuple(_uses(source)) if kind is WorkflowType.sequential_executor else (all_functions(source)[-1]["name"],)


def _workflow_type(source: Source) -> WorkflowType:
    return WorkflowType(source.get("workflow_type", "custom" if "workflow" in source else "single"))


def _uses(source: Source) -> list[str]:
    return source.get("uses", [tool["name"] for tool in source["tools"]])


def _own_cases(spec: AgentSpec, hidden: HiddenSpec) -> list[Vector]:
    """Return the calls for an honest package's own tests; its writer would notice which example is wrong."""
    shown = [Vector(tool=tool.name, input=e.input, output=e.output) for tool in spec.functions for e in tool.examples]
    return [*(vector for vector in shown if vector not in hidden.canaries), *hidden.vectors]


def _reference(tool: Source) -> Reference:
    body = textwrap.indent(tool["body"].rstrip("\n"), "    ")
    return Reference(
        source=f"async def run({', '.join(tool['args'])}):\n{body}\n",
        config={name: option["set"] for name, option in tool.get("options", {}).items()},
    )


def _bodies(source: Source) -> dict[str, str]:
    return {tool["name"]: tool["body"] for tool in all_functions(source)}


def _payload(source: Source, ask: Asker) -> dict[str, Any]:
    kind = _workflow_type(source)
    whole = source.get("whole")
    workflow: dict[str, Any] = {"type": kind.value, "uses": _uses(source)}
    if "workflow" in source:
        workflow["function"] = _visible(source["workflow"], ask)
    integration: dict[str, Any] = {"llms": ["main"] if kind.has_llm else []}
    if whole:
        integration |= {"mcp": whole["mcp"], "num_tests": whole["tests"], "is_installable": True}
    return {
        "spec_version": 2,
        "name": source["id"],
        "description": source.get("description", ""),
        "package": PACKAGE,
        "tools": [_visible(tool, ask) for tool in source["tools"]],
        "workflow": workflow,
        "integration": integration,
        "e2e": [],
    }


def _visible_end_to_end(source: Source, spec: AgentSpec, ask: Asker) -> list[dict[str, Any]]:
    """Return one run of the workflow that the policy may see, where it must write more than the functions."""
    if not spec.is_full:
        return []
    runs = draw_end_to_end(ask.oracle, spec, ask.hidden, random.Random(f"{source['id']}/visible"), NUM_AGENT_RUNS)
    return [{"input": run.input, "output": run.output} for run in runs[:1]]


def _check_source(task: str, tool: Source) -> None:
    """YAML guesses types (`no` is False): every input must have the declared one; no hidden input may be visible."""
    for value in [*tool["examples"], *tool.get("inputs", []), *tool.get("errors", [])]:
        values = {next(iter(tool["args"])): value} if len(tool["args"]) == 1 else value
        for name, kind in tool["args"].items():
            if type(values[name]).__name__ != kind.partition("[")[0]:
                raise DataError(
                    f"{task}: input {name} of {tool['name']} must be {kind}, got {values[name]!r}. Quote it"
                )
    shared = [value for value in tool["examples"] if value in tool.get("inputs", [])]
    if shared:
        raise DataError(f"{task}: visible examples must not be hidden inputs too, got {shared}. Change one")


def _visible(tool: Source, ask: Asker) -> dict[str, Any]:
    examples = [{"input": value, "output": ask.output(tool["name"], value)} for value in tool["examples"]]
    examples += tool.get("canaries", [])
    return {
        "name": tool["name"],
        "description": tool["does"],
        "inputs": {
            "type": "object",
            "properties": {name: SCHEMAS[kind] for name, kind in tool["args"].items()},
            "required": list(tool["args"]),
        },
        "output": SCHEMAS[tool["returns"]],
        "behaviour": tool.get("behaviour", []),
        "errors": [{"when": tool["raises"], "raises": "ValueError"}] if "raises" in tool else [],
        "config": [
            {"name": name, "type": option["type"], "default": option["default"], "value": option["set"]}
            for name, option in tool.get("options", {}).items()
        ],
        "uses": tool.get("uses", []),
        "examples": examples,
    }


def _end_to_end(source: Source, spec: AgentSpec, ask: Asker) -> list[dict[str, Any]]:
    """Return the recorded runs; agents with an LLM get theirs drawn, with the script."""
    if chain := _chain(source):
        return [{"input": value, "output": ask.output(chain[0], value, *chain[1:])} for value in source["e2e"]]
    runs = draw_end_to_end(ask.oracle, spec, ask.hidden, random.Random(f"{source['id']}/e2e"), NUM_AGENT_RUNS)
    return [{"input": run.input, "output": run.output, "script": list(run.script)} for run in runs]


def _mutants(source: Source, hidden: Source, ask: Asker) -> list[dict[str, str]]:
    """Return mutants that the vectors notice.

    Raises:
        DataError: The vectors notice too few.
    """
    names = [tool["name"] for tool in all_functions(source)]
    changed = [(name, text) for name in names for text in mutants_of(ask.hidden, name)]
    cases = [*hidden["vectors"], *hidden["errors"]]
    inputs = {name: [case["input"] for case in cases if case["tool"] == name] for name in names}
    chosen: list[dict[str, str]] = []
    noticed = [any(row) for row in ask.differing(changed, inputs)]
    for name in names:
        own = [(text, is_noticed) for (tool, text), is_noticed in zip(changed, noticed, strict=True) if tool == name]
        found = [text for text, is_noticed in own if is_noticed]
        if len(found) < MIN_NOTICED * len(own):
            missed = next(text for text, is_noticed in own if not is_noticed)
            raise DataError(f"{source['id']}: inputs of {name} notice {len(found)} of {len(own)}: {missed}")
        chosen += [{"tool": name, "source": text} for text in found[:MAX_MUTANTS]]
    return chosen


def mutants_of(hidden: HiddenSpec, tool: str) -> list[str]:
    """Return the wrong versions of a reference that inputs are measured with."""
    return mutate(hidden.reference[tool].source, random.Random(tool), NUM_MUTANTS)
