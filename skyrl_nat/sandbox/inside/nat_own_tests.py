"""The package's own pytest tests, with every call of a tool recorded or answered from a table.

In a recording run the tools work and their calls are reported. In a replay the tools answer what a table
says, so the parent can ask "would these tests pass on another implementation?" without that
implementation, right or wrong, ever being here.
"""

import importlib
import inspect
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any

import pytest
from forked_worker import Emit, run_worker
from nat_package import import_package
from values import encode, error_report

MAX_CALLS = 400
MAX_TEXT_CHARS = 1500
_RAISABLE = {
    kind.__name__: kind
    for kind in (ValueError, TypeError, KeyError, IndexError, LookupError, ZeroDivisionError, ArithmeticError)
}


def preload_pytest() -> None:
    """Import what pytest would load in every run."""
    from _pytest.config import default_plugins

    for name in default_plugins:
        importlib.import_module(f"_pytest.{name}")
    for name in ("pytest_asyncio.plugin", "_pytest._argcomplete", "pdb", "readline"):
        importlib.import_module(name)


def run_own_tests(arguments: dict, folder: str, deadline: float) -> dict:
    """Return `{"reports": [...], "end": ...}`; a report has `test`, `call`, `collect` or `finished`.

    Args:
        arguments: `source_root`, `module`, `tools` (names), `tests` (paths of test files or folders), `table` (None
            records, a dict replays), `is_verbose` (pytest's own explanations; slower).
        folder: The work folder that holds the package.
        deadline: Monotonic time by which the answer must be there.
    """
    reports, end = run_worker(lambda emit: _run(emit, arguments, folder), deadline)
    return {"reports": reports, "end": end}


def call_key(tool: str, options: Any, value: Any) -> str:
    """Return the key of a call in a table."""
    return json.dumps([tool, options, value], sort_keys=True)


def stranger_key(tool: str) -> str:
    """Return the key of all calls of a tool that have none of their own."""
    return json.dumps([tool])


class Stage:
    """Stands between the tests and the tools."""

    def __init__(self, emit: Emit, tools: list[str], table: dict[str, dict] | None) -> None:
        """Record where there is no table, else replay."""
        self.emit = emit
        self.tools = tools
        self.table = table
        self.test = ""
        self._num_calls = 0

    def intercept(self) -> None:
        """Wrap every wanted function as it is registered."""
        from nat.cli.type_registry import TypeRegistry

        register = TypeRegistry.register_function

        def registering(registry: Any, info: Any) -> Any:
            if info.local_name in self.tools:
                info = info.model_copy(update={"build_fn": self._wrap_build(info.build_fn, info.local_name)})
            return register(registry, info)

        TypeRegistry.register_function = registering

    def _wrap_build(self, build: Callable[..., Any], tool: str) -> Callable[..., Any]:
        @asynccontextmanager
        async def built(config: Any, builder: Any) -> AsyncIterator[Any]:
            async with build(config, builder) as made:
                yield self._wrap_made(made, tool, config)

        return built

    def _wrap_made(self, made: Any, tool: str, config: Any) -> Any:
        names = [name for name in type(config).model_fields if name not in ("type", "name", "middleware")]
        options = {name: encode(getattr(config, name)) for name in names}
        if inspect.isfunction(made):
            return self._wrap_call(made, tool, options)
        for attribute in ("single_fn", "_ainvoke"):  # a FunctionInfo, or a Function
            function = getattr(made, attribute, None)
            if function is not None:
                setattr(made, attribute, self._wrap_call(function, tool, options))
                break
        return made

    def _wrap_call(self, function: Callable[..., Any], tool: str, options: dict) -> Callable[..., Any]:
        signature = inspect.signature(function)

        @wraps(function)
        async def called(*args: Any, **kwargs: Any) -> Any:
            value = _plain_input(signature, args, kwargs)
            if self.table is not None:
                return self._replay(tool, call_key(tool, options, value))
            report = {"call": tool, "options": options, "input": value, "by": self.test}
            try:
                result = await function(*args, **kwargs)
            except BaseException as error:
                self._record(report | error_report(error))
                raise
            self._record(report | {"output": encode(result)})
            return result

        return called

    def _record(self, report: dict) -> None:
        self._num_calls += 1
        if self._num_calls <= MAX_CALLS:
            self.emit(report)

    def _replay(self, tool: str, key: str) -> Any:
        assert self.table is not None
        outcome = self.table.get(key) or self.table.get(stranger_key(tool))
        if outcome is None:
            raise LookupError("this call was not made in the recorded run")
        if "raises" in outcome:
            raise _RAISABLE.get(outcome["raises"], RuntimeError)(outcome.get("message", "refused"))
        return json.loads(outcome["output"])  # a fresh value each time


def _plain_input(signature: inspect.Signature, args: tuple, kwargs: dict) -> Any:
    """Return a call's input as one JSON value: the only argument itself, several as an object."""
    values = dict(signature.bind(*args, **kwargs).arguments)
    if len(values) == 1:
        only = next(iter(values.values()))
        values = dict(only.model_dump()) if hasattr(only, "model_dump") else {"": only}
    plain = {name: encode(value) for name, value in values.items()}
    return next(iter(plain.values())) if len(plain) == 1 else plain


class Recorder:
    """A pytest plugin: reports what cannot be collected and how every test went."""

    def __init__(self, stage: Stage) -> None:
        """Keep where to report."""
        self._stage = stage

    def pytest_collectreport(self, report: Any) -> None:
        """Report what cannot be collected."""
        if report.failed or report.skipped:
            text = str(report.longrepr)[-MAX_TEXT_CHARS:]
            self._stage.emit({"collect": report.nodeid, "outcome": report.outcome, "text": text})

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Say whose calls come next."""
        self._stage.test = nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Report the call, and set-up or tear-down where they failed."""
        if report.when == "call" or report.outcome != "passed":
            # An expected failure counts as skipped, an unexpected pass as failed: neither shows anything.
            outcome = "xfail" if hasattr(report, "wasxfail") else report.outcome
            text = "" if outcome == "passed" else str(report.longrepr)[-MAX_TEXT_CHARS:]
            self._stage.emit({"test": report.nodeid, "outcome": outcome, "text": text})


def _run(emit: Emit, arguments: dict, folder: str) -> None:
    """Run pytest without any conftest, ini file or plugin of the package."""
    stage = Stage(emit, arguments["tools"], arguments["table"])
    stage.intercept()
    import_package(arguments, folder)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["--noconftest", "-c", os.devnull, "--rootdir", folder, "--import-mode=importlib", "-q"]
    options += ["--continue-on-collection-errors", "-p", "no:cacheprovider", "-p", "no:faulthandler"]
    options += ["-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto"]
    options += ["-o", "asyncio_default_fixture_loop_scope=function"]
    if arguments["is_verbose"]:
        options.append("--tb=short")
    else:
        options += ["--assert=plain", "--tb=line", "--capture=no"]
        options += ["-p", "no:unraisableexception", "-p", "no:threadexception"]  # they collect garbage thrice
    paths = [f"{folder}/{path}" for path in arguments["tests"]]
    with suppress(SystemExit):
        code = pytest.main([*options, *paths], plugins=[Recorder(stage)])
        emit({"finished": int(code)})
