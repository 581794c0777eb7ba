"""Plans of a request that are known to be right or wrong: by them the judge is tried."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from skyrl_nat.environments.family import KnownAnswers
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import node_json, parse_hidden
from skyrl_nat.environments.task_dag.task_types import GROUP
from skyrl_nat.types import Task


def known_answers(task: Task) -> KnownAnswers:
    """Return the reference of a task, and plans that leave something out or keep no order.

    Raises:
        DataError: The hidden half is not whole.
    """
    hidden = parse_hidden(task.hidden)
    nodes, num_turns = hidden.reference_nodes, len(hidden.reference) + 1
    wrong: dict[str, list[Node]] = {"no tasks": [], "a task is left out": _without_last(nodes)}
    if hidden.order:
        wrong["nothing waits for anything"] = [replace(node, depends_on=()) for node in nodes]
    return KnownAnswers(
        right={"the reference": _artifact(nodes, num_turns)},
        wrong={name: _artifact(changed, num_turns) for name, changed in wrong.items()},
    )


def _without_last(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes without the last task that no other one waits for."""
    waited_for = {name for node in nodes for name in node.depends_on}
    last = next(node for node in reversed(nodes) if node.id not in waited_for and node.type != GROUP)
    return [node for node in nodes if node is not last]


def _artifact(nodes: Sequence[Node], num_turns: int) -> dict[str, Any]:
    return {"nodes": [node_json(node) for node in nodes], "num_turns": num_turns, "is_valid": True}
