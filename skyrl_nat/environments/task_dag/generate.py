"""Tasks by a seed: requests with checkable needs and rules, and a reference plan that earns 1 in every part.

Two splits share no request and no near duplicate; some domains are held out as a whole. `scripts/build_task_dag.py`
writes the shipped files.
"""

import functools
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from skyrl_nat.environments.task_dag.domains import DOMAINS, GOALS, HELD_OUT, NAMES
from skyrl_nat.environments.task_dag.env import FAMILY
from skyrl_nat.environments.task_dag.graph import Node, PlanGraph
from skyrl_nat.environments.task_dag.ids import ROOT
from skyrl_nat.environments.task_dag.payload import Decomposition, Request, Requirement, node_json, parse_request
from skyrl_nat.environments.task_dag.protocol import MAX_SUBTASKS
from skyrl_nat.environments.task_dag.simulation import simulate
from skyrl_nat.environments.task_dag.task_types import CALM, GROUP, TYPES
from skyrl_nat.types import Task

SIZES = {"train": 480, "validation": 120}
"""Tasks of each shipped split."""
NUM_NEEDS = {1: (3,), 2: (4,), 3: (5,), 4: (6,), 5: (7, 8)}
"""Difficulty -> how many needs."""
NUM_RULES = {1: (1,), 2: (1, 2), 3: (2,), 4: (2, 3), 5: (3, 4)}
"""Difficulty -> how many rules."""
NUM_WORKERS = 3
SLACK = 1.6
"""The deadline, in makespans of the reference."""
MAX_SERIAL = 0.85
"""Share of the work's hours that the reference takes at most: something must be won by working side by side."""
NEAR = 0.7
"""Share of common word triples, or of common needs, from which on two requests are near duplicates."""
MAX_TRIES = 10_000
_STAGES = {"research": 0, "design": 1, "make": 2, "test": 3, "review": 3, "deliver": 4}
_WORD = re.compile(r"\w+")
_PLURAL = re.compile(r"(?<=...)(?:ies|(?<=sh|ch)es|(?<!s)s|y)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One piece of work of a domain."""

    type: str
    verb: str
    object: str
    """Two words."""

    @property
    def text(self) -> str:
        """As a request says it."""
        return f"{self.verb} the {self.object}"

    @property
    def requirement(self) -> Requirement:
        """As it is looked for: a plural's end does not matter."""
        return Requirement(keywords=tuple(_stem(word) for word in self.object.split()), type=self.type)


def needs_of(domain: str) -> list[Need]:
    """Return all work of a domain."""
    return [
        Need(type=kind, verb=item.partition("|")[0], object=item.partition("|")[2])
        for kind, items in DOMAINS[domain].items()
        for item in items
    ]


def generate(seed: int = 0, sizes: Mapping[str, int] | None = None) -> dict[str, list[Task]]:
    """Return the tasks of all splits by name; the same seed gives the same tasks.

    Args:
        seed: Of everything.
        sizes: Split -> number of tasks; None takes those of the shipped files. The split `train` has no task of a
            domain in `HELD_OUT`, in others every second one is.

    Raises:
        ValueError: So many different requests cannot be found.
    """
    known: list[Request] = []
    splits: dict[str, list[Task]] = {}
    for split, size in (SIZES if sizes is None else sizes).items():
        rng = random.Random(f"{seed}/{split}")
        tasks: list[Task] = []
        for number in range(size):
            domain = _domain_of(split, number)
            tasks.append(_new_task(f"{FAMILY}/{split}/{domain}_{number:04}", domain, number % 5 + 1, rng, known))
        splits[split] = tasks
    return splits


@functools.lru_cache(maxsize=4096)
def shingles(request: Request) -> frozenset[tuple[str, ...]]:
    """Return the word triples of what a request asks for; needs in another order count as the same."""
    triples: set[tuple[str, ...]] = set()
    for text in (request.title, *request.needs, *request.rules):
        words = _WORD.findall(text.lower())
        triples |= set(zip(words, words[1:], words[2:], strict=False)) or {tuple(words)}
    return frozenset(triples)


def similarity(first: frozenset[Any], second: frozenset[Any]) -> float:
    """Return the Jaccard index, 1 for equal sets."""
    return len(first & second) / len(first | second)


def is_near(first: Request, second: Request) -> bool:
    """Return whether two requests are near duplicates: in their words, or in what they need, whatever the title."""
    return (
        similarity(frozenset(first.needs), frozenset(second.needs)) >= NEAR
        or similarity(shingles(first), shingles(second)) >= NEAR
    )


def _domain_of(split: str, number: int) -> str:
    seen = [name for name in DOMAINS if name not in HELD_OUT]
    if split == "train":
        return seen[number // 5 % len(seen)]
    place = number // 10
    return HELD_OUT[place % len(HELD_OUT)] if number // 5 % 2 else seen[place % len(seen)]


def _new_task(name: str, domain: str, difficulty: int, rng: random.Random, known: list[Request]) -> Task:
    """Return a task whose request is near no known one, and add it to them."""
    for _ in range(MAX_TRIES):
        needs = rng.sample(needs_of(domain), rng.choice(NUM_NEEDS[difficulty]))
        order = _draw_order(needs, rng.choice(NUM_RULES[difficulty]), rng)
        task = _make_task(name, domain, difficulty, (needs, order), rng) if order else None
        if task is None:
            continue
        request = parse_request(task.payload)
        if not any(is_near(request, other) for other in known):
            known.append(request)
            return task
    raise ValueError(f"{name}: requests must differ, {MAX_TRIES} draws were all near others. Ask for fewer tasks")


def _draw_order(needs: Sequence[Need], num_rules: int, rng: random.Random) -> list[tuple[int, int]]:
    """Return pairs of places, each from an earlier kind of work to a later one; fewer where there are not so many."""
    pairs = [
        (first, second)
        for first, earlier in enumerate(needs)
        for second, later in enumerate(needs)
        if _STAGES[earlier.type] < _STAGES[later.type]
    ]
    return sorted(rng.sample(pairs, min(num_rules, len(pairs))))


def _make_task(
    name: str, domain: str, difficulty: int, work: tuple[list[Need], list[tuple[int, int]]], rng: random.Random
) -> Task | None:
    """Return a task, or None where little is won by working side by side."""
    needs, order = work
    reference = _reference(needs, order)
    nodes = [node for turn in reference for node in turn.subtasks]
    graph = PlanGraph(nodes)
    hours = simulate(graph, num_workers=NUM_WORKERS, types=CALM).hours
    if hours > MAX_SERIAL * sum(TYPES[need.type].hours for need in needs):
        return None
    request = Request(
        title=rng.choice(GOALS[domain]).format(rng.choice(NAMES)),
        needs=tuple(need.text for need in needs),
        rules=tuple(f"the {needs[second].object} must wait for the {needs[first].object}" for first, second in order),
        num_workers=NUM_WORKERS,
        deadline_h=round(SLACK * hours),
        min_tasks=len(needs),
        max_tasks=len(needs) + 2,
        max_depth=2,
    )
    hidden = {
        "requirements": [asdict(need.requirement) for need in needs],
        "order": [list(pair) for pair in order],
        "reference": [_turn_json(turn) for turn in reference],
    }
    payload = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(request).items()}
    # Through JSON once: a task is the same before and after it was in a file.
    hidden = json.loads(json.dumps(hidden))
    return Task(task_id=name, family=FAMILY, payload=payload, hidden=hidden, difficulty=difficulty)


def _reference(needs: Sequence[Need], order: Sequence[tuple[int, int]]) -> list[Decomposition]:
    """Return a plan with one task for each need: flat where that is allowed, else the last ones in a group.

    Needs come in the order of their stages, so that whatever must wait comes in the same group or in a later one.
    """
    places = sorted(range(len(needs)), key=lambda place: _STAGES[needs[place].type])
    leaves = [_leaf(needs, order, place) for place in places]
    if len(leaves) <= MAX_SUBTASKS:
        return [Decomposition(node=ROOT, subtasks=tuple(leaves))]
    kept, grouped = leaves[: MAX_SUBTASKS - 1], leaves[MAX_SUBTASKS - 1 :]
    words = " and ".join(node.id.replace("_", " ") for node in grouped[:2])
    group = Node(id="finish", type=GROUP, description=f"Finish everything about {words}")
    return [
        Decomposition(node=ROOT, subtasks=(*kept, group)),
        Decomposition(node=group.id, subtasks=tuple(grouped)),
    ]


def _leaf(needs: Sequence[Need], order: Sequence[tuple[int, int]], place: int) -> Node:
    text = needs[place].text
    earlier = tuple(_id(needs[first]) for first, second in order if second == place)
    return Node(
        id=_id(needs[place]), type=needs[place].type, description=text[0].upper() + text[1:], depends_on=earlier
    )


def _id(need: Need) -> str:
    return need.object.replace(" ", "_")


def _stem(word: str) -> str:
    """Return what a plural and its singular have in common: `crash`, `entr`, `list`."""
    return _PLURAL.sub("", word)


def _turn_json(turn: Decomposition) -> dict[str, Any]:
    items = [{key: value for key, value in node_json(node).items() if key != "parent"} for node in turn.subtasks]
    return {"node": turn.node, "subtasks": items}
