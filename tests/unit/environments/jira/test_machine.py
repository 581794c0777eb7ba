"""Rewards and states worked out by hand: 0.5 for a whole plan, 0.5 for the verdict, -0.01 a step."""

import dataclasses

import pytest

from skyrl_nat.environments.jira import machine as machine_module
from skyrl_nat.environments.jira.catalogue import load_issues, read_issue, workflow_of
from skyrl_nat.environments.jira.machine import Machine, State, Transition
from skyrl_nat.errors import DataError

RESOLUTION = ("get_issue", "assign_issue", "start_progress", "add_comment", "resolve_issue", "close_issue")
RIGHT_STEP = 0.5 / 6 - 0.01


def machine_of(workflow: str, **change: object) -> Machine:
    return Machine(read_issue(load_issues(workflow)[0].to_json() | change))


def run(machine: Machine, *tools: str) -> tuple[State, list[Transition]]:
    state, transitions = machine.start(), []
    for tool in tools:
        transitions.append(machine.apply(state, tool))
        state = transitions[-1].state
    return state, transitions


def test_plan_of_an_open_issue_earns_its_parts_and_the_verdict() -> None:
    machine = machine_of("issue_resolution")
    state, transitions = run(machine, *RESOLUTION)
    assert machine.plan == RESOLUTION
    assert [t.reward for t in transitions] == pytest.approx([RIGHT_STEP] * 5 + [RIGHT_STEP + 0.5])
    assert sum(t.reward for t in transitions) == pytest.approx(0.94)
    assert state.is_ended and machine.is_resolved(state) and machine.judge(state).is_ok
    assert (state.status, state.num_progress) == ("Closed", 6)


@pytest.mark.parametrize(
    ("change", "plan"),
    [
        ({"facts": ["assigned"]}, ("get_issue", "start_progress", "add_comment", "resolve_issue", "close_issue")),
        ({"status": "In Progress", "facts": ["assigned", "commented"]}, ("get_issue", "resolve_issue", "close_issue")),
    ],
)
def test_plan_leaves_out_what_is_done_already(change: dict[str, object], plan: tuple[str, ...]) -> None:
    assert machine_of("issue_resolution", **change).plan == plan


@pytest.mark.parametrize(
    ("status", "target", "way"),
    [
        ("To Do", "Done", ["start_progress", "submit_review", "complete_issue"]),
        ("Blocked", "In Review", ["unblock_issue", "submit_review"]),
        ("Done", "Blocked", ["reopen_issue", "block_issue"]),
        ("In Review", "In Progress", ["reject_review"]),
    ],
)
def test_plan_takes_the_shortest_way_to_the_target(status: str, target: str, way: list[str]) -> None:
    machine = machine_of("status_update", status=status, target=target)
    assert machine.plan == ("get_issue", "get_transitions", *way, "confirm_status")


def test_target_that_cannot_be_reached_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = workflow_of("status_update")
    tools = tuple(tool for tool in workflow.tools if tool.to != "Blocked")
    monkeypatch.setattr(machine_module, "workflow_of", lambda name: dataclasses.replace(workflow, tools=tools))
    with pytest.raises(DataError, match="a way must lead from 'To Do' to 'Blocked'"):
        machine_of("status_update", target="Blocked")


def test_impossible_tool_costs_and_changes_nothing() -> None:
    machine = machine_of("issue_resolution")
    transition = machine.apply(machine.start(), "resolve_issue")
    assert transition == Transition(
        state=machine.start(), reward=pytest.approx(-0.06), is_valid=False, reason="not from status Open"
    )
    assert machine.apply(machine.start(), "start_progress").reason == "needs assigned"


def test_answer_that_names_no_tool_costs_more_and_changes_nothing() -> None:
    machine = machine_of("issue_resolution")
    transition = machine.refuse(machine.start(), "the answer is empty")
    assert transition.reward == pytest.approx(-0.11)
    assert (transition.state, transition.is_valid, transition.reason) == (machine.start(), False, "the answer is empty")


def test_repeated_step_is_waste_and_spoils_the_verdict() -> None:
    machine = machine_of("issue_resolution")
    state, transitions = run(machine, "get_issue", *RESOLUTION)
    assert transitions[1].reward == pytest.approx(-0.06)
    assert sum(t.reward for t in transitions) == pytest.approx(0.5 - 7 * 0.01 - 0.05 - 0.5)
    assert machine.judge(state).findings == ("used more than once: get_issue",)


def test_closing_without_a_resolution_is_a_wrong_end() -> None:
    machine = machine_of("issue_resolution")
    state, transitions = run(machine, "close_issue")
    assert transitions[0].reward == pytest.approx(-0.01 - 0.05 - 0.5)
    assert state.is_ended and not machine.is_resolved(state)


def test_reopened_issue_is_no_longer_resolved() -> None:
    machine = machine_of("issue_resolution")
    state, _ = run(machine, *RESOLUTION[:5])
    assert machine.is_resolved(state)
    after = machine.apply(state, "reopen_issue").state
    assert (after.status, machine.is_resolved(after)) == ("Open", False)


def test_mask_has_none_one_and_all_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """GY-08: states in which 0, 1 and all actions are allowed."""
    workflow = workflow_of("issue_resolution")
    free = [dataclasses.replace(tool, sources=frozenset({"Open"}), needs=()) for tool in workflow.tools]
    shut = [dataclasses.replace(tool, needs=("read",)) for tool in free[1:]]
    for tools, num_allowed in (([*free], 7), ([free[0], *shut], 1)):
        changed = dataclasses.replace(workflow, tools=tuple(tools))
        monkeypatch.setattr(machine_module, "workflow_of", lambda name, changed=changed: changed)
        machine = machine_of("issue_resolution")
        assert sum(machine.mask(machine.start())) == num_allowed
        assert sum(machine.mask(machine.apply(machine.start(), "get_issue").state)) == 7
        ended = dataclasses.replace(machine.start(), is_ended=True)
        assert sum(machine.mask(ended)) == 0
        assert machine.why_not(ended, "get_issue") == "the work has ended"


def test_comment_flags_decide_what_is_possible() -> None:
    machine = machine_of("comment_management", facts=["question"])
    state, _ = run(machine, "get_issue", "list_comments")
    assert machine.why_not(state, "delete_comment") == "needs spam"
    assert machine.plan == ("get_issue", "list_comments", "add_comment", "notify_reporter", "close_thread")
