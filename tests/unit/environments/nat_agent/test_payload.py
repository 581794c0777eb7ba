"""The two halves of a task as records: whole ones are read, all others are refused by name."""

import copy
from typing import Any

import pytest

from skyrl_nat.environments.nat_agent.payload import WorkflowType, parse_hidden, parse_spec, python_type
from skyrl_nat.errors import DataError

TOOL: dict[str, Any] = {
    "name": "area",
    "description": "Multiplies.",
    "inputs": {"type": "object", "properties": {"width": {"type": "integer"}, "names": {"type": "array"}}},
    "output": {"type": "number"},
}
TOOL["inputs"]["properties"]["names"]["items"] = {"type": "string"}
PAYLOAD: dict[str, Any] = {
    "spec_version": 2,
    "name": "n",
    "package": "agent",
    "tools": [TOOL],
    "workflow": {"type": "single", "uses": ["area"]},
}
HIDDEN: dict[str, Any] = {
    "reference": {"area": {"source": "async def run(x):\n    return x\n"}},
    "generators": {},
    "vectors": [{"tool": "area", "input": 1, "output": 2}],
    "e2e": [{"input": 1, "output": 2}],
}


def changed(value: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(value), **changes}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "integer"}, "int"),
        ({"type": "number"}, "float"),
        ({"type": "string"}, "str"),
        ({"type": "boolean"}, "bool"),
        ({"type": "object"}, "dict"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, "list[list[int]]"),
    ],
)
def test_schemas_name_python_types(schema: dict[str, Any], expected: str) -> None:
    assert python_type(schema) == expected


def test_visible_half_is_read_with_defaults() -> None:
    spec = parse_spec(PAYLOAD)
    assert spec.functions == spec.tools
    assert spec.tool("area").arguments == {"width": "int", "names": "list[str]"}
    assert (spec.tool("area").returns, spec.workflow_type, spec.is_full) == ("float", "area", False)
    assert spec.tool("area").compare == {"kind": "exact"}


def test_workflow_function_comes_last_and_names_the_workflow() -> None:
    workflow = {"type": "custom", "uses": ["area"], "function": changed(TOOL, name="report", uses=["area"])}
    spec = parse_spec(changed(PAYLOAD, workflow=workflow))
    assert [tool.name for tool in spec.functions] == ["area", "report"]
    assert spec.workflow_type == "report"
    assert spec.tool("report").uses == ("area",)


@pytest.mark.parametrize("integration", [{"num_tests": 1}, {"mcp": ["area"]}, {"is_installable": True}])
def test_more_than_two_files_make_a_full_package(integration: dict[str, Any]) -> None:
    assert parse_spec(changed(PAYLOAD, integration=integration)).is_full


def test_agents_name_their_own_type_and_need_an_llm() -> None:
    with_llm = [kind for kind in WorkflowType if kind.has_llm]
    assert with_llm == ["react_agent", "tool_calling_agent", "router_agent"]
    for kind in with_llm:
        payload = changed(PAYLOAD, workflow={"type": kind, "uses": ["area"]})
        with pytest.raises(DataError, match=r"integration\.llms must name the LLM"):
            parse_spec(payload)
        assert parse_spec({**payload, "integration": {"llms": ["main"]}}).workflow_type == kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"spec_version": 1}, "spec_version must be 2, got 1"),
        ({"package": None, "tools": []}, "tools must be there"),
        ({"tools": [TOOL, TOOL]}, "names of their own"),
        ({"tools": [TOOL, changed(TOOL, name="other")]}, "must have one tool, got 2"),
        ({"tools": [changed(TOOL, inputs={"type": "object", "properties": {}})]}, "inputs of area"),
        ({"tools": [changed(TOOL, output={"type": "null"})]}, "KeyError"),
        ({"tools": [changed(TOOL, colour="red")]}, "ToolSpec has no field colour"),
        ({"tools": [changed(TOOL, errors=[{"if": "x"}])]}, "ErrorCase has no field if"),
        ({"tools": 3}, "TypeError"),
        ({"workflow": {"type": "custom", "uses": []}}, "must be given for custom workflows"),
        ({"workflow": {"type": "single", "uses": [], "function": TOOL}}, "names of their own"),
        ({"workflow": {"type": "dance", "uses": []}}, "dance"),
        ({"workflow": {"type": "single", "uses": ["nobody"]}}, "got nobody"),
        ({"integration": {"mcp": ["nobody"]}}, "got nobody"),
        ({"integration": {"cloud": True}}, "Integration has no field cloud"),
        ({"e2e": [{"input": 1, "answer": 2}]}, "EndToEnd has no field answer"),
    ],
)
def test_visible_half_that_is_not_whole_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        parse_spec(changed(PAYLOAD, **change))
    assert "task 'n'" in str(caught.value)


@pytest.mark.parametrize("name", [name for name in PAYLOAD if name != "name"])
def test_missing_field_of_the_visible_half_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=name):
        parse_spec({key: value for key, value in PAYLOAD.items() if key != name})


def test_hidden_half_is_read_with_defaults() -> None:
    hidden = parse_hidden(HIDDEN)
    assert hidden.reference["area"].config == {}
    assert (hidden.vectors[0].output, hidden.vectors[0].raises) == (2, "")
    assert (hidden.errors, hidden.mutants, hidden.canaries, hidden.solution) == ((), (), (), {})
    assert hidden.e2e[0].script == ()


@pytest.mark.parametrize(
    "change",
    [
        {"vectors": [{"tool": "area", "input": 1, "answer": 2}]},
        {"vectors": [{"input": 1}]},
        {"reference": {"area": {"code": ""}}},
        {"reference": []},
        {"mutants": [3]},
        {"generators": 7},
        {"e2e": [{"output": 1}]},
        {"e2e": None},
    ],
)
def test_hidden_half_that_is_not_whole_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="hidden part"):
        parse_hidden(changed(HIDDEN, **change))


@pytest.mark.parametrize("name", ["reference", "vectors", "e2e"])
def test_hidden_half_with_nothing_to_check_is_refused_sb_05(name: str) -> None:
    empty = type(HIDDEN[name])()
    with pytest.raises(DataError, match="must have references, vectors and e2e cases"):
        parse_hidden(changed(HIDDEN, **{name: empty}))
    with pytest.raises(DataError, match=name):
        parse_hidden({key: value for key, value in HIDDEN.items() if key != name})
