"""Tasks of the language task, made from a seed: every kind of issue, with summaries that no two splits share."""

import itertools
import random
from collections.abc import Iterator

from skyrl_nat.environments.jira.catalogue import Issue, Workflow, load_workflows
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

FAMILY = "jira"
SEED = 20261130
NUM_TRAIN = 240
NUM_VALIDATION = 72

_PROJECTS = ("WEB", "APP", "OPS", "PAY", "DATA", "CORE")
_TYPES = ("Bug", "Task", "Story")
_PRIORITIES = ("Lowest", "Low", "Medium", "High", "Highest")
_THINGS = (
    "login page",
    "search box",
    "export button",
    "invoice mail",
    "nightly import",
    "user profile",
    "price table",
    "audit log",
    "map view",
    "password reset",
    "upload dialog",
    "settings menu",
    "order list",
    "chat window",
    "backup job",
    "calendar sync",
    "report chart",
    "cookie banner",
    "download queue",
    "sign-up form",
)
_FAULTS = (
    "is slow on large accounts",
    "shows the wrong time zone",
    "fails without a network",
    "ignores the chosen language",
    "breaks on long names",
    "is empty after an update",
    "loses its sorting",
    "asks twice for the same thing",
    "cannot be used by keyboard",
    "has a typo in its title",
    "counts deleted entries",
    "needs a second reload",
    "hides the last row",
    "forgets the filter",
    "overlaps on small screens",
    "sends the message twice",
)


def make_splits(num_train: int = NUM_TRAIN, num_validation: int = NUM_VALIDATION, seed: int = SEED) -> list[list[Task]]:
    """Return the tasks of training and validation; the same arguments give the same tasks.

    Workflows take turns, and within one its kinds of issue (status, facts, target), so that both splits hold them in
    equal shares. No summary and no key comes twice, within or across the splits.

    Raises:
        DataError: More tasks are asked for than there are summaries.
    """
    rng = random.Random(seed)
    summaries = [f"{thing.capitalize()} {fault}" for thing, fault in itertools.product(_THINGS, _FAULTS)]
    if num_train + num_validation > len(summaries):
        raise DataError(
            f"there must be one summary for each task, got {len(summaries)} for {num_train + num_validation} tasks. "
            "Ask for fewer"
        )
    rng.shuffle(summaries)
    numbers = rng.sample(range(100, 1000), num_train + num_validation)
    names = iter(zip(summaries, numbers, strict=False))
    return [
        [_make_task(split, number, kind, next(names), rng) for number, kind in enumerate(_kinds(size, rng))]
        for split, size in (("train", num_train), ("validation", num_validation))
    ]


def kinds_of(workflow: Workflow) -> list[Issue]:
    """Return one nameless issue for every start that a workflow knows and that is not at its target already."""
    return [
        Issue(
            key="",
            workflow=workflow.name,
            type="",
            priority="",
            summary="",
            status=status,
            facts=frozenset(facts),
            target=target,
        )
        for status in workflow.initial_statuses
        for target in workflow.targets or ("",)
        if status != target
        for size in range(len(workflow.initial_facts) + 1)
        for facts in itertools.combinations(workflow.initial_facts, size)
    ]


def _kinds(size: int, rng: random.Random) -> Iterator[Issue]:
    streams = [_shuffled_for_ever(kinds_of(workflow), rng) for workflow in load_workflows().values()]
    return itertools.islice((next(stream) for stream in itertools.cycle(streams)), size)


def _shuffled_for_ever(kinds: list[Issue], rng: random.Random) -> Iterator[Issue]:
    while True:
        yield from rng.sample(kinds, len(kinds))


def _make_task(split: str, number: int, kind: Issue, name: tuple[str, int], rng: random.Random) -> Task:
    summary, issue_number = name
    row = {
        **kind.to_json(),
        "key": f"{rng.choice(_PROJECTS)}-{issue_number}",
        "type": rng.choice(_TYPES),
        "priority": rng.choice(_PRIORITIES),
        "summary": summary,
    }
    # Plans have 3 to 7 steps.
    difficulty = min(5, max(1, len(Machine(kind).plan) - 2))
    return Task(task_id=f"jira-{split}-{number:03}", family=FAMILY, payload={"issue": row}, difficulty=difficulty)
