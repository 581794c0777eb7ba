"""The NAT job: register, load, build, introspect, call, run end to end, serve over MCP.

Every stage goes through NAT's own code. Only inputs come in; outputs go out as plain JSON and are compared by
the parent, which alone knows the expected values.
"""

import asyncio
import gc
import importlib
import logging
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import nat_llm
import nat_mcp
import nat_mcp_script
import nat_own_tests
import nat_workflow_file
from forked_worker import Emit, run_worker
from nat_package import Alone, Package, import_package
from nat_workflow_file import refuse_stray_options, schema_problem
from values import describe, encode, error_report

PROVIDED = (
    "nat.plugin_api",
    "nat.plugins.langchain.agent.react_agent.agent",
    "nat.plugins.langchain.agent.tool_calling_agent.agent",
    "nat.plugins.langchain.control_flow.router_agent.agent",
    "nat.plugins.mcp.server.front_end_plugin_worker",
    "nat.runtime.session",
    "mcp.shared.memory",
    "anyio._backends._asyncio",
    "mcp.client.streamable_http",
)
"""Imported beside NAT's plugins, so that no job pays for them."""


def register_plugins() -> None:
    """Load NAT's own plugins; part of the preload."""
    from nat.runtime.loader import PluginTypes, discover_and_register_plugins

    discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)
    for name in PROVIDED:
        importlib.import_module(name)
    nat_own_tests.preload_pytest()
    gc.set_threshold(100_000, 50, 100)  # a job is short: collecting costs it more than it gains
    logging.disable(logging.CRITICAL)


def validate(arguments: dict, folder: str, deadline: float) -> dict:
    """Return `{"stages": [...], "end": ...}`.

    Args:
        arguments: `source_root`, `module`, `config`, `tools` (type names), `calls` (`{"id", "tool", "input"}`), `e2e`
            (`{"id", "input", "script"}`), `style` (workflow type), `options` (function -> what it is
            built with where the workflow file cannot be used), `mcp` (calls as above; None for no server).
        folder: The work folder that holds the package.
        deadline: Monotonic time by which the answer must be there.
    """
    stages, end = run_worker(lambda emit: asyncio.run(_stages(emit, arguments, folder)), deadline)
    return {"stages": stages, "end": end}


JOBS: dict[str, Callable[[dict, str, float], dict]] = {
    "nat_validate": validate,
    "nat_own_tests": nat_own_tests.run_own_tests,
    "nat_mcp_script": nat_mcp_script.run_script,
    "nat_workflow_file": nat_workflow_file.check_workflow_file,
}
"""Kinds of jobs that need NAT."""


async def _stages(emit: Emit, arguments: dict, folder: str) -> None:
    """Run the ladder; each stage reports before the next one starts."""
    _report(emit, "register", lambda: _register(arguments, folder))
    async with AsyncExitStack() as stack:
        package = await _open(emit, arguments, folder, stack)
        if package is None and arguments["module"] not in sys.modules:
            return
        if package is not None:
            await _introspect(emit, arguments, package)
        found, started = package or Alone(arguments["options"], stack), time.monotonic()
        for item in arguments["calls"]:
            await _call(emit, item, found)
        emit({"stage": "oracle", "ok": True, "error": "", "seconds": time.monotonic() - started})
        if package is None:
            return
        started = time.monotonic()
        for item in arguments["e2e"]:
            await _run_end_to_end(emit, item, package, arguments["style"])
        emit({"stage": "workflow", "ok": True, "error": "", "seconds": time.monotonic() - started})
        if arguments["mcp"] is not None:
            await _serve(emit, arguments["mcp"], package)


async def _open(emit: Emit, arguments: dict, folder: str, stack: AsyncExitStack) -> Package | None:
    """Load the workflow file and build it."""
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.runtime.loader import load_config

    if not arguments["config"]:
        return None
    path = Path(folder) / arguments["config"]
    config = _report(emit, "schema", lambda: load_config(path))
    if config is None:
        return None
    _report(emit, "options", lambda: refuse_stray_options(path, config))
    nat_llm.replace_llms(config)
    started = time.monotonic()
    try:
        builder = await stack.enter_async_context(WorkflowBuilder.from_config(config=config))
        builder.get_workflow()
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is a finding
        emit({"stage": "build", "ok": False, "error": describe(error), "seconds": time.monotonic() - started})
        return None
    emit({"stage": "build", "ok": True, "error": "", "seconds": time.monotonic() - started})
    return Package(config, builder, stack)


def _report(emit: Emit, stage: str, action: Callable[[], Any]) -> Any:
    """Run one stage; returns its result, or None where it failed."""
    started = time.monotonic()
    result, problem = None, ""
    try:
        result = action()
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is a finding
        problem = schema_problem(error)
    emit({"stage": stage, "ok": result is not None, "error": problem, "seconds": time.monotonic() - started})
    return result


def _register(arguments: dict, folder: str) -> list[str]:
    from nat.cli.type_registry import GlobalTypeRegistry

    import_package(arguments, folder)
    names = [registered.local_name for registered in GlobalTypeRegistry.get().get_registered_functions()]
    missing = [tool for tool in arguments["tools"] if tool not in names]
    if missing:
        raise LookupError(f"no function is registered under {', '.join(missing)}")
    return names


async def _introspect(emit: Emit, arguments: dict, package: Package) -> None:
    """Report what NAT knows of each wanted function."""
    for tool in arguments["tools"]:
        report: dict[str, Any] = {"stage": "introspect", "tool": tool}
        try:
            function = await package.find(tool)
            report |= {
                "description": str(function.description or "")[:2000],
                "inputs": function.input_schema.model_json_schema(),
                "output": getattr(function.single_output_type, "__name__", str(function.single_output_type)),
            }
        except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is a finding
            report |= {"error": describe(error)}
        emit(report)


async def _call(emit: Emit, item: dict, package: Package | Alone) -> None:
    report: dict[str, Any] = {"stage": "call", "id": item["id"]}
    try:
        function = await package.find(item["tool"])
        report["output"] = encode(await function.ainvoke(item["input"]))
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is an answer
        report |= error_report(error)
    emit(report)


async def _run_end_to_end(emit: Emit, item: dict, package: Package, style: str) -> None:
    report: dict[str, Any] = {"stage": "e2e", "id": item["id"]}
    names = {config.type: name for name, config in package.config.functions.items()}
    nat_llm.play(item.get("script") or [{"final": ""}], style=style, names=names)
    try:
        report["output"] = encode(await package.run_workflow(item["input"]))
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is an answer
        report |= error_report(error)
    emit(report)


async def _serve(emit: Emit, calls: list[dict], package: Package) -> None:
    try:
        await nat_mcp.check_mcp(emit, calls, package)
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is a finding
        emit({"stage": "mcp", "ok": False, "error": describe(error), "tools": []})
