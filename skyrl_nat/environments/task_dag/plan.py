"""Whether a list of tasks is a plan that can be carried out, and what is wrong where it is not."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from skyrl_nat.environments.task_dag.graph import Node, event_successors, find_rings, reachable, start_of
from skyrl_nat.environments.task_dag.ids import ROOT, id_problem, look_of, normal_id, shown
from skyrl_nat.environments.task_dag.task_types import TYPES

MAX_NODES = 5000
"""Larger plans are refused unread."""
MAX_NAMED = 10
"""Ids that one message names; all are counted."""


class Fault(StrEnum):
    """Kinds of what can be wrong with a plan."""

    too_large = "too_large"
    bad_id = "bad_id"
    unknown_type = "unknown_type"
    duplicate_id = "duplicate_id"
    repeated_dependency = "repeated_dependency"
    ambiguous_id = "ambiguous_id"
    unknown_id = "unknown_id"
    cycle = "cycle"
    blocked = "blocked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with a plan."""

    fault: Fault
    ids: tuple[str, ...]
    """The tasks it is about, all of them."""
    message: str
    """One sentence: what must hold, what was found, what to do."""


def normal_nodes(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes with all their ids in normal form."""
    return [
        replace(
            node,
            id=normal_id(node.id),
            parent=normal_id(node.parent),
            depends_on=tuple(map(normal_id, node.depends_on)),
        )
        for node in nodes
    ]


def check_plan(nodes: Sequence[Node], *, max_nodes: int = MAX_NODES) -> list[Problem]:
    """Return everything that is wrong with a plan; empty where it can be carried out.

    Ids and types come first; with an id that comes twice nothing else is looked at, since it would be unclear which
    task is meant. Rings are looked for among ids that look alike, too, so that two spellings cannot hide one.

    Args:
        nodes: In any order; ids in any Unicode form.
        max_nodes: More are refused unread.
    """
    if len(nodes) > max_nodes:
        message = f"a plan must have at most {max_nodes} tasks, got {len(nodes)}. Decompose less"
        return [Problem(fault=Fault.too_large, ids=(), message=message)]
    nodes = normal_nodes(nodes)
    problems = [*_check_each(nodes), *_check_duplicates(nodes)]
    if any(problem.fault is Fault.duplicate_id for problem in problems):
        return problems
    return [*problems, *_check_names(nodes), *_check_rings(nodes)]


def _check_each(nodes: Sequence[Node]) -> Iterable[Problem]:
    for node in nodes:
        if message := id_problem(node.id):
            yield Problem(fault=Fault.bad_id, ids=(node.id,), message=message)
        if node.type not in TYPES:
            message = (
                f"the type of {shown(node.id)} must be one of {', '.join(TYPES)}, got {shown(node.type)}. Choose one"
            )
            yield Problem(fault=Fault.unknown_type, ids=(node.id,), message=message)


def _check_duplicates(nodes: Sequence[Node]) -> Iterable[Problem]:
    counts = Counter([ROOT, *(node.id for node in nodes)])
    twice = tuple(name for name, count in counts.items() if count > 1)
    if twice:
        message = f"every task must have an id of its own, got duplicate id {_named(twice)}. Rename one"
        yield Problem(fault=Fault.duplicate_id, ids=twice, message=message)
    for node in nodes:
        names = tuple(name for name, count in Counter(node.depends_on).items() if count > 1)
        if names:
            message = f"{shown(node.id)} must name every dependency once, got {_named(names)} again. Remove the others"
            yield Problem(fault=Fault.repeated_dependency, ids=(node.id,), message=message)


def _check_names(nodes: Sequence[Node]) -> Iterable[Problem]:
    known = {ROOT, *(node.id for node in nodes)}
    by_look: dict[str, list[str]] = {}
    for name in sorted(known):
        by_look.setdefault(look_of(name), []).append(name)
    for names in by_look.values():
        if len(names) > 1:
            message = f"ids must not look alike, {_named(names)} do and are ambiguous. Rename one"
            yield Problem(fault=Fault.ambiguous_id, ids=tuple(names), message=message)
    for node in nodes:
        for name in dict.fromkeys([node.parent, *node.depends_on]):
            if name in known:
                continue
            alike = by_look.get(look_of(name), [])
            if alike:
                message = (
                    f"{shown(node.id)} must write ids as they are, got {shown(name)}, which is ambiguous: there is "
                    f"{_named(alike)}. Write that"
                )
                yield Problem(fault=Fault.ambiguous_id, ids=(node.id,), message=message)
            else:
                message = (
                    f"{shown(node.id)} must name tasks of the plan, got unknown id {shown(name)}. Add or remove it"
                )
                yield Problem(fault=Fault.unknown_id, ids=(node.id,), message=message)


def _check_rings(nodes: Sequence[Node]) -> Iterable[Problem]:
    by_look = {look_of(ROOT): 0}
    for number, node in enumerate(nodes, 1):
        by_look.setdefault(look_of(node.id), number)
    spelled = {name for node in nodes for name in (node.id, node.parent, *node.depends_on)}
    numbers = {name: by_look[look_of(name)] for name in spelled if look_of(name) in by_look} | {ROOT: 0}
    successors = event_successors(nodes, numbers)
    rings = find_rings(successors)
    names = [ROOT, *(node.id for node in nodes)]
    for ring in rings:
        members = tuple(names[number] for number in sorted({event // 2 for event in ring}))
        message = (
            f"tasks must not wait for each other in a ring, got {_named(members)}. Remove one of their dependencies"
        )
        yield Problem(fault=Fault.cycle, ids=members, message=message)
    ring_events = [event for ring in rings for event in ring]
    in_ring = {event // 2 for event in ring_events}
    events = reachable(successors, ring_events)
    blocked = tuple(
        names[number] for number in range(1, len(names)) if start_of(number) in events and number not in in_ring
    )
    if blocked:
        message = f"every task must be able to start, {_named(blocked)} wait for a ring and are blocked. Break the ring"
        yield Problem(fault=Fault.blocked, ids=blocked, message=message)


def _named(names: Sequence[str]) -> str:
    rest = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(map(shown, names[:MAX_NAMED])) + rest
