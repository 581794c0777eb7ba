"""Build the shipped `nat_agent` task files from their readable sources, and prove every task.

For each task: ask the references for the hidden outputs, choose mutants that the vectors notice, render an honest
solution, and check through the real validator that it earns exactly 1.0 and that broken answers earn little. The
same sources give the same bytes.

    usage: build_nat_sample.py [--check] [--only SPLIT] [--task NAME] [--no-proof]

`--check` compares with the files that are there and writes nothing.
"""

import argparse
import logging
import random
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import resolve_file, write_tasks
from skyrl_nat.environments.nat_agent.cases import draw_end_to_end
from skyrl_nat.environments.nat_agent.mutants import mutate
from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, Reference, Vector, parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.properties import broken_laws
from skyrl_nat.environments.nat_agent.solution import render_solution
from skyrl_nat.environments.nat_agent.validator import ORACLE_PRELOAD, NatAgentValidator
from skyrl_nat.errors import DataError
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.types import Task

FAMILY = "nat_agent"
SPLITS = ("train", "validation")
PACKAGE = "agent"
MAX_WRONG_REWARD = 0.3
"""A wrong answer whose form is perfect must stay under it."""
MIN_NOTICED = 0.8
"""Share of a reference's mutants that the vectors must notice."""
MAX_MUTANTS = 3
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

_logger = logging.getLogger("build_nat_sample")
Source = dict[str, Any]


def all_functions(source: Source) -> list[Source]:
    """Return tools and workflow of a source entry."""
    return [*source["tools"], *([source["workflow"]] if "workflow" in source else [])]


def build_task(source: Source, split: str, oracle: ReferenceOracle) -> Task:
    """Return one task with recorded outputs.

    Raises:
        DataError: The source contradicts itself.
    """
    for tool in all_functions(source):
        _check_source(source["id"], tool)
    draft = HiddenSpec(
        reference={tool["name"]: _reference(tool) for tool in all_functions(source)},
        generators={tool["name"]: tool["draw"] for tool in all_functions(source) if "draw" in tool},
        vectors=(),
    )
    ask = _Asker(oracle, draft)
    payload = _payload(source, ask)
    payload["e2e"] = _visible_end_to_end(source, parse_spec(payload), ask)
    spec = parse_spec(payload)
    hidden: dict[str, Any] = {
        "reference": {name: {"source": item.source, "config": item.config} for name, item in draft.reference.items()},
        "generators": draft.generators,
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
        task_id=f"{FAMILY}/{split}/{source['id']}",
        family=FAMILY,
        payload=payload,
        hidden=hidden,
        difficulty=source["difficulty"],
    )


def _own_cases(spec: AgentSpec, hidden: HiddenSpec) -> list[Vector]:
    """Return the calls for an honest package's own tests; its writer would notice which example is wrong."""
    shown = [Vector(tool=tool.name, input=e.input, output=e.output) for tool in spec.functions for e in tool.examples]
    return [*(vector for vector in shown if vector not in hidden.canaries), *hidden.vectors]


class _Asker:
    """Asks references, many inputs at once where it can."""

    def __init__(self, oracle: ReferenceOracle, hidden: HiddenSpec) -> None:
        self.oracle = oracle
        self.hidden = hidden

    def answers(self, calls: list[Call], variants: Sequence[dict[str, str]] = ({},)) -> list[list[Answer]]:
        return self.oracle.answers(self.hidden, calls, variants)

    def output(self, tool: str, value: Any, *more: str) -> Any:
        [[answer]] = self.answers([Call(chain=(tool, *more), input=value)])
        if answer.raises:
            raise DataError(f"{tool} must answer {value!r}, but raises {answer.raises}: {answer.message}")
        return answer.output

    def raised(self, tool: str, value: Any) -> str:
        [[answer]] = self.answers([Call(chain=(tool,), input=value)])
        if answer.raises != "ValueError":
            raise DataError(f"{tool} must raise ValueError for {value!r}, but gives {answer}")
        return answer.raises


def _reference(tool: Source) -> Reference:
    body = textwrap.indent(tool["body"].rstrip("\n"), "    ")
    return Reference(
        source=f"async def run({', '.join(tool['args'])}):\n{body}\n",
        config={name: option["set"] for name, option in tool.get("options", {}).items()},
    )


def _bodies(source: Source) -> dict[str, str]:
    return {tool["name"]: tool["body"] for tool in all_functions(source)}


def _payload(source: Source, ask: _Asker) -> dict[str, Any]:
    kind = source.get("workflow_type", "custom" if "workflow" in source else "single")
    whole = source.get("whole")
    workflow: dict[str, Any] = {"type": kind, "uses": source.get("uses", [tool["name"] for tool in source["tools"]])}
    if "workflow" in source:
        workflow["function"] = _visible(source["workflow"], ask)
    integration: dict[str, Any] = {"llms": ["main"] if kind.endswith("_agent") else []}
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


def _visible_end_to_end(source: Source, spec: AgentSpec, ask: _Asker) -> list[dict[str, Any]]:
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


def _visible(tool: Source, ask: _Asker) -> dict[str, Any]:
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


