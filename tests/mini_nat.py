"""A sandbox without a sandbox and without NAT: runs rendered packages, their tests and references in this process.

Just enough of NAT that `render_solution`'s files work: its job answers have the shape of the real ones. Only for code
that a test wrote itself.
"""

import ast
import asyncio
import builtins
import json
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult

INSIDE = Path(__file__).parents[1] / "skyrl_nat/sandbox/inside"
if str(INSIDE) not in sys.path:
    sys.path.append(str(INSIDE))

import references  # noqa: E402
from values import encode, error_report  # noqa: E402

Output = dict[str, Any]


class OracleSandbox:
    """Answers the oracle's jobs with the inner module itself."""

    def __init__(self) -> None:
        self.jobs: list[SandboxJob] = []
        self.is_closed = False

    def run(self, job: SandboxJob) -> SandboxResult:
        self.jobs.append(job)
        reports = list(references.answer(json.loads(json.dumps(job.arguments))))
        return SandboxResult(status="done", output={"reports": reports, "end": "done"}, log="", wall_s=0.0)

    def close(self) -> None:
        self.is_closed = True


def open_oracle() -> ReferenceOracle:
    return ReferenceOracle(OracleSandbox())


class MiniNat:
    """Plays jobs; `change` may put another output in place of the honest one, or raise.

    With `played`, the reports are those of an answer with these files, whatever the job's own are: a forgery.
    """

    def __init__(
        self,
        change: Callable[[SandboxJob, Output], Output | SandboxResult] | None = None,
        played: dict[str, str] | None = None,
    ) -> None:
        self.change, self.played = change, played
        self.jobs: list[SandboxJob] = []
        self.is_closed = False

    def run(self, job: SandboxJob) -> SandboxResult:
        self.jobs.append(job)
        play = {
            "nat_validate": _validate,
            "nat_own_tests": _own_tests,
            "nat_mcp_script": _mcp_script,
            "nat_workflow_file": _workflow_file,
        }[job.kind]
        acted = job
        if self.played is not None:
            acted = replace(job, files=self.played, arguments=job.arguments | {"config": "agent/config.yml"})
        output: Any = json.loads(json.dumps(play(acted)))
        if self.change is not None:
            output = self.change(job, output)
        if isinstance(output, SandboxResult):
            return output
        return SandboxResult(status="done", output=output, log="", wall_s=0.0)

    def close(self) -> None:
        self.is_closed = True


class Config:
    """NAT's FunctionBaseConfig: class attributes are the defaults of options."""

    name = ""

    def __init_subclass__(cls, name: str) -> None:
        cls.name = name

    def __init__(self, **options: Any) -> None:
        names = list(type(self).__annotations__) if "__annotations__" in vars(type(self)) else []
        self.options = {name: options.get(name, getattr(type(self), name)) for name in names}
        vars(self).update(self.options)


class Function:
    """What `get_function` gives."""

    def __init__(self, package: "Package", config: Config, made: Any) -> None:
        self.package, self.config = package, config
        self.run, self.description = made if isinstance(made, tuple) else (made, "")
        code = self.run.__code__
        self.names = code.co_varnames[: code.co_argcount]

    async def ainvoke(self, value: Any) -> Any:
        return await self.package.call(self, value)

    async def answer(self, value: Any) -> Any:
        return await (self.run(value) if len(self.names) == 1 else self.run(**value))


class Package:
    """A package whose register module was run; also its builder."""

    def __init__(self, files: dict[str, str]) -> None:
        self.config_of: dict[str, type[Config]] = {}
        self.builders: dict[type[Config], Any] = {}
        self.functions: dict[str, Function] = {}
        self.watch: Callable[[Function, Any], Any] | None = None
        [path] = [path for path in files if path.endswith("/register.py")]
        self.scope = {
            "Builder": object,
            "FunctionBaseConfig": Config,
            "FunctionInfo": SimpleNamespace(from_fn=lambda run, description: (run, description)),
            "register_function": self._register,
        }
        run_module(files[path], self.scope)

    def _register(self, config_type: type[Config]) -> Callable[[Any], Any]:
        def keep(build: Any) -> Any:
            self.config_of[config_type.name], self.builders[config_type] = config_type, build
            return build

        return keep

    async def add_function(self, name: str, config: Config) -> Function:
        made = await anext(self.builders[type(config)](config, self))
        self.functions[name] = Function(self, config, made)
        return self.functions[name]

    async def get_function(self, name: str) -> Function:
        if name not in self.functions:
            await self.add_function(name, self.config_of[name]())
        return self.functions[name]

    async def call(self, function: Function, value: Any) -> Any:
        return await (self.watch(function, value) if self.watch else function.answer(value))


