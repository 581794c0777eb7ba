"""The optimum is the plan's return, and nothing else comes near it."""

import itertools
import random

import pytest

from skyrl_nat.environments.jira.catalogue import load_issues, load_workflows, read_issue
from skyrl_nat.environments.jira.generator import kinds_of
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.optimum import find_optimum, optimal_return

OPTIMA = {"issue_resolution": 0.94, "status_update": 0.95, "comment_management": 0.93}


def return_of(machine: Machine, tools: list[str]) -> float:
    state, total = machine.start(), 0.0
    for tool in tools:
        if state.is_ended:
            break
        transition = machine.apply(state, tool)
        state, total = transition.state, total + transition.reward
    return total


@pytest.mark.parametrize("name", OPTIMA)
def test_optimum_of_shipped_issues_is_one_less_a_hundredth_a_step(name: str) -> None:
    for issue in load_issues(name):
        optimum = find_optimum(issue)
        assert optimum.value == pytest.approx(OPTIMA[name])
        assert optimum.tools == Machine(issue).plan


@pytest.mark.parametrize("name", ["issue_resolution", "status_update"])
def test_plan_is_best_for_every_kind_of_issue(name: str) -> None:
    for kind in kinds_of(load_workflows()[name]):
        plan = Machine(kind).plan
        assert find_optimum(kind).tools == plan
        assert optimal_return(kind) == pytest.approx(1.0 - 0.01 * len(plan))


@pytest.mark.parametrize("name", OPTIMA)
def test_search_agrees_with_trying_every_sequence(name: str) -> None:
    issue = load_issues(name)[0]
    machine = Machine(issue)
    best = max(return_of(machine, list(tools)) for tools in itertools.product(machine.workflow.tool_names, repeat=4))
    assert optimal_return(issue, max_steps=4) == pytest.approx(best)


def test_no_sequence_but_the_plan_reaches_the_optimum_of_a_short_issue() -> None:
    row = load_issues("issue_resolution")[0].to_json() | {"status": "In Progress", "facts": ["assigned", "commented"]}
    machine = Machine(read_issue(row))
    assert machine.plan == ("get_issue", "resolve_issue", "close_issue")
    others = [
        return_of(machine, list(tools))
        for tools in itertools.product(machine.workflow.tool_names, repeat=5)
        if tools[:3] != machine.plan
    ]
    # One refused attempt, then the plan: a step and the penalty are lost.
    assert max(others) == pytest.approx(0.97 - 0.01 - 0.05)
    assert optimal_return(machine.issue) == pytest.approx(0.97)


@pytest.mark.parametrize("name", OPTIMA)
def test_random_episodes_that_are_not_the_plan_stay_far_below(name: str) -> None:
    rng = random.Random(0)
    machine = Machine(load_issues(name)[0])
    for _ in range(3000):
        # Mostly right, so that also late deviations are tried.
        tools = [
            machine.plan[place]
            if place < len(machine.plan) and rng.random() < 0.8
            else rng.choice(machine.workflow.tool_names)
            for place in range(12)
        ]
        if tuple(tools[: len(machine.plan)]) != machine.plan:
            assert return_of(machine, tools) < OPTIMA[name] - 0.05


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("issue_resolution", ["get_issue"] * 12),
        ("issue_resolution", ["close_issue"]),
        ("issue_resolution", ["get_issue", "assign_issue", "close_issue"]),
        ("issue_resolution", ["get_issue", *["add_comment"] * 11]),
        ("status_update", ["get_issue", "get_transitions", "start_progress", *["block_issue", "unblock_issue"] * 4]),
        ("status_update", ["get_issue", "get_transitions", "confirm_status"]),
        ("comment_management", ["get_issue", "list_comments", *["add_comment"] * 12]),
        ("comment_management", ["get_issue", "list_comments", *["add_comment", "notify_reporter"] * 6]),
        ("comment_management", ["close_thread"]),
    ],
)
def test_hacks_earn_less_than_a_quarter(name: str, tools: list[str]) -> None:
    assert return_of(Machine(load_issues(name)[0]), tools) < 0.25
