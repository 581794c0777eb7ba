"""Small plans and a small task of the family task_dag, with numbers that are easy to work out by hand."""

from collections.abc import Sequence
from typing import Any

from skyrl_nat.environments.task_dag.graph import Node, PlanGraph
from skyrl_nat.environments.task_dag.ids import ROOT
from skyrl_nat.environments.task_dag.payload import node_json
from skyrl_nat.environments.task_dag.protocol import answer_text
from skyrl_nat.types import Task

STOP = answer_text(None)


def node(name: str, *depends_on: str, type: str = "make", parent: str = ROOT, description: str = "") -> Node:
    return Node(
        id=name, type=type, description=description or f"do {name}", depends_on=tuple(depends_on), parent=parent
    )


def graph(*nodes: Node) -> PlanGraph:
    return PlanGraph(nodes)


FORMATS = node("formats", type="research", description="Compare the packaging formats")
CHANGELOG = node("changelog", "formats", type="make", description="Write the changelog entries")
PAYMENT = node("payment", type="test", description="Test the payment page")
ARCHIVE = node("archive", "payment", type="deliver", description="Publish the download archive")
GOOD = (FORMATS, CHANGELOG, PAYMENT, ARCHIVE)
"""3 + 4 hours beside 2 + 1: 7 hours for two workers, 10 one after the other."""

TASK = Task(
    task_id="task_dag/test/small",
    family="task_dag",
    payload={
        "title": "Release version 4 of Orbit",
        "needs": [
            "compare the packaging formats",
            "write the changelog entries",
            "test the payment page",
            "publish the download archive",
        ],
        "rules": [
            "the changelog entries must wait for the packaging formats",
            "the download archive must wait for the payment page",
        ],
        "num_workers": 2,
        "deadline_h": 11,
        "min_tasks": 4,
        "max_tasks": 6,
        "max_depth": 2,
    },
    hidden={
        "requirements": [
            {"keywords": ["packaging", "format"], "type": "research"},
            {"keywords": ["changelog", "entr"], "type": "make"},
            {"keywords": ["payment", "page"], "type": "test"},
            {"keywords": ["download", "archive"], "type": "deliver"},
        ],
        "order": [[0, 1], [2, 3]],
        "reference": [{"node": ROOT, "subtasks": [node_json(item) for item in GOOD]}],
    },
)


def artifact(nodes: Sequence[Node], num_turns: int = 2, **values: Any) -> dict[str, Any]:
    """Return what an environment hands over after a plan without faults."""
    return {
        "nodes": [node_json(item) for item in nodes],
        "num_turns": num_turns,
        "is_stopped": True,
        "failure": "",
        "is_valid": True,
        "answer_share": 1.0,
        **values,
    }