_PARSING = threading.Lock()
"""Python 3.11 makes one tree at a time (`patterns.parse_python`)."""


def run_module(source: str, scope: dict[str, Any]) -> None:
    """Run a module without its imports of NAT and of the package: their names are in the scope."""
    with _PARSING:
        tree = ast.parse(source)
        tree.body = [node for node in tree.body if not isinstance(node, ast.ImportFrom) or node.module == "typing"]
        code = compile(tree, "package", "exec")
    exec(code, scope)


def _validate(job: SandboxJob) -> Output:
    asked = job.arguments
    stages = [{"stage": name, "ok": True, "error": ""} for name in ("register", "schema", "options", "build")]
    config = yaml.safe_load(job.files[asked["config"]])
    package = _build(job.files, config)
    stages += [_introspect(package.functions[tool]) for tool in asked["tools"]]
    for item in asked["calls"]:
        stages.append({"stage": "call", "id": item["id"], **_outcome(package, (item["tool"],), item["input"])})
    for item in asked["e2e"]:
        stages.append({"stage": "e2e", "id": item["id"], **_run_workflow(package, config["workflow"], item)})
    if asked["mcp"] is not None:
        stages.append({"stage": "mcp", "ok": True, "error": "", "tools": [{"name": name} for name in asked["tools"]]})
        stages += [{"stage": "mcp_call", "id": item["id"], **_as_text(package, item)} for item in asked["mcp"]]
    return {"stages": stages, "end": "done"}


def _build(files: dict[str, str], config: Output) -> Package:
    package = Package(files)
    for entry in (*config.get("functions", {}).values(), config["workflow"]):
        if entry["_type"] in package.config_of:
            options = {name: value for name, value in entry.items() if name != "_type"}
            made = package.config_of[entry["_type"]](**options)
            asyncio.run(package.add_function(entry["_type"], made))
    return package


def _introspect(function: Function) -> Output:
    hints = function.run.__annotations__
    kinds = {int: "integer", float: "number", str: "string", bool: "boolean", dict: "object"}
    return {
        "stage": "introspect",
        "tool": function.config.name,
        "description": function.description,
        "inputs": {"properties": {name: {"type": kinds.get(hints[name], "array")} for name in function.names}},
        "output": getattr(hints["return"], "__name__", str(hints["return"])),
        "options": function.config.options,
    }


def _outcome(package: Package, chain: tuple[str, ...], value: Any) -> Output:
    async def run() -> Any:
        result = value
        for name in chain:
            result = await package.functions[name].ainvoke(result)
        return result

    try:
        return {"output": encode(asyncio.run(run()))}
    except Exception as error:  # noqa: BLE001 - the package under test may raise anything
        return error_report(error)


def _run_workflow(package: Package, workflow: Output, item: Output) -> Output:
    kind, script = workflow["_type"], item["script"]
    if kind == "sequential_executor":
        return _outcome(package, tuple(workflow["tool_list"]), item["input"])
    if kind == "router_agent":
        result = _outcome(package, (script[0]["say"],), item["input"])
        return {"output": str(result["output"])} if "output" in result else result
    if not script:
        return _outcome(package, (kind,), item["input"])
    said = [_as_text(package, {"tool": step["call"], "input": step["input"]}) for step in script[:-1]]
    return {"output": script[-1]["final"].format(*(answer.get("text", "error") for answer in said))}


def _as_text(package: Package, item: Output) -> Output:
    values = item["input"]
    result = _outcome(package, (item["tool"],), next(iter(values.values())) if len(values) == 1 else values)
    return {"text": str(result["output"])} if "output" in result else result


