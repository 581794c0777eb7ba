"""A task's visible half as readable text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from skyrl_nat.environments.nat_agent.payload import AgentSpec, ToolSpec, WorkflowType

_PLAIN_SCHEMA = ("type", "items", "properties", "required")


def signature(tool: ToolSpec) -> str:
    """Return a tool's signature as Python text."""
    arguments = ", ".join(f"{name}: {kind}" for name, kind in tool.arguments.items())
    return f"{tool.name}({arguments}) -> {tool.returns}"


def render_spec(spec: AgentSpec) -> str:
    """Return everything that a task says."""
    lines = [f"Write the NAT package `{spec.package}`: {spec.name}.", spec.description, "", "# Tools"]
    for tool in spec.tools:
        lines += ["", *_tool_lines(tool)]
    lines += ["", "# Workflow", "", *_workflow_lines(spec), "", "# Files", "", *_file_lines(spec)]
    if spec.e2e:
        lines += ["", "# Runs of the workflow", ""]
        lines += [f"- {json.dumps(run.input)} -> {json.dumps(run.output)}" for run in spec.e2e]
    return "\n".join(lines)


def _tool_lines(tool: ToolSpec) -> Iterator[str]:
    yield f"## `{signature(tool)}`"
    yield tool.description
    yield from (f"- {rule}" for rule in tool.behaviour)
    for name, schema in tool.inputs["properties"].items():
        if limits := _limits(schema):
            yield f"- Argument {name}: {limits}"
    if limits := _limits(tool.output):
        yield f"- Output: {limits}"
    yield from (f"- Raise {error.raises} if {error.when}." for error in tool.errors)
    for option in tool.config:
        yield (
            f"- Option `{option.name}: {option.type} = {option.default!r}` of its configuration class; "
            f"config.yml sets it to {json.dumps(option.value)}."
        )
    if tool.uses:
        yield f"- Calls {_names(tool.uses)} through NAT."
    if rule := _compare_text(tool.compare):
        yield f"- {rule}"
    yield from (f"- Example: {json.dumps(item.input)} -> {json.dumps(item.output)}" for item in tool.examples)


def _limits(schema: Mapping[str, Any]) -> str:
    """Return what a schema says beyond its type."""
    rest = {key: value for key, value in schema.items() if key not in _PLAIN_SCHEMA}
    return json.dumps(rest) if rest else ""


def _compare_text(rule: Mapping[str, Any]) -> str:
    if rule["kind"] == "float":
        return f"Outputs are right within {', '.join(f'{k} {v}' for k, v in rule.items() if k != 'kind')}."
    return "The order of the output's items does not matter." if rule["kind"] == "unordered" else ""


def _workflow_lines(spec: AgentSpec) -> Iterator[str]:
    workflow = spec.workflow
    if workflow.type is WorkflowType.single:
        yield f"The tool itself: `_type: {spec.workflow_type}`."
    elif workflow.function is not None:
        yield f"A function of the package, registered like the tools: `_type: {spec.workflow_type}`."
        yield from _tool_lines(workflow.function)
    elif workflow.type is WorkflowType.sequential_executor:
        yield f"`_type: sequential_executor` that runs {_names(workflow.uses)}, in this order."
    else:
        yield f"`_type: {workflow.type}` over {_names(workflow.uses)}, with the LLM {_names(spec.integration.llms)}."


def _file_lines(spec: AgentSpec) -> Iterator[str]:
    yield f"- {spec.package}/register.py"
    yield f"- {spec.package}/config.yml"
    if spec.integration.num_tests:
        yield f"- tests/test_tools.py with at least {spec.integration.num_tests} tests"
    if spec.integration.mcp:
        yield f"- scripts/setup_mcp.sh, which serves {_names(spec.integration.mcp)}"
    if spec.integration.is_installable:
        yield "- pyproject.toml"
    if not spec.is_full:
        yield "No other file is asked for."


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
