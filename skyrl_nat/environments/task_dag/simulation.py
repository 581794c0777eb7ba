"""A plan carried out: workers, durations and failures drawn from a seed, and an account of every task.

List schedule: a free worker takes, of the tasks that may start, the one with the most planned hours behind it. What
depends on a failed task is skipped; all other branches go on. Nothing starts at or after the deadline.
"""

import heapq
import math
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from skyrl_nat.environments.task_dag.graph import PlanGraph, end_of, start_of
from skyrl_nat.environments.task_dag.task_types import TYPES, TaskType


class State(StrEnum):
    """How a task ended."""

    done = "done"
    failed = "failed"
    skipped = "skipped"
    """Something it waits for failed."""
    unreached = "unreached"
    """It could not start before the deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What became of a plan."""

    states: dict[str, State]
    """Id -> how the task ended; every task that was to be done is there."""
    hours: float
    """From the start to the end of the last task that ran; 0 where none did."""

    def count(self, state: State) -> int:
        """Return how many tasks ended in one way."""
        return sum(found is state for found in self.states.values())

    @property
    def done_share(self) -> float:
        """Share of all tasks that are done, skipped and unreached ones in the denominator; 0 for an empty plan."""
        return self.count(State.done) / len(self.states) if self.states else 0.0


def simulate(
    graph: PlanGraph,
    *,
    num_workers: int,
    seed: int | str = 0,
    deadline_h: float = math.inf,
    doomed: Collection[int] = (),
    luck: Mapping[int, str] | None = None,
    types: Mapping[str, TaskType] = TYPES,
) -> Execution:
    """Carry a plan out once.

    Args:
        graph: The plan.
        num_workers: Tasks that run at once at most; >= 1.
        seed: Of durations and failures.
        deadline_h: Hours after which nothing starts.
        doomed: Numbers of tasks that fail for certain.
        luck: Number of a task -> name under which its duration and failure are drawn, so that the same work has the
            same luck in two plans; the others are drawn by their place in the plan.
        types: Name -> durations and failure rates.

    Raises:
        ValueError: There is no worker.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be >= 1, got {num_workers}. Use at least one")
    hours: dict[int, float] = {}
    failing = set(doomed)
    for place, leaf in enumerate(graph.leaves):
        kind = types[graph.node(leaf).type]
        rng = random.Random(f"{seed}/{(luck or {}).get(leaf, f'task {place}')}")
        hours[leaf] = kind.hours * (1.0 + kind.spread * rng.uniform(-1.0, 1.0))
        if rng.random() < kind.failure_rate:
            failing.add(leaf)
    left = graph.hours_left(types)
    run = _Run(graph, lambda leaf: -left[start_of(leaf)])
    now = last = 0.0
    running: list[tuple[float, int]] = []
    while run.ready or running:
        while run.ready and now >= deadline_h:
            run.finish(heapq.heappop(run.ready)[1], State.unreached)
        while run.ready and len(running) < num_workers:
            leaf = heapq.heappop(run.ready)[1]
            heapq.heappush(running, (now + hours[leaf], leaf))
        if running:
            now, leaf = heapq.heappop(running)
            last = now
            run.finish(leaf, State.failed if leaf in failing else State.done)
    return Execution(states={graph.node(leaf).id: run.states[leaf] for leaf in graph.leaves}, hours=last)


class _Run:
    """Which tasks may start, and which never will."""

    def __init__(self, graph: PlanGraph, priority: Callable[[int], float]) -> None:
        """Open the plan: what waits for nothing is ready.

        Args:
            graph: The plan.
            priority: Number of a task -> what it is sorted by among those that are ready, lowest first.
        """
        self.states: dict[int, State] = {}
        self.ready: list[tuple[float, int]] = []
        """Heap of priority and number."""
        self._graph = graph
        self._priority = priority
        self._leaves = set(graph.leaves)
        self._missing = list(graph.predecessor_counts)
        self._fates: dict[int, State] = {}
        """Event -> why what waits for it cannot be done."""
        self._happen(start_of(0))

    def finish(self, leaf: int, state: State) -> None:
        """End a task that was ready."""
        self.states[leaf] = state
        if state is not State.done:
            self._fates[end_of(leaf)] = State.unreached if state is State.unreached else State.skipped
        self._happen(end_of(leaf))

    def _happen(self, event: int) -> None:
        events = [event]
        while events:
            event = events.pop()
            if event % 2 == 0 and event // 2 in self._leaves:
                leaf = event // 2
                fate = self._fates.get(event)
                if fate is None:
                    heapq.heappush(self.ready, (self._priority(leaf), leaf))
                    continue
                self.states[leaf] = fate
                self._fates[end_of(leaf)] = fate
                event = end_of(leaf)
            self._hand_on(event, events)

    def _hand_on(self, event: int, events: list[int]) -> None:
        fate = self._fates.get(event)
        for other in self._graph.successors[event]:
            if fate is State.skipped or (fate is not None and other not in self._fates):
                self._fates[other] = fate  # a failure outweighs a deadline
            self._missing[other] -= 1
            if self._missing[other] == 0:
                events.append(other)
