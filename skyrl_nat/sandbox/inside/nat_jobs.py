"""The NAT job: register, load, build, call, run end to end, and hidden pytest tests.

Every stage goes through NAT's own code. Only inputs come in; outputs go out as plain JSON and are
compared by the parent, which alone knows the expected values.
"""

import asyncio
import json
import logging
import math
import os
import secrets
import time
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import nat_testing
from forked_worker import Emit, describe, run_worker, write_files
from nat_package import Package, build_alone, import_package

_MAX_VALUE_CHARS = 20_000
_MAX_DEPTH = 12
_TEST_SHARE = 0.35
"""Share of the clock kept for pytest."""
_TEST_FOLDER = "hidden_tests"


def register_plugins() -> None:
    """Load NAT's own plugins; part of the preload."""
    from nat.runtime.loader import PluginTypes, discover_and_register_plugins

    discover_and_register_plugins(PluginTypes.CONFIG_OBJECT)
    logging.disable(logging.CRITICAL)


def validate(arguments: dict, folder: str, deadline: float) -> dict:
    """Return `{"stages": [...], "end": ..., "tests": [...], "tests_end": ...}`.

    Args:
        arguments: `source_root`, `module`, `config`, `tools` (type names), `calls` and `e2e`
            (`{"id", "tool", "input"}`), `test_files`.
        folder: The work folder that holds the package.
        deadline: Monotonic time by which the answer must be there.
    """
    tests = arguments.pop("test_files", {})
    reserve = (deadline - time.monotonic()) * _TEST_SHARE if tests else 0.0
    stages, end = run_worker(lambda emit: _session(emit, arguments, folder), deadline - reserve)
    answer: dict[str, Any] = {"stages": stages, "end": end, "tests": [], "tests_end": "none"}
    if tests and any(stage.get("stage") == "build" and stage.get("ok") is True for stage in stages):
        # Drawn only now: the first worker, which ran the policy's code, cannot know it.
        nonce = secrets.token_hex(8)
        write_files({f"{_TEST_FOLDER}/{name}": text for name, text in tests.items()}, folder)
        reports, answer["tests_end"] = run_worker(lambda emit: _pytest(emit, arguments, folder, nonce), deadline)
        answer["tests"] = [report for report in reports if report.pop("nonce", "") == nonce]
        answer["tests_error"] = next((str(r.get("error")) for r in reports if r.get("stage") == "crash"), "")
    return answer


def _session(emit: Emit, arguments: dict, folder: str) -> None:
    asyncio.run(_stages(emit, arguments, folder))


async def _stages(emit: Emit, arguments: dict, folder: str) -> None:
    """Run the ladder; each stage reports before the next one starts."""
    from nat.builder.workflow_builder import WorkflowBuilder
    from nat.runtime.loader import load_config

    registered = _report(emit, "register", lambda: _register(arguments, folder))
    config = None
    if arguments["config"]:
        path = Path(folder) / arguments["config"]
        config = _report(emit, "schema", lambda: load_config(path))
        if config is not None:
            _report(emit, "options", lambda: _refuse_stray_options(path, config))
    async with AsyncExitStack() as stack:
        package = None
        if config is not None:
            try:
                builder = await stack.enter_async_context(WorkflowBuilder.from_config(config=config))
                builder.get_workflow()
                package = Package(config, builder, stack)
                emit({"stage": "build", "ok": True, "error": ""})
            except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is a finding
                emit({"stage": "build", "ok": False, "error": describe(error)})
        if package is None and registered is None:
            return
        for item in arguments["calls"]:
            await _call(emit, item, package, stack)
        if package is not None:
            for item in arguments["e2e"]:
                await _run_end_to_end(emit, item, package)


def _report(emit: Emit, stage: str, action: Any) -> Any:
    """Run one stage; returns its result, or None where it failed."""
    try:
        result = action()
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is a finding
        emit({"stage": stage, "ok": False, "error": describe(error)})
        return None
    emit({"stage": stage, "ok": True, "error": ""})
    return result