def _end_to_end(source: Source, spec: AgentSpec, ask: _Asker) -> list[dict[str, Any]]:
    """Return the recorded runs; agents with an LLM get theirs drawn, with the script."""
    if spec.workflow.type.has_llm:
        runs = draw_end_to_end(ask.oracle, spec, ask.hidden, random.Random(f"{source['id']}/e2e"), NUM_AGENT_RUNS)
        return [{"input": run.input, "output": run.output, "script": list(run.script)} for run in runs]
    chain = list(spec.workflow.uses) if spec.workflow.type == "sequential_executor" else [spec.functions[-1].name]
    return [{"input": value, "output": ask.output(chain[0], value, *chain[1:])} for value in source["e2e"]]


def _mutants(source: Source, hidden: Source, ask: _Asker) -> list[dict[str, str]]:
    """Return mutants that the vectors notice.

    Raises:
        DataError: The vectors notice too few.
    """
    chosen: list[dict[str, str]] = []
    for tool in all_functions(source):
        name = tool["name"]
        candidates = mutate(ask.hidden.reference[name].source, random.Random(name), 12)
        cases = [case for case in [*hidden["vectors"], *hidden["errors"]] if case["tool"] == name]
        calls = [Call(chain=(name,), input=case["input"]) for case in cases]
        right, *wrong = ask.answers(calls, [{}, *({name: text} for text in candidates)])
        noticed = [text for text, answers in zip(candidates, wrong, strict=True) if _differ(right, answers)]
        if candidates and len(noticed) / len(candidates) < MIN_NOTICED:
            missed = [text for text in candidates if text not in noticed]
            raise DataError(f"{source['id']}: inputs of {name} notice {len(noticed)} of {len(candidates)}: {missed[0]}")
        chosen += [{"tool": name, "source": text} for text in noticed[:MAX_MUTANTS]]
    return chosen


def _differ(right: list[Answer], wrong: list[Answer]) -> bool:
    return [(a.output, a.raises) for a in right] != [(a.output, a.raises) for a in wrong]


def wrong_answers(source: Source, task: Task) -> dict[str, dict[str, str]]:
    """Return broken answers of a task, by what is wrong with them."""
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    first = {vector.tool: vector for vector in reversed(hidden.vectors)}
    constants = {name: f"return {first[name].output!r}" for name in _bodies(source)}
    nothing = dict.fromkeys(_bodies(source), "return None")
    return {
        "a constant for every input": render_solution(spec, constants, hidden.vectors, hidden.errors),
        "no input is read": render_solution(spec, nothing, hidden.vectors, hidden.errors),
    }


def prove(source: Source, task: Task, validator: NatAgentValidator, oracle: ReferenceOracle) -> list[str]:
    """Return what is wrong with a task, judged by the real validator."""
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    faults = [f"{task.task_id}: {text}" for text in broken_laws(oracle, spec, hidden, random.Random(0))]
    result = validator.validate(task, {"files": task.hidden["solution"]})
    if result.total != 1.0 or not result.is_success or result.suspicions:
        faults.append(
            f"{task.task_id}: the solution must earn 1.0, got {result.total} {result.parts}: {result.findings} "
            f"{result.suspicions}"
        )
    for what, files in wrong_answers(source, task).items():
        wrong = validator.validate(task, {"files": files})
        if wrong.total > MAX_WRONG_REWARD or wrong.is_success:
            faults.append(
                f"{task.task_id}: {what} must earn at most {MAX_WRONG_REWARD}, got {wrong.total} {wrong.parts}"
            )
    return faults


def load_source(split: str) -> list[Source]:
    """Return the entries of a split's source file."""
    path = resolve_file(f"builtin:{FAMILY}/{split}").with_suffix(".source.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def main() -> int:
    """Build, prove, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files that are there")
    parser.add_argument("--only", choices=SPLITS, help="one split")
    parser.add_argument("--task", help="one task, built and proved but not written")
    parser.add_argument("--no-proof", action="store_true", help="leave out the validator")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sources = {split: load_source(split) for split in SPLITS}
    names = {
        split: {tool["name"] for entry in entries for tool in all_functions(entry)}
        for split, entries in sources.items()
    }
    if shared := names["train"] & names["validation"]:
        raise DataError(f"no tool may be in both splits, got {', '.join(sorted(shared))}. Rename or move them")
    config = EnvironmentConfig()
    oracle = ReferenceOracle(open_sandbox(config.sandbox, preload=ORACLE_PRELOAD))
    validator = NatAgentValidator(config, oracle=oracle)
    faults: list[str] = []
    for split in [options.only] if options.only else SPLITS:
        entries = [entry for entry in sources[split] if options.task in (None, entry["id"])]
        tasks = [build_task(entry, split, oracle) for entry in entries]
        if not options.no_proof:
            for entry, task in zip(entries, tasks, strict=True):
                faults += prove(entry, task, validator, oracle)
        if options.task is None:
            faults += _write(split, tasks, is_check=options.check, may_write=not faults)
    validator.close()
    for fault in faults:
        _logger.error("%s", fault)
    return 1 if faults else 0


def _write(split: str, tasks: list[Task], *, is_check: bool, may_write: bool) -> list[str]:
    path = resolve_file(f"builtin:{FAMILY}/{split}")
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / path.name
        write_tasks(tasks, fresh)
        content = fresh.read_bytes()
    _logger.info("%s: %d tasks, %d bytes", split, len(tasks), len(content))
    if is_check and (not path.exists() or path.read_bytes() != content):
        return [f"{path.name} differs from what its source gives; run without --check"]
    if not is_check and may_write:
        path.write_bytes(content)
    return []


if __name__ == "__main__":
    sys.exit(main())
