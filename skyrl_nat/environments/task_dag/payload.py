"""The two halves of a task as records: the request that the policy reads, and what its plan is judged by."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.ids import ROOT
from skyrl_nat.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is wanted; all of it is visible."""

    title: str
    needs: tuple[str, ...]
    """What must be done, one phrase each."""
    rules: tuple[str, ...]
    """What must wait for what, one sentence each."""
    num_workers: int
    deadline_h: float
    """Hours after which no task starts."""
    min_tasks: int
    max_tasks: int
    """Tasks to be done, groups not counted."""
    max_depth: int
    """Levels below the request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """How a need is recognised in a plan."""

    keywords: tuple[str, ...]
    """Beginnings of words, in lower case; the description of a task that meets it has all of them."""
    type: str
    """Type of such a task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decomposition:
    """One turn of a plan."""

    node: str
    subtasks: tuple[Node, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenPlan:
    """The hidden half."""

    requirements: tuple[Requirement, ...]
    order: tuple[tuple[int, int], ...]
    """Pairs of places in `requirements`: the first must be done before the second starts."""
    reference: tuple[Decomposition, ...]
    """A good plan, turn by turn, without the stop."""

    @property
    def reference_nodes(self) -> list[Node]:
        """Tasks of the reference in the order of its turns."""
        return [node for turn in self.reference for node in turn.subtasks]


def parse_request(payload: Mapping[str, Any]) -> Request:
    """Return the visible half as a record.

    Raises:
        DataError: A field is missing or unknown, or a number impossible.
    """
    try:
        values = {**payload, "needs": _texts(payload["needs"]), "rules": _texts(payload["rules"])}
        values.pop("prompt", None)
        request = Request(**values)
        numbers = (request.num_workers, request.min_tasks, request.max_depth, request.max_tasks - request.min_tasks + 1)
        if min(numbers) < 1 or request.deadline_h <= 0 or not request.needs:
            raise ValueError(f"numbers must be positive and needs must be there, got {payload}")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the payload of a task_dag task must have the fields of Request, {type(error).__name__}: {error}. Build "
            "the file again"
        ) from error
    return request


def parse_hidden(hidden: Mapping[str, Any]) -> HiddenPlan:
    """Return the hidden half as records.

    Raises:
        DataError: A field is missing or a pair names no requirement.
    """
    try:
        found = HiddenPlan(
            requirements=tuple(
                Requirement(keywords=_texts(item["keywords"]), type=str(item["type"]))
                for item in hidden["requirements"]
            ),
            order=tuple((int(first), int(second)) for first, second in hidden["order"]),
            reference=tuple(
                Decomposition(node=str(item["node"]), subtasks=parse_nodes(item["subtasks"], str(item["node"])))
                for item in hidden["reference"]
            ),
        )
        places = range(len(found.requirements))
        if not found.requirements or not found.reference or any(i not in places for pair in found.order for i in pair):
            raise ValueError("requirements and a reference must be there, and order must name requirements")
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"the hidden part of a task_dag task must be whole, {type(error).__name__}: {error}. Build the file again"
        ) from error
    return found


def parse_nodes(items: Sequence[Mapping[str, Any]], parent: str | None = None) -> tuple[Node, ...]:
    """Return tasks as records.

    Args:
        items: Objects with `id`, `type`, `description` and perhaps `depends_on` and `parent`.
        parent: Of all of them; None takes each one's own.

    Raises:
        KeyError, TypeError: An item has not the form of a task.
    """
    return tuple(
        Node(
            id=_text(item["id"]),
            type=_text(item["type"]),
            description=_text(item["description"]),
            depends_on=_texts(item.get("depends_on", [])),
            parent=_text(item.get("parent", ROOT)) if parent is None else parent,
        )
        for item in items
    )


def node_json(node: Node) -> dict[str, Any]:
    """Return a task as JSON, in the form that `parse_nodes` takes."""
    return {
        "id": node.id,
        "type": node.type,
        "description": node.description,
        "depends_on": list(node.depends_on),
        "parent": node.parent,
    }


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"text expected, got {type(value).__name__}")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"a list expected, got {type(values).__name__}")
    return tuple(map(_text, values))
