"""Build the shipped `nat_agent` task files from their readable sources, and prove every task.

For each task: run the reference to record hidden outputs, render it as a package, and check through the real
validator that the reference earns exactly 1.0 and that broken answers earn little. The same sources give the
same bytes.

    usage: build_nat_sample.py [--check] [--only SPLIT]

`--check` compares with the files that are there and writes nothing.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import resolve_file, write_tasks
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

FAMILY = "nat_agent"
SPLITS = ("train", "validation")
PACKAGE = "agent"
MAX_WRONG_REWARD = 0.5
"""A wrong answer whose form is perfect must stay under it."""

_logger = logging.getLogger("build_nat_sample")
Source = dict[str, Any]


def all_functions(source: Source) -> list[Source]:
    """Return tools and workflow of a source entry."""
    return [*source["tools"], *([source["workflow"]] if "workflow" in source else [])]


def render_function(tool: Source, body: str | None = None) -> str:
    """Return the NAT code of one function, its options included."""
    class_name = "".join(word.capitalize() for word in tool["name"].split("_")) + "Config"
    options = [f"    {name}: {o['type']} = {o['default']!r}" for name, o in tool.get("options", {}).items()] or [
        "    pass"
    ]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in tool["args"].items())
    uses = [f'    {name} = await builder.get_function("{name}")' for name in tool.get("uses", [])]
    lines = [
        f'class {class_name}(FunctionBaseConfig, name="{tool["name"]}"):',
        *options,
        "",
        "",
        f"@register_function(config_type={class_name})",
        f"async def {tool['name']}(config: {class_name}, builder: Builder):",
        *uses,
        f"    async def run({arguments}) -> {tool['returns']}:",
        textwrap.indent((body or tool["body"]).rstrip("\n"), "        "),
        "",
        "    yield run",
    ]
    return "\n".join(lines) + "\n"


def render_package(source: Source, bodies: dict[str, str] | None = None) -> dict[str, str]:
    """Return the two files of an answer; `bodies` replaces bodies by tool name."""
    code = "from nat.plugin_api import Builder, FunctionBaseConfig, register_function\n"
    for tool in all_functions(source):
        code += "\n\n" + render_function(tool, (bodies or {}).get(tool["name"]))
    config: dict[str, Any] = {}
    if "workflow" in source:
        config["functions"] = {tool["name"]: _yaml_entry(tool) for tool in source["tools"]}
    config["workflow"] = _yaml_entry(all_functions(source)[-1])
    return {
        f"{PACKAGE}/register.py": code,
        f"{PACKAGE}/config.yml": yaml.safe_dump(config, sort_keys=False),
    }


def _yaml_entry(tool: Source) -> dict[str, Any]:
    return {
        "_type": tool["name"],
        **{name: option["set"] for name, option in tool.get("options", {}).items()},
    }


class ReferenceTool:
    """The reference of one function as a plain call, without NAT."""

    def __init__(self, tool: Source, others: dict[str, "ReferenceTool"]) -> None:
        """Compile the body; `others` are the tools that it may use."""
        arguments = ", ".join(tool["args"])
        code = f"async def run({arguments}):\n{textwrap.indent(tool['body'], '    ')}"
        options = SimpleNamespace(**{name: option["set"] for name, option in tool.get("options", {}).items()})
        scope: dict[str, Any] = {
            "config": options,
            **{name: others[name] for name in tool.get("uses", [])},
        }
        exec(compile(code, tool["name"], "exec"), scope)
        self._run = scope["run"]
        self._is_scalar = len(tool["args"]) == 1

    async def ainvoke(self, value: Any) -> Any:
        """Return the answer, as a NAT function would be called."""
        return await (self._run(value) if self._is_scalar else self._run(**value))

    def __call__(self, value: Any) -> Any:
        """Return the answer."""
        return asyncio.run(self.ainvoke(value))


def build_task(source: Source, split: str) -> Task:
    """Return one task with recorded outputs.

    Raises:
        DataError: The source contradicts itself.
    """
    references: dict[str, ReferenceTool] = {}
    for tool in all_functions(source):
        references[tool["name"]] = ReferenceTool(tool, references)
        _check_types(source["id"], tool)
        shared = [value for value in tool["examples"] if value in tool.get("inputs", [])]
        if shared:
            raise DataError(f"{source['id']}: visible examples must not be hidden inputs too, got {shared}. Change one")
    workflow = all_functions(source)[-1]
    e2e_reference = references[workflow["name"]]
    payload = {
        "spec_version": 1,
        "name": source["id"],
        "domain": source["domain"],
        "package": PACKAGE,
        "tools": [_visible(tool, references) for tool in source["tools"]],
        "workflow": _visible(workflow, references) if "workflow" in source else None,
    }
    tests = _tests(source)
    hidden = {
        "name": source["id"],
        "vectors": [
            {"tool": tool["name"], "input": value, "output": references[tool["name"]](value)}
            for tool in source["tools"]
            for value in tool["inputs"]
        ],
        "errors": [
            {
                "tool": tool["name"],
                "input": value,
                "raises": _raised(references[tool["name"]], value, source["id"]),
            }
            for tool in source["tools"]
            for value in tool.get("errors", [])
        ],
        "e2e": [{"input": value, "output": e2e_reference(value)} for value in source["e2e"]],
        "tests": {"files": {"test_hidden.py": tests[0]}, "expected": tests[1]},
        "reference": {"files": render_package(source)},
    }
    return Task(
        task_id=f"{FAMILY}/{split}/{source['id']}",
        family=FAMILY,
        payload=payload,
        hidden=hidden,
        difficulty=source["difficulty"],
    )


def _check_types(task: str, tool: Source) -> None:
    """YAML guesses types (`no` is False): every input must have the declared one."""
    for value in [*tool["examples"], *tool.get("inputs", []), *tool.get("errors", [])]:
        values = {next(iter(tool["args"])): value} if len(tool["args"]) == 1 else value
        for name, kind in tool["args"].items():
            if type(values[name]).__name__ != kind.partition("[")[0]:
                raise DataError(
                    f"{task}: input {name} of {tool['name']} must be {kind}, got {values[name]!r}. Quote it"
                )


def _visible(tool: Source, references: dict[str, ReferenceTool]) -> dict[str, Any]:
    return {
        "name": tool["name"],
        "arguments": [{"name": name, "type": kind} for name, kind in tool["args"].items()],
        "returns": tool["returns"],
        "description": tool["does"],
        "raises": tool.get("raises", ""),
        "options": [
            {
                "name": name,
                "type": option["type"],
                "default": option["default"],
                "value": option["set"],
            }
            for name, option in tool.get("options", {}).items()
        ],
        "uses": tool.get("uses", []),
        "examples": [{"input": value, "output": references[tool["name"]](value)} for value in tool["examples"]],
    }


def _raised(reference: ReferenceTool, value: Any, task: str) -> str:
    try:
        output = reference(value)
    except ValueError:
        return "ValueError"
    raise DataError(f"{task}: an error input must make the reference raise ValueError, {value!r} gave {output!r}")


def _tests(source: Source) -> tuple[str, list[str]]:
    """Return the hidden test file, free of expected values, and the ids of its tests."""
    lines = ["import pytest", "", "from nat_testing import call, workflow", ""]
    names = []

    def add(name: str, *body: str) -> None:
        names.append(f"test_hidden.py::test_{name}")
        lines.extend(["", f"def test_{name}():", *(f"    {line}" for line in body), ""])

    for tool in source["tools"]:
        name, value = tool["name"], tool["examples"][0]
        kind = tool["returns"].partition("[")[0]
        add(f"{name}_returns_exactly_{kind}", f"assert type(call({name!r}, {value!r})) is {kind}")
        add(
            f"{name}_repeats_itself",
            f"assert call({name!r}, {value!r}) == call({name!r}, {value!r})",
        )
        for bad in tool.get("errors", [])[:1]:
            add(f"{name}_refuses", "with pytest.raises(ValueError):", f"    call({name!r}, {bad!r})")
        for index, claim in enumerate(tool.get("properties", [])):
            add(f"{name}_property_{index}", f"assert {claim}")
    function = all_functions(source)[-1]
    value = function["examples"][0]
    add(
        "workflow_is_the_function",
        f"assert workflow({value!r}) == call({function['name']!r}, {value!r})",
    )
    return "\n".join(lines), names


def wrong_answers(source: Source) -> dict[str, dict[str, str]]:
    """Return broken answers of a task, by what is wrong with them."""
    task = build_task(source, "proof")
    constants = {}
    for tool in source["tools"]:
        vector = next(v for v in task.hidden["vectors"] if v["tool"] == tool["name"])
        constants[tool["name"]] = f"return {vector['output']!r}"
    answers = {"a constant for every input": render_package(source, constants)}
    answers["no input is read"] = render_package(source, {t["name"]: "return None" for t in all_functions(source)})
    return answers


def prove(source: Source, task: Task, validator: NatAgentValidator) -> list[str]:
    """Return what is wrong with a task, judged by the real validator."""
    faults = []
    result = validator.validate(task, {"files": task.hidden["reference"]["files"]})
    if result.total != 1.0 or not result.is_success:
        faults.append(f"{task.task_id}: the reference must earn 1.0, got {result.total}: {result.findings}")
    for what, files in wrong_answers(source).items():
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
    validator = NatAgentValidator(EnvironmentConfig())
    faults: list[str] = []
    for split in [options.only] if options.only else SPLITS:
        tasks = [build_task(entry, split) for entry in sources[split]]
        if not options.no_proof:
            for entry, task in zip(sources[split], tasks, strict=True):
                faults += prove(entry, task, validator)
        path = resolve_file(f"builtin:{FAMILY}/{split}")
        with tempfile.TemporaryDirectory() as folder:
            fresh = Path(folder) / path.name
            write_tasks(tasks, fresh)
            content = fresh.read_bytes()
        if options.check and (not path.exists() or path.read_bytes() != content):
            faults.append(f"{path.name} differs from what its source gives; run without --check")
        if not options.check and not faults:
            path.write_bytes(content)
        _logger.info("%s: %d tasks, %d bytes", split, len(tasks), len(content))
    validator.close()
    for fault in faults:
        _logger.error("%s", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
