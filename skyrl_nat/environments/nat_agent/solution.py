"""An honest answer to a task as files: what a careful developer would write from the spec and right bodies.

Used to prove tasks and as the target of imitation; the policy never sees it.
"""

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from skyrl_nat.environments.nat_agent.payload import AgentSpec, ToolSpec, Vector, WorkflowType

NIM_MODEL = "meta/llama-3.1-8b-instruct"


def render_solution(
    spec: AgentSpec, bodies: Mapping[str, str], cases: Iterable[Vector] = (), refused: Iterable[Vector] = ()
) -> dict[str, str]:
    """Return the files of a package.

    Args:
        spec: The task.
        bodies: Function -> body of its inner function, unindented.
        cases: Calls for the package's own tests, where the task asks for tests.
        refused: Calls that must raise.
    """
    files = {
        f"{spec.package}/register.py": render_register(spec, bodies),
        f"{spec.package}/config.yml": render_config(spec),
    }
    if spec.integration.is_installable:
        files[f"{spec.package}/__init__.py"] = ""
        files["pyproject.toml"] = render_pyproject(spec)
    if spec.integration.mcp:
        files["scripts/setup_mcp.sh"] = (
            "#!/usr/bin/env bash\nset -euo pipefail\n"
            f'exec nat mcp serve --config_file {spec.package}/config.yml --port "${{MCP_PORT:-9901}}"\n'
        )
    if spec.integration.num_tests:
        files["tests/test_tools.py"] = _tests(spec, list(cases), list(refused))
    return files


def render_register(spec: AgentSpec, bodies: Mapping[str, str]) -> str:
    """Return the module that registers every function."""
    names = (
        "Builder, FunctionBaseConfig, FunctionInfo, register_function"
        if spec.is_full
        else ("Builder, FunctionBaseConfig, register_function")
    )
    code = f"from nat.plugin_api import {names}\n"
    if spec.is_full:
        code = f'"""{spec.name}: {spec.description}"""\n\n{code}'
    return code + "".join("\n\n" + _function(tool, bodies[tool.name], spec.is_full) for tool in spec.functions)


def _function(tool: ToolSpec, body: str, is_full: bool) -> str:
    name = config_class(tool.name)
    options = [f"    {option.name}: {option.type} = {option.default!r}" for option in tool.config] or ["    pass"]
    arguments = ", ".join(f"{name}: {kind}" for name, kind in tool.arguments.items())
    uses = [f'    {used} = await builder.get_function("{used}")' for used in tool.uses]
    document = [f'        """{tool.description}"""'] if is_full else []
    given = "FunctionInfo.from_fn(run, description=run.__doc__)" if is_full else "run"
    lines = [
        f'class {name}(FunctionBaseConfig, name="{tool.name}"):',
        *options,
        "",
        "",
        f"@register_function(config_type={name})",
        f"async def {tool.name}(config: {name}, builder: Builder):",
        *uses,
        f"    async def run({arguments}) -> {tool.returns}:",
        *document,
        textwrap.indent(body.rstrip("\n"), "        "),
        "",
        f"    yield {given}",
    ]
    return "\n".join(lines) + "\n"


def config_class(tool: str) -> str:
    """Return the name of a function's configuration class."""
    return "".join(word.capitalize() for word in tool.split("_")) + "Config"


def render_config(spec: AgentSpec) -> str:
    """Return the workflow file."""
    kind = spec.workflow.type
    config: dict[str, Any] = {}
    if kind is not WorkflowType.single:
        config["functions"] = {tool.name: _entry(tool) for tool in spec.tools}
    if spec.integration.llms:
        config["llms"] = {name: {"_type": "nim", "model_name": NIM_MODEL} for name in spec.integration.llms}
    uses = list(spec.workflow.uses)
    if kind in (WorkflowType.single, WorkflowType.custom):
        config["workflow"] = _entry(spec.functions[-1])
    elif kind is WorkflowType.sequential_executor:
        config["workflow"] = {"_type": kind.value, "tool_list": uses}
    else:
        key = "branches" if kind is WorkflowType.router_agent else "tool_names"
        config["workflow"] = {"_type": kind.value, key: uses, "llm_name": spec.integration.llms[0]}
    return yaml.safe_dump(config, sort_keys=False)


def _entry(tool: ToolSpec) -> dict[str, Any]:
    return {"_type": tool.name, **{option.name: option.value for option in tool.config}}


def render_pyproject(spec: AgentSpec) -> str:
    """Return what makes a package installable, and known to NAT once it is installed."""
    return (
        f'[build-system]\nrequires = ["setuptools>=64"]\nbuild-backend = "setuptools.build_meta"\n\n[project]\n'
        f'name = "{spec.package}"\nversion = "0.1.0"\nrequires-python = ">=3.11"\n'
        f'dependencies = ["nvidia-nat-core", "nvidia-nat-langchain", "nvidia-nat-mcp"]\n\n'
        f"[project.entry-points.'nat.components']\n{spec.package} = \"{spec.package}.register\"\n"
    )


def _tests(spec: AgentSpec, cases: list[Vector], refused: list[Vector]) -> str:
    classes = {tool.name: config_class(tool.name) for tool in spec.functions}
    lines = [
        '"""Every function through NAT, as its workflow file sets it."""',
        "",
        "from typing import Any",
        "",
        "import pytest",
        f"from {spec.package}.register import {', '.join(sorted(classes.values()))}",
        "from nat.builder.workflow_builder import WorkflowBuilder",
        "",
        "CONFIGS = {",
        *(f'    "{tool.name}": {classes[tool.name]}({_options(tool)}),' for tool in spec.functions),
        "}",
        "",
        "",
        "async def call(name: str, value: Any) -> Any:",
        "    async with WorkflowBuilder() as builder:",
        "        functions = {other: await builder.add_function(other, config) for other, config in CONFIGS.items()}",
        "        return await functions[name].ainvoke(value)",
    ]
    for tool in spec.functions:
        lines += _tests_of(tool, [case for case in cases if case.tool == tool.name])
        bad = [case for case in refused if case.tool == tool.name]
        if bad:
            lines += ["", "", *_parametrized("value", [repr(case.input) for case in bad])]
            lines += [f"async def test_{tool.name}_refuses(value: Any) -> None:"]
            lines += [f"    with pytest.raises({bad[0].raises}):", f'        await call("{tool.name}", value)']
    return "\n".join(lines) + "\n"


def _tests_of(tool: ToolSpec, cases: list[Vector]) -> list[str]:
    rows = [f"({case.input!r}, {case.output!r})" for case in cases]
    expected = "pytest.approx(expected)" if tool.returns == "float" else "expected"
    return [
        "",
        "",
        *_parametrized('("value", "expected")', rows),
        f"async def test_{tool.name}(value: Any, expected: Any) -> None:",
        f'    assert await call("{tool.name}", value) == {expected}',
    ]


def _parametrized(names: str, rows: list[str]) -> list[str]:
    quoted = names if names.startswith("(") else f'"{names}"'
    return [f"@pytest.mark.parametrize({quoted}, [", *(f"    {row}," for row in rows), "])"]


def _options(tool: ToolSpec) -> str:
    return ", ".join(f"{option.name}={option.value!r}" for option in tool.config)
