"""A plan as a graph of events: every task has a start and an end, so that groups cost no more edges than tasks.

A group starts before its parts and ends after them; who depends on a group waits for its end. Node 0 is the request.
Event `2 n` is the start of node n, `2 n + 1` its end. Nothing recurses; everything is linear in nodes and edges.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from skyrl_nat.environments.task_dag.ids import ROOT, normal_id
from skyrl_nat.environments.task_dag.task_types import TaskType
from skyrl_nat.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One task of a plan."""

    id: str
    type: str
    """Key of `task_types.TYPES`; counts where the task is not decomposed further."""
    description: str
    depends_on: tuple[str, ...] = ()
    """Ids of tasks that must be done before it starts."""
    parent: str = ROOT
    """Id of the task that it is a part of."""


def start_of(number: int) -> int:
    """Return the event at which a node starts."""
    return 2 * number


def end_of(number: int) -> int:
    """Return the event at which a node ends."""
    return 2 * number + 1


def event_successors(nodes: Sequence[Node], numbers: Mapping[str, int]) -> list[list[int]]:
    """Return, for each event, those that wait for it.

    Args:
        nodes: In the order of the plan.
        numbers: Id -> number of its node, the request's included; ids that are missing are left out.
    """
    successors: list[list[int]] = [[] for _ in range(2 * len(nodes) + 2)]
    successors[start_of(0)].append(end_of(0))
    for node in nodes:
        own, parent = numbers[node.id], numbers.get(node.parent)
        successors[start_of(own)].append(end_of(own))
        if parent is not None:
            successors[start_of(parent)].append(start_of(own))
            successors[end_of(own)].append(end_of(parent))
        for name in node.depends_on:
            other = numbers.get(name)
            if other is not None:
                successors[end_of(other)].append(start_of(own))
    return successors


def find_rings(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the events of each ring, sorted, without those that only lead to a ring or come after it."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(successors)))
    graph.add_edges_from((event, other) for event, others in enumerate(successors) for other in others)
    parts = [part for part in nx.strongly_connected_components(graph) if len(part) > 1]
    return sorted(map(sorted, parts))


def reachable(successors: Sequence[Sequence[int]], events: Iterable[int]) -> set[int]:
    """Return the events that wait for one of the given ones, directly or not."""
    found: set[int] = set()
    waiting = list(events)
    while waiting:
        for other in successors[waiting.pop()]:
            if other not in found:
                found.add(other)
                waiting.append(other)
    return found


class PlanGraph:
    """A plan without faults, ready for questions."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        """Build the graph.

        Args:
            nodes: Such that `plan.check_plan` finds nothing.

        Raises:
            DataError: The plan has a ring or an id that is not there; `check_plan` says more.
        """
        self.nodes = tuple(nodes)
        self.numbers: dict[str, int] = {ROOT: 0} | {normal_id(node.id): i for i, node in enumerate(nodes, 1)}
        """Id -> number of its node; 0 is the request."""
        self.successors = event_successors(nodes, self.numbers)
        parents = {node.parent for node in nodes}
        self.leaves = tuple(number for number, node in enumerate(nodes, 1) if node.id not in parents)
        """Numbers of the tasks that are to be done, in the order of the plan."""
        self.predecessor_counts = [0] * len(self.successors)
        for others in self.successors:
            for other in others:
                self.predecessor_counts[other] += 1
        self.events = self._sorted_events()
        known = all(name in self.numbers for node in nodes for name in (node.parent, *node.depends_on))
        if len(self.events) < len(self.successors) or not known or len(self.numbers) != len(nodes) + 1:
            raise DataError("a plan must have no ring, no id twice and no unknown id, this one has. Check it first")

    def node(self, number: int) -> Node:
        """Return a task by its number, from 1."""
        return self.nodes[number - 1]

    def topological_order(self) -> list[str]:
        """Return the ids of the tasks to be done, each after all that it waits for."""
        leaves = set(self.leaves)
        return [self.node(event // 2).id for event in self.events if event % 2 == 0 and event // 2 in leaves]

    def depth(self) -> int:
        """Return the number of levels below the request; 0 for an empty plan."""
        levels = {0: 0}
        for event in self.events:
            if event % 2 == 0 and event > 0:  # a part starts after what it is a part of
                levels[event // 2] = levels[self.numbers[self.node(event // 2).parent]] + 1
        return max(levels.values())

    def hours_left(self, types: Mapping[str, TaskType]) -> list[float]:
        """Return, for each event, the planned hours from it to the end of the plan along the longest way."""
        work = self._work(types)
        left = [0.0] * len(self.successors)
        for event in reversed(self.events):
            own = work.get(event, 0.0)
            left[event] = own + max((left[other] for other in self.successors[event]), default=0.0)
        return left

    def critical_path(self, types: Mapping[str, TaskType]) -> tuple[list[str], float]:
        """Return the tasks on the longest way through the plan, and its planned hours; equal ways: the first."""
        left, leaves = self.hours_left(types), set(self.leaves)
        path: list[str] = []
        event = start_of(0)
        while True:
            if event % 2 == 0 and event // 2 in leaves:
                path.append(self.node(event // 2).id)
            others = self.successors[event]
            if not others:
                return path, left[start_of(0)]
            event = max(others, key=lambda other: left[other])

    def width(self, types: Mapping[str, TaskType]) -> int:
        """Return how many tasks run at once at most where everything starts as early as it may."""
        work = self._work(types)
        begins = [0.0] * len(self.successors)
        for event in self.events:
            ends = begins[event] + work.get(event, 0.0)
            for other in self.successors[event]:
                begins[other] = max(begins[other], ends)
        changes = [(begins[start_of(leaf)], 1) for leaf in self.leaves if work[start_of(leaf)] > 0]
        changes += [(begins[start_of(leaf)] + work[start_of(leaf)], -1) for leaf in self.leaves if work[start_of(leaf)]]
        running = widest = 0
        for _, change in sorted(changes):  # ends come before starts of the same moment
            running += change
            widest = max(widest, running)
        return widest

    def after(self, number: int) -> set[int]:
        """Return the numbers of the nodes that start only when this one has ended."""
        events = reachable(self.successors, [end_of(number)])
        return {event // 2 for event in events if event % 2 == 0}

    def _work(self, types: Mapping[str, TaskType]) -> dict[int, float]:
        return {start_of(leaf): float(types[self.node(leaf).type].hours) for leaf in self.leaves}

    def _sorted_events(self) -> list[int]:
        """Return the events, each after those it waits for; those behind a ring are left out."""
        counts = list(self.predecessor_counts)
        order = [event for event, count in enumerate(counts) if count == 0]
        for event in order:  # grows while it is read
            for other in self.successors[event]:
                counts[other] -= 1
                if counts[other] == 0:
                    order.append(other)
        return order
