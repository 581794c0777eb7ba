"""The two halves of a task as records: what the policy sees and what only the validator sees.

Both travel as JSON (`Task.payload`, `Task.hidden`; columns of their own in the parquet file). Nothing of the hidden
half may enter a prompt, an observation, a log of the policy or a sandbox that holds the policy's files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, TypeVar

from skyrl_nat.errors import DataError

T = TypeVar("T")
SPEC_VERSION = 2
PYTHON_TYPES = {"integer": "int", "number": "float", "string": "str", "boolean": "bool", "object": "dict"}


class WorkflowType(StrEnum):
    """What runs the agent end to end; all but the first two are NAT's own."""

    single = "single"
    """The only tool is the workflow."""
    custom = "custom"
    """A workflow function that the policy writes."""
    sequential_executor = "sequential_executor"
    react_agent = "react_agent"
    tool_calling_agent = "tool_calling_agent"
    router_agent = "router_agent"

    @property
    def has_llm(self) -> bool:
        """Whether the YAML must name an LLM."""
        return self in (WorkflowType.react_agent, WorkflowType.tool_calling_agent, WorkflowType.router_agent)


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
    """One visible input with its output; both JSON values."""

    input: Any
    output: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCase:
    """One documented refusal."""

    when: str
    raises: str = "ValueError"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """One tool, or the workflow function that uses several."""

    name: str
    """Its registered type name, `_type` in the workflow file."""
    description: str
    inputs: dict[str, Any]
    """JSON schema of an object; its only property is passed as it is, several are passed as one object."""
    output: dict[str, Any]
    """JSON schema."""
    behaviour: tuple[str, ...] = ()
    """Further rules, one sentence each."""
    errors: tuple[ErrorCase, ...] = ()
    config: tuple[Option, ...] = ()
    uses: tuple[str, ...] = ()
    """Other tools that it calls; only for a workflow function."""
    examples: tuple[Example, ...] = ()
    compare: dict[str, Any] = field(default_factory=lambda: {"kind": "exact"})
    """Rule of `compare.is_same`: `exact`, `float` with `abs_tol` and `rel_tol`, or `unordered`."""

    @property
    def arguments(self) -> dict[str, str]:
        """Argument name -> Python type."""
        return {name: python_type(schema) for name, schema in self.inputs["properties"].items()}

    @property
    def returns(self) -> str:
        """Python type of the answer."""
        return python_type(self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """What runs end to end."""

    type: WorkflowType
    uses: tuple[str, ...]
    """Tools in the order of use (sequential_executor), or the ones to offer."""
    function: ToolSpec | None = None
    """Only for `custom`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Integration:
    """What surrounds the tools."""

    llms: tuple[str, ...] = ()
    """Names that the YAML's `llms` must have."""
    mcp: tuple[str, ...] = ()
    """Tools that the package must serve over MCP, by a start script; empty for none."""
    num_tests: int = 0
    """pytest tests that the package must bring at least; 0 asks for none."""
    is_installable: bool = False
    """Whether a pyproject.toml with the entry point `nat.components` is asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEnd:
    """One run of the workflow; visible ones carry no script."""

    input: Any
    output: Any = None
    script: tuple[dict[str, Any], ...] = ()
    """What the LLM answers, in order: `{"call": tool, "input": value}`, `{"say": text}`, or `{"final": template}`
    whose `{0}`, `{1}` become what the calls gave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The visible half of a task."""

    name: str
    package: str
    """Name of the Python package to write."""
    tools: tuple[ToolSpec, ...]
    workflow: WorkflowSpec
    description: str = ""
    integration: Integration = field(default_factory=Integration)
    e2e: tuple[EndToEnd, ...] = ()

    @property
    def functions(self) -> tuple[ToolSpec, ...]:
        """All functions to register, the workflow's own last."""
        return self.tools if self.workflow.function is None else (*self.tools, self.workflow.function)

    @property
    def workflow_type(self) -> str:
        """The `_type` of the workflow section."""
        is_own = self.workflow.type in (WorkflowType.single, WorkflowType.custom)
        return self.functions[-1].name if is_own else self.workflow.type.value

    @property
    def is_full(self) -> bool:
        """Whether more than the two files of a bare package is asked for."""
        return self.integration.num_tests > 0 or bool(self.integration.mcp) or self.integration.is_installable

    def tool(self, name: str) -> ToolSpec:
        """Return a function by name."""
        return next(tool for tool in self.functions if tool.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vector:
    """One hidden call; `raises` names an exception class, else `output` is the right answer."""

    tool: str
    input: Any
    output: Any = None
    raises: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The right answer of one function as source: `async def run(...)`, with `config` and the tools it uses."""

    source: str
    config: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A wrong version of one reference; the policy's own tests must notice it."""

    tool: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenSpec:
    """The hidden half of a task."""

    reference: dict[str, Reference]
    generators: dict[str, dict[str, Any]]
    """Function -> argument -> generator (`generators.draw`)."""
    vectors: tuple[Vector, ...]
    errors: tuple[Vector, ...] = ()
    properties: tuple[dict[str, Any], ...] = ()
    """Laws of the references, checked when the data is made (`properties.KINDS`)."""
    mutants: tuple[Mutant, ...] = ()
    e2e: tuple[EndToEnd, ...] = ()
    canaries: tuple[Vector, ...] = ()
    """Visible examples whose shown output is wrong on purpose; who repeats it has memorised, not understood."""
    solution: dict[str, str] = field(default_factory=dict[str, str])
    """Files of an honest answer."""


def python_type(schema: Mapping[str, Any]) -> str:
    """Return the Python annotation of a JSON schema."""
    if schema.get("type") == "array":
        return f"list[{python_type(schema['items'])}]"
    return PYTHON_TYPES[schema["type"]]


def parse_spec(payload: Mapping[str, Any]) -> AgentSpec:
    """Return the visible half as records.

    Raises:
        DataError: A field is missing or unknown, or tools and workflow do not fit.
    """
    try:
        if payload["spec_version"] != SPEC_VERSION:
            raise ValueError(f"spec_version must be {SPEC_VERSION}, got {payload['spec_version']!r}")
        workflow = payload["workflow"]
        function = workflow.get("function")
        spec = AgentSpec(
            name=payload["name"],
            package=payload["package"],
            description=payload.get("description", ""),
            tools=tuple(_tool(item) for item in payload["tools"]),
            workflow=WorkflowSpec(
                type=WorkflowType(workflow["type"]),
                uses=tuple(workflow["uses"]),
                function=_tool(function) if function else None,
            ),
            integration=_integration(payload.get("integration", {})),
            e2e=tuple(_record(EndToEnd, item) for item in payload.get("e2e", [])),
        )
        _check_shape(spec)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _bad("payload", payload.get("name"), error) from error
    return spec


def parse_hidden(hidden: Mapping[str, Any]) -> HiddenSpec:
    """Return the hidden half as records.

    Raises:
        DataError: A field is missing or unknown, or there is nothing to check.
    """
    try:
        spec = HiddenSpec(
            reference={name: _record(Reference, item) for name, item in hidden["reference"].items()},
            generators=dict(hidden["generators"]),
            vectors=tuple(_record(Vector, item) for item in hidden["vectors"]),
            errors=tuple(_record(Vector, item) for item in hidden.get("errors", [])),
            properties=tuple(hidden.get("properties", [])),
            mutants=tuple(_record(Mutant, item) for item in hidden.get("mutants", [])),
            e2e=tuple(_record(EndToEnd, {**item, "script": tuple(item.get("script", []))}) for item in hidden["e2e"]),
            canaries=tuple(_record(Vector, item) for item in hidden.get("canaries", [])),
            solution=dict(hidden.get("solution", {})),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _bad("hidden part", None, error) from error
    if not spec.vectors or not spec.e2e or not spec.reference:
        raise DataError(
            "the hidden part of a nat_agent task must have references, vectors and e2e cases, got "
            f"{len(spec.reference)}, {len(spec.vectors)} and {len(spec.e2e)}. Build the file again"
        )
    return spec


def _check_shape(spec: AgentSpec) -> None:
    names = [tool.name for tool in spec.functions]
    if not spec.tools or len(set(names)) != len(names):
        raise ValueError(f"tools must be there and have names of their own, got {names}")
    kind = spec.workflow.type
    if (kind is WorkflowType.custom) != (spec.workflow.function is not None):
        raise ValueError(f"a workflow function must be given for custom workflows and for no other, type is {kind}")
    if kind is WorkflowType.single and len(spec.tools) != 1:
        raise ValueError(f"a single workflow must have one tool, got {len(spec.tools)}")
    unknown = [name for name in (*spec.workflow.uses, *spec.integration.mcp) if name not in names]
    if unknown:
        raise ValueError(f"workflow.uses and integration.mcp must name tools, got {', '.join(unknown)}")
    if kind.has_llm and not spec.integration.llms:
        raise ValueError(f"integration.llms must name the LLM of a {kind}")


def _tool(item: Mapping[str, Any]) -> ToolSpec:
    if item["inputs"]["type"] != "object" or not item["inputs"]["properties"]:
        raise ValueError(f"inputs of {item['name']} must be the JSON schema of an object with properties")
    values = dict(item)
    values["behaviour"] = tuple(item.get("behaviour", []))
    values["uses"] = tuple(item.get("uses", []))
    values["errors"] = tuple(_record(ErrorCase, error) for error in item.get("errors", []))
    values["config"] = tuple(_record(Option, option) for option in item.get("config", []))
    values["examples"] = tuple(_record(Example, example) for example in item.get("examples", []))
    tool = _record(ToolSpec, values)
    _ = (tool.arguments, tool.returns)  # raises KeyError for a type that has no Python counterpart
    return tool


def _integration(item: Mapping[str, Any]) -> Integration:
    values = dict(item)
    for name in ("llms", "mcp"):
        values[name] = tuple(item.get(name, []))
    return _record(Integration, values)


def _record(kind: type[T], item: Mapping[str, Any]) -> T:
    unknown = sorted(set(item) - {entry.name for entry in fields(kind)})  # pyright: ignore[reportArgumentType]
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {', '.join(unknown)}")
    return kind(**item)


def _bad(what: str, name: Any, error: Exception) -> DataError:
    return DataError(
        f"the {what} of a nat_agent task must have every field of its record and no other; task {name!r} has not: "
        f"{type(error).__name__}: {error}. Build the file again with scripts/build_nat_sample.py"
    )
