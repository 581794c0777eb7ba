"""The two halves of a task as records: what the policy sees and what only the validator sees."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyrl_nat.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a tool's configuration class."""

    name: str
    type: str
    default: Any
    value: Any
    """What the workflow file must set it to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One visible input with its right output; both JSON values."""

    input: Any
    output: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool, or the workflow function that uses several."""

    name: str
    """Its registered type name, `_type` in the workflow file."""
    arguments: dict[str, str]
    """Name -> Python type. One argument is passed as it is, several as one object."""
    returns: str
    description: str
    raises: str = ""
    """When it must raise ValueError; empty for never."""
    options: tuple[Option, ...] = ()
    uses: tuple[str, ...] = ()
    """Other tools that it calls; only for a workflow function."""
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The visible half of a task."""

    name: str
    package: str
    """Name of the Python package to write."""
    tools: tuple[ToolSpec, ...]
    workflow: ToolSpec | None
    """None where the only tool is the workflow itself."""

    @property
    def functions(self) -> tuple[ToolSpec, ...]:
        """All functions to register, the workflow's last."""
        return self.tools if self.workflow is None else (*self.tools, self.workflow)

    @property
    def workflow_type(self) -> str:
        """The `_type` of the workflow."""
        return self.functions[-1].name


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One hidden call; `raises` names an exception class, else `output` is the right answer."""

    tool: str
    """Empty for the workflow, end to end."""
    input: Any
    output: Any = None
    raises: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenSpec:
    """The hidden half of a task."""

    vectors: tuple[Vector, ...]
    errors: tuple[Vector, ...]
    e2e: tuple[Vector, ...]
    test_files: dict[str, str]
    """pytest files; they hold properties, never an expected value of a vector."""
    expected_tests: tuple[str, ...]
    """Ids that must all be reported, `file.py::test`."""
    reference: dict[str, str]
    """Files of a right answer; never sent to a sandbox in training."""


def parse_spec(payload: Mapping[str, Any]) -> AgentSpec:
    """Return the visible half as records.

    Raises:
        DataError: A field is missing or there is no tool.
    """
    try:
        tools = tuple(_tool(item) for item in payload["tools"])
        workflow = _tool(payload["workflow"]) if payload.get("workflow") else None
        spec = AgentSpec(name=payload["name"], package=payload["package"], tools=tools, workflow=workflow)
    except (KeyError, TypeError, AttributeError) as error:
        raise _bad("payload", payload.get("name"), error) from error
    if not tools or (workflow is None and len(tools) != 1):
        raise DataError(
            f"payload of task {spec.name!r} must have one tool, or several and a workflow; got {len(tools)} tools "
            f"{'with' if workflow else 'without'} a workflow. Build the file again"
        )
    return spec


def parse_hidden(hidden: Mapping[str, Any]) -> HiddenSpec:
    """Return the hidden half as records.

    Raises:
        DataError: A field is missing, or there is nothing to check.
    """
    try:
        spec = HiddenSpec(
            vectors=tuple(Vector(**item) for item in hidden["vectors"]),
            errors=tuple(Vector(**item) for item in hidden["errors"]),
            e2e=tuple(Vector(tool="", **item) for item in hidden["e2e"]),
            test_files=dict(hidden["tests"]["files"]),
            expected_tests=tuple(hidden["tests"]["expected"]),
            reference=dict(hidden["reference"]["files"]),
        )
    except (KeyError, TypeError) as error:
        raise _bad("hidden part", hidden.get("name"), error) from error
    if not spec.vectors or not spec.e2e or not spec.expected_tests:
        raise DataError(
            "the hidden part of a nat_agent task must have vectors, e2e cases and expected tests, got "
            f"{len(spec.vectors)}, {len(spec.e2e)} and {len(spec.expected_tests)}. Build the file again"
        )
    return spec


def _bad(what: str, name: Any, error: Exception) -> DataError:
    return DataError(
        f"the {what} of a nat_agent task must have every field of its record; task {name!r} has not: "
        f"{type(error).__name__}: {error}. Build the file again with scripts/build_nat_sample.py"
    )


def _tool(item: Mapping[str, Any]) -> ToolSpec:
    return ToolSpec(
        name=item["name"],
        arguments={argument["name"]: argument["type"] for argument in item["arguments"]},
        returns=item["returns"],
        description=item["description"],
        raises=item.get("raises", ""),
        options=tuple(Option(**option) for option in item.get("options", [])),
        uses=tuple(item.get("uses", [])),
        examples=tuple(Example(**example) for example in item.get("examples", [])),
    )