def _register(arguments: dict, folder: str) -> list[str]:
    from nat.cli.type_registry import GlobalTypeRegistry

    import_package(arguments, folder)
    names = [registered.local_name for registered in GlobalTypeRegistry.get().get_registered_functions()]
    missing = [tool for tool in arguments["tools"] if tool not in names]
    if missing:
        raise LookupError(f"no function is registered under {', '.join(missing)}")
    return names


def _refuse_stray_options(path: Path, config: Any) -> bool:
    """NAT ignores unknown options of a function; a misspelt one must not pass."""
    import yaml

    written = yaml.safe_load(path.read_text(encoding="utf-8"))
    entries = [("workflow", written.get("workflow"), config.workflow)]
    for name, entry in (written.get("functions") or {}).items():
        entries.append((f"functions.{name}", entry, config.functions.get(name)))
    stray = []
    for path_name, entry, parsed in entries:
        known = {"_type"}
        for name, field in type(parsed).model_fields.items():
            known |= {name, field.alias or name}
        stray += [f"{path_name}.{key}" for key in entry or {} if key not in known]
    if stray:
        raise ValueError(f"unknown option {', '.join(stray)}")
    return True


async def _call(emit: Emit, item: dict, package: Package | None, stack: AsyncExitStack) -> None:
    report: dict[str, Any] = {"stage": "call", "id": item["id"]}
    try:
        if package is not None:
            function = await package.find(item["tool"])
        else:
            function = await stack.enter_async_context(build_alone(item["tool"]))
        report["output"] = encode(await function.ainvoke(item["input"]))
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is an answer
        report |= _error_report(error)
    emit(report)


async def _run_end_to_end(emit: Emit, item: dict, package: Package) -> None:
    report: dict[str, Any] = {"stage": "e2e", "id": item["id"]}
    try:
        report["output"] = encode(await package.run_workflow(item["input"]))
    except BaseException as error:  # noqa: BLE001 - whatever the policy's code raises is an answer
        report |= _error_report(error)
    emit(report)


def _error_report(error: BaseException) -> dict:
    names = [cls.__name__ for cls in type(error).__mro__]
    if "ValidationError" in names:  # pydantic's is a ValueError, but the tool did not raise it
        names = ["ValidationError"]
    return {"error": describe(error), "raised": names}


def encode(value: Any) -> Any:
    """Return a value as plain JSON; what is not exactly a JSON type becomes `{"$foreign": type name}`."""
    encoded = _encode(value, 0)
    if len(json.dumps(encoded)) > _MAX_VALUE_CHARS:
        return {"$foreign": "longer than allowed"}
    return encoded


def _encode(value: Any, depth: int) -> Any:
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int and abs(value) < 1 << 200:
        return value
    if kind is float and math.isfinite(value):
        return value
    if kind is list and depth < _MAX_DEPTH:
        return [_encode(item, depth + 1) for item in value]
    if kind is dict and depth < _MAX_DEPTH and all(type(key) is str for key in value):
        return {key: _encode(item, depth + 1) for key, item in value.items()}
    return {"$foreign": kind.__name__[:60]}


def _pytest(emit: Emit, arguments: dict, folder: str, nonce: str) -> None:
    """Run the hidden tests without any conftest, ini file or plugin of the package."""
    import pytest

    class Recorder:
        """Reports each test's result on the worker's own channel."""

        def pytest_runtest_logreport(self, report: Any) -> None:
            """Report the call, and set-up or tear-down where they failed."""
            if report.when == "call" or report.outcome != "passed":
                test = report.nodeid.rpartition("/")[2]
                text = "" if report.outcome == "passed" else str(report.longrepr)[-300:]
                emit(
                    {
                        "nonce": nonce,
                        "test": test,
                        "when": report.when,
                        "outcome": report.outcome,
                        "text": text,
                    }
                )

    nat_testing.use(arguments, folder)
    tests = f"{folder}/{_TEST_FOLDER}"
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = [
        "--noconftest",
        "-c",
        os.devnull,
        "--rootdir",
        tests,
        "--import-mode=importlib",
        "-q",
    ]
    options += ["-p", "no:cacheprovider", "-p", "no:faulthandler"]
    with suppress(SystemExit):
        code = pytest.main([*options, tests], plugins=[Recorder()])
        emit({"nonce": nonce, "exit_code": int(code)})
