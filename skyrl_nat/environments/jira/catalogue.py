"""The shipped data as records: workflows with their tools and rewards, and mock issues.

`data/workflows.schema.json` and `data/issues.schema.json` say what the files may hold.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One action: where it is possible and what it changes."""

    name: str
    does: str
    """What it does, in a few words."""
    sources: frozenset[str]
    """Statuses in which it is possible."""
    needs: tuple[str, ...]
    """Facts that must hold."""
    sets: frozenset[str]
    """Facts that hold afterwards."""
    clears: frozenset[str]
    """Facts that no longer hold afterwards."""
    to: str | None
    """The status afterwards; None leaves it."""
    ends: bool
    """Whether the episode ends with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """One line of the required workflow; which of them an issue needs depends on the issue."""

    tool: str
    """Empty stands for the shortest way to the issue's target status."""
    only_if: frozenset[str]
    """Needed only where these facts hold at the start."""
    unless: frozenset[str]
    """Not needed where one of these facts holds at the start."""
    unless_status: frozenset[str]
    """Not needed where the issue has one of these statuses at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What must hold at the end."""

    present: frozenset[str]
    absent: frozenset[str]
    is_target: bool
    """Whether the status must be the issue's target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewards:
    """What steps are worth. A return is at most `progress + verdict`, less what its steps cost."""

    progress: float
    """Paid once for a whole plan, in equal parts: each when its step is done in its turn."""
    verdict: float
    """Paid at the end where the verifier has nothing to object to."""
    wrong_end: float
    """Added where a tool ends the work and the verifier objects, <= 0: otherwise a policy that earns nothing yet would
    learn to end at once, before further steps cost more."""
    step: float
    """Added for every step, <= 0."""
    waste: float
    """Added for a step that is possible but not the next of the plan, <= 0."""
    invalid: float
    """Added for a tool that is not possible now, <= 0; nothing else changes."""
    broken: float
    """Added for an answer that names no tool, <= 0 (language task only); nothing else changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """One kind of work on an issue."""

    id: str
    """Gymnasium id without its namespace."""
    name: str
    max_steps: int
    """Steps of an episode at most."""
    task: str
    """What is to be done, with `{target}` where it depends on the issue."""
    rules: str
    """How it is to be done, for the language task."""
    initial_statuses: tuple[str, ...]
    targets: tuple[str, ...]
    fact_texts: Mapping[str, tuple[str, str]]
    """Fact that the policy is told -> its words where it holds, and where it does not."""
    initial_facts: tuple[str, ...]
    """Facts that may hold at the start."""
    tools: tuple[Tool, ...]
    """In the order of the discrete actions."""
    plan: tuple[PlannedStep, ...]
    goal: Goal
    rewards: Rewards

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names in the order of the discrete actions."""
        return tuple(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One mock issue at the start of an episode."""

    key: str
    workflow: str
    """Name of what is to be done with it."""
    type: str
    priority: str
    summary: str
    """Any text, also an empty one."""
    status: str
    facts: frozenset[str]
    target: str
    """Status to reach; empty where the workflow has no target."""

    def to_json(self) -> dict[str, Any]:
        """Return the row from which `read_issue` makes the same issue."""
        names = ("key", "workflow", "type", "priority", "summary", "status")
        return {**{name: getattr(self, name) for name in names}, "facts": sorted(self.facts), "target": self.target}


@functools.cache
def load_workflows() -> Mapping[str, Workflow]:
    """Return the shipped workflows by name."""
    rows = json.loads((DATA / "workflows.json").read_text(encoding="utf-8"))["workflows"]
    return {row["name"]: read_workflow(row) for row in rows}


@functools.cache
def load_issues(workflow: str) -> tuple[Issue, ...]:
    """Return the shipped issues of a workflow; all of them need the same steps.

    The observation of the Gymnasium environments says nothing of the issue, so no policy could tell issues apart that
    need different ones. The language task has issues of every kind.
    """
    rows = json.loads((DATA / "issues.json").read_text(encoding="utf-8"))["issues"]
    return tuple(read_issue(row) for row in rows if row["workflow"] == workflow)


def workflow_of(name: str) -> Workflow:
    """Return a workflow by name.

    Raises:
        DataError: There is no such workflow.
    """
    workflows = load_workflows()
    if name not in workflows:
        raise DataError(f"workflow must be one of {', '.join(workflows)}, got {name!r}. Correct the issue")
    return workflows[name]


def read_workflow(row: Mapping[str, Any]) -> Workflow:
    """Return one entry of `workflows.json` as a record."""
    goal = row["goal"]
    return Workflow(
        id=row["id"],
        name=row["name"],
        max_steps=row["max_steps"],
        task=row["task"],
        rules=row["rules"],
        initial_statuses=tuple(row["initial_statuses"]),
        targets=tuple(row["targets"]),
        fact_texts={name: (texts["yes"], texts["no"]) for name, texts in row["facts"].items()},
        initial_facts=tuple(row["initial_facts"]),
        tools=tuple(_read_tool(tool) for tool in row["tools"]),
        plan=tuple(_read_step(step) for step in row["workflow"]),
        goal=Goal(present=frozenset(goal["with"]), absent=frozenset(goal["without"]), is_target=goal["is_target"]),
        rewards=Rewards(**row["rewards"]),
    )


def read_issue(row: Mapping[str, Any]) -> Issue:
    """Return a row of `issues.json`, or of a task's payload, as a record.

    Raises:
        DataError: A key is missing or unknown, or the workflow cannot start with this status, target or fact.
    """
    try:
        issue = Issue(**{**row, "facts": frozenset(row["facts"])})
    except (TypeError, KeyError) as error:
        raise DataError(
            f"an issue must have exactly the keys of data/issues.schema.json, got {', '.join(row) or 'none'} "
            f"({error}). Correct it"
        ) from error
    workflow = workflow_of(issue.workflow)
    is_targeted = issue.target in workflow.targets if workflow.targets else issue.target == ""
    is_known = issue.status in workflow.initial_statuses and issue.facts <= set(workflow.initial_facts)
    if not is_known or not is_targeted:
        raise DataError(
            f"issue {issue.key} must have a status of {list(workflow.initial_statuses)}, facts of "
            f"{list(workflow.initial_facts)} and a target of {list(workflow.targets) or ['']}, got {issue.status!r}, "
            f"{sorted(issue.facts)} and {issue.target!r}. Correct it"
        )
    return issue


def _read_tool(row: Mapping[str, Any]) -> Tool:
    return Tool(
        name=row["name"],
        does=row["does"],
        sources=frozenset(row["from"]),
        needs=tuple(row["needs"]),
        sets=frozenset(row["sets"]),
        clears=frozenset(row["clears"]),
        to=row["to"],
        ends=row["ends"],
    )


def _read_step(row: Mapping[str, Any]) -> PlannedStep:
    return PlannedStep(
        tool=row.get("tool", ""),
        only_if=frozenset(row.get("if", ())),
        unless=frozenset(row.get("unless", ())),
        unless_status=frozenset(row.get("unless_status", ())),
    )
