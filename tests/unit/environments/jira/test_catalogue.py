"""The shipped data fits its schemas and itself."""

import json

import pytest
from jsonschema import Draft202012Validator

from skyrl_nat.environments.jira.catalogue import DATA, load_issues, load_workflows, read_issue, workflow_of
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.errors import DataError

NAMES = ["issue_resolution", "status_update", "comment_management"]


@pytest.mark.parametrize("name", ["workflows", "issues"])
def test_shipped_file_fits_its_schema(name: str) -> None:
    schema = json.loads((DATA / f"{name}.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")))


def test_schema_refuses_a_reward_that_pays_for_waste() -> None:
    schema = json.loads((DATA / "workflows.schema.json").read_text(encoding="utf-8"))
    data = json.loads((DATA / "workflows.json").read_text(encoding="utf-8"))
    data["workflows"][0]["rewards"]["waste"] = 0.1
    assert [error.json_path for error in Draft202012Validator(schema).iter_errors(data)] == [
        "$.workflows[0].rewards.waste"
    ]


def test_there_are_three_workflows_with_eight_issues_each() -> None:
    assert list(load_workflows()) == NAMES
    assert [len(load_issues(name)) for name in NAMES] == [8, 8, 8]
    keys = [issue.key for name in NAMES for issue in load_issues(name)]
    assert len(set(keys)) == 24


@pytest.mark.parametrize("name", NAMES)
def test_names_in_the_data_refer_to_each_other(name: str) -> None:
    workflow = workflow_of(name)
    statuses = set(workflow.initial_statuses) | {tool.to for tool in workflow.tools if tool.to}
    facts = set(workflow.initial_facts).union(*(tool.sets for tool in workflow.tools))
    assert len(set(workflow.tool_names)) == len(workflow.tools)
    for tool in workflow.tools:
        assert tool.sources <= statuses
        assert set(tool.needs) <= facts
        assert tool.clears <= facts
    assert {step.tool for step in workflow.plan} <= {*workflow.tool_names, ""}
    assert set(workflow.targets) <= statuses
    assert workflow.goal.present | workflow.goal.absent <= facts
    assert set(workflow.fact_texts) == set(workflow.initial_facts)


@pytest.mark.parametrize("name", NAMES)
def test_observation_needs_not_tell_shipped_issues_apart(name: str) -> None:
    assert len({Machine(issue).plan for issue in load_issues(name)}) == 1


def test_issue_survives_the_way_through_json() -> None:
    for name in NAMES:
        for issue in load_issues(name):
            assert read_issue(json.loads(json.dumps(issue.to_json()))) == issue


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"status": "Closed"}, "must have a status of"),
        ({"facts": ["spam"]}, "facts of"),
        ({"target": "Done"}, "a target of"),
        ({"workflow": "cooking"}, "workflow must be one of issue_resolution"),
        ({"colour": "red"}, "exactly the keys"),
    ],
)
def test_issue_that_no_workflow_can_start_with_is_refused(change: dict[str, object], told: str) -> None:
    row = load_issues("issue_resolution")[0].to_json() | change
    with pytest.raises(DataError, match=told):
        read_issue(row)


def test_issue_without_keys_is_refused() -> None:
    with pytest.raises(DataError, match="got none"):
        read_issue({})
