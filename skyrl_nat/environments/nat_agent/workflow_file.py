"""What the workflow file is worth by itself, said by NAT in a sandbox where no code of the package is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skyrl_nat.environments.nat_agent.compare import is_same
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, load_yaml
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

_BASE_KEYS = ("_type", "name", "middleware")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFile:
    """Evidence about the file alone."""

    is_valid: bool = False
    """Whether NAT loads and builds it, the package's functions given."""
    is_clean: bool = False
    """Whether it has no key that NAT would ignore."""
    has_options: bool = False
    """Whether the documented options have the values that the task names."""
    findings: list[str] = field(default_factory=list[str])


def check_workflow_file(sandbox: Sandbox, spec: AgentSpec, static: StaticReport) -> WorkflowFile:
    """Return what NAT says of the file.

    Raises:
        SandboxError: The sandbox failed.
    """
    text = static.files[static.config]
    functions: dict[str, dict[str, Any]] = {name: {} for name in static.own_types}
    functions |= {tool.name: {o.name: [o.type, o.default] for o in tool.config} for tool in spec.functions}
    arguments = {"config": static.config, "functions": functions}
    job = SandboxJob(kind="nat_workflow_file", files={static.config: text}, arguments=arguments)
    reports = sandbox.run(job).output.get("stages", [])
    stages = {str(item["stage"]): item for item in reports}
    passed = {name for name, item in stages.items() if item.get("ok") is True}
    findings = [f"{name}: {item['error']}" for name, item in stages.items() if item.get("ok") is False]
    config = load_yaml(text)
    stray = _stray_keys(spec, static, config if isinstance(config, dict) else {})
    findings += [f"options: unknown option {key}" for key in stray]
    unset = _unset_options(spec, stages.get("values", {}).get("values", {}))
    return WorkflowFile(
        is_valid={"schema", "build"} <= passed,
        is_clean="options" in passed and not stray,
        has_options=not unset,
        findings=[*findings, *unset],
    )


def _stray_keys(spec: AgentSpec, static: StaticReport, config: Mapping[str, Any]) -> list[str]:
    """Return keys of the package's own functions that neither the task nor the package knows."""
    names = {tool.name for tool in spec.functions} | set(static.own_types)
    known = {*_BASE_KEYS, *static.own_fields, *(option.name for tool in spec.functions for option in tool.config)}
    sections = config.get("functions")
    entries = {f"functions.{name}": item for name, item in sections.items()} if isinstance(sections, dict) else {}
    entries["workflow"] = config.get("workflow")
    return [
        f"{path}.{key}"
        for path, item in entries.items()
        if isinstance(item, dict) and isinstance(item.get("_type"), str) and item["_type"] in names
        for key in item
        if key not in known
    ]


def _unset_options(spec: AgentSpec, values: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"options: {tool.name}.{option.name} must be {option.value!r} in the workflow file"
        for tool in spec.functions
        for option in tool.config
        if not is_same(option.value, values.get(tool.name, {}).get(option.name))
    ]