def _workflow_file(job: SandboxJob) -> Output:
    config = yaml.safe_load(job.files[job.arguments["config"]])
    values: dict[str, Output] = {}
    for entry in (*config.get("functions", {}).values(), config["workflow"]):
        options = job.arguments["functions"].get(entry["_type"], {})
        values[entry["_type"]] = {name: default for name, (_, default) in options.items()} | entry
    stages = [{"stage": name, "ok": True, "error": ""} for name in ("schema", "options", "build")]
    return {"stages": [*stages, {"stage": "values", "values": values}], "end": "done"}


def _mcp_script(job: SandboxJob) -> Output:
    [config] = [yaml.safe_load(text) for path, text in job.files.items() if path.endswith("config.yml")]
    if not isinstance(config, dict) or "workflow" not in config:
        return {"reports": [], "end": "no server"}
    package = _build(job.files, config)
    return {"reports": [{"id": c["id"], **_as_text(package, c)} for c in job.arguments["calls"]], "end": "done"}


def _own_tests(job: SandboxJob) -> Output:
    reports: list[Output] = []
    table, now = job.arguments["table"], [""]

    async def watch(function: Function, value: Any) -> Any:
        tool, options = function.config.name, function.config.options
        if table is not None:
            found = table.get(json.dumps([tool, options, value], sort_keys=True)) or table.get(json.dumps([tool]))
            if found is None:
                raise LookupError("this call was not made in the recorded run")
            if "raises" in found:
                raise getattr(builtins, found["raises"])(found["message"])
            return json.loads(found["output"])
        report = {"call": tool, "options": options, "input": encode(value), "by": now[0]}
        try:
            result = await function.answer(value)
        except Exception as error:
            reports.append(report | error_report(error))
            raise
        reports.append(report | {"output": encode(result)})
        return result

    for path in job.arguments["tests"]:
        try:
            tests = _collect(job, path, watch)
        except pytest.skip.Exception as error:
            reports.append({"collect": path, "outcome": "skipped", "text": str(error)})
            continue
        except Exception as error:  # noqa: BLE001 - the package under test may raise anything
            reports.append({"collect": path, "outcome": "failed", "text": repr(error)})
            continue
        for name, test in tests:
            now[0] = name
            reports.append({"test": name, **_run_test(test)})
    return {"reports": [*reports, {"finished": 0}], "end": "done"}


def _collect(job: SandboxJob, path: str, watch: Any) -> list[tuple[str, Callable[[], Any]]]:
    package = Package(job.files)
    package.watch = watch
    scope: dict[str, Any] = {"pytest": pytest}
    scope |= {kind.__name__: kind for kind in package.config_of.values()}
    scope["WorkflowBuilder"] = lambda: _Opened(package)
    run_module(job.files[path], scope)
    found: list[tuple[str, Callable[[], Any]]] = []
    for name, value in list(scope.items()):
        if name.startswith("test"):
            rows = [mark.args for mark in getattr(value, "pytestmark", []) if mark.name == "parametrize"]
            if not rows:
                found.append((f"{path}::{name}", value))
            for names, cases in rows:
                for number, case in enumerate(cases):
                    values = {names: case} if isinstance(names, str) else dict(zip(names, case, strict=True))
                    found.append((f"{path}::{name}[{number}]", lambda f=value, v=values: f(**v)))
    return found


class _Opened:
    """`async with WorkflowBuilder() as builder`: functions are built anew."""

    def __init__(self, package: Package) -> None:
        self._package = package

    async def __aenter__(self) -> Package:
        self._package.functions.clear()
        return self._package

    async def __aexit__(self, *_: object) -> None:
        return None


def _run_test(test: Callable[[], Any]) -> Output:
    try:
        result = test()
        if asyncio.iscoroutine(result):
            asyncio.run(result)
    except pytest.skip.Exception as error:
        return {"outcome": "skipped", "text": str(error)}
    except Exception as error:  # noqa: BLE001 - the package under test may raise anything
        return {"outcome": "failed", "text": repr(error)}
    except pytest.fail.Exception as error:
        return {"outcome": "failed", "text": str(error)}
    return {"outcome": "passed", "text": ""}
