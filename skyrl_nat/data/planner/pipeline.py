"""From users' requests to proved tasks: a spec, several versions of its code, agreement, proof."""

import asyncio
import json
import logging
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from skyrl_nat.data.making.build import FAMILY, build_task
from skyrl_nat.data.making.maker import Maker
from skyrl_nat.data.near_duplicates import near_duplicates, same_code
from skyrl_nat.data.planner.ask import Answered, Planner
from skyrl_nat.data.planner.cross_check import NUM_REFERENCES, checked_source
from skyrl_nat.data.planner.drafts import CODE_SCHEMA, SPEC_SCHEMA, code_prompt, spec_prompt
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.errors import DataError, StoppedError
from skyrl_nat.types import Task

LIBRARY = Path(__file__).parent / "requests.yaml"
MIN_REQUESTS = 2
VALIDATION_SHARE = 0.1
"""Of the requests, at least one."""
MAX_TRIES_PER_TASK = 4
"""Specs asked for, for each task wanted, before the run stops with fewer."""
MIN_TRIES = 20
_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Planned:
    """What came of the requests."""

    tasks: dict[str, list[Task]] = field(default_factory=dict[str, list[Task]])
    """Split -> tasks."""
    requests: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Split -> the requests that its tasks come from."""
    rejected: Counter[str] = field(default_factory=Counter[str])
    """Kind of reason -> specs that became no task."""
    examples: list[str] = field(default_factory=list[str])
    """Some of the reasons."""

    def reject(self, kind: str, reason: str) -> None:
        """Count one."""
        self.rejected[kind] += 1
        if len(self.examples) < 20:
            self.examples.append(f"{kind}: {reason}"[:300])


@dataclass(frozen=True, slots=True)
class Try:
    """What became of one spec."""

    task: Task | None
    kind: str = ""
    reason: str = ""


def read_requests(path: Path | None = None) -> list[str]:
    """Return the users' requests of a YAML list or of a text file with one a line; None takes the shipped ones.

    Raises:
        DataError: The file holds too few, or no texts.
    """
    path = path or LIBRARY
    try:
        text = path.read_text(encoding="utf-8")
        found = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else text.splitlines()
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(
            f"requests must be a readable list, {path} is not: {error}. Write one request a line"
        ) from error
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise DataError(f"requests must be a list of texts, {path} holds something else. Write one request a line")
    requests = list(dict.fromkeys(item.strip() for item in found if item.strip()))
    if len(requests) < MIN_REQUESTS:
        raise DataError(
            f"requests must be at least {MIN_REQUESTS} different ones, {path} holds {len(requests)}: training and "
            "validation take different ones. Add some"
        )
    return requests


def split_requests(requests: Sequence[str], seed: int) -> dict[str, list[str]]:
    """Return the requests of `train` and of `validation`."""
    held_out = set(
        random.Random(f"requests/{seed}").sample(list(requests), max(1, round(VALIDATION_SHARE * len(requests))))
    )
    return {
        "train": [request for request in requests if request not in held_out],
        "validation": [request for request in requests if request in held_out],
    }


async def plan_tasks(
    planner: Planner,
    maker: Maker,
    requests: Sequence[str],
    counts: Mapping[str, int],
    *,
    seed: int,
    mix: Mapping[int, float],
) -> Planned:
    """Return as many tasks for each split as asked for.

    Args:
        planner: Asks the service; remembers what was paid.
        maker: Builds and proves, and remembers too.
        requests: What users want.
        counts: Split -> number of tasks, the training split first.
        seed: Of the sampling and of what is drawn.
        mix: Difficulty -> share.

    Raises:
        StoppedError: The budget is used up, or too few specs become tasks; all is saved.
    """
    planned = Planned(requests=split_requests(requests, seed))
    with ThreadPoolExecutor(maker.num_workers) as pool:
        for split, count in counts.items():
            work = _SplitWork(planner, maker, pool, split, planned.requests[split], seed, mix)
            planned.tasks[split] = await _fill(work, count, planned)
    return planned


async def _fill(work: "_SplitWork", count: int, planned: Planned) -> list[Task]:
    """Ask for specs until there are enough tasks; what is accepted depends on their order, not on who answers first."""
    others = [task for tasks in planned.tasks.values() for task in tasks]
    tasks: list[Task] = []
    seen: set[str] = set()
    number, limit = 0, MIN_TRIES + MAX_TRIES_PER_TASK * count
    while len(tasks) < count:
        wave = range(number, min(limit, number + count - len(tasks)))
        if not wave:
            raise StoppedError(
                f"the planner must give {count} different tasks for {work.split}, got {len(tasks)} of {count} from "
                f"{limit} specs ({dict(planned.rejected)}). What is there is saved: add requests, or ask for fewer"
            )
        number = wave.stop
        for found in await asyncio.gather(*(work.attempt(each, frozenset(seen)) for each in wave)):
            mark = "" if found.task is None else _mark(found.task.payload)
            if found.task is None:
                planned.reject(found.kind, found.reason)
            elif mark in seen:
                planned.reject("duplicate", found.task.payload["name"])
            elif near := [*same_code([found.task], others), *near_duplicates([found.task], others)]:
                planned.reject("near_duplicate", f"{near[0][0]} of {near[0][1]}")
            else:
                seen.add(mark)
                tasks.append(found.task)
        _logger.info(
            "%s: %d of %d tasks from %d specs, %s", work.split, len(tasks), count, number, dict(planned.rejected)
        )
    return tasks


def _mark(spec: Mapping[str, Any]) -> str:
    """Return what makes two specs one: their tools' descriptions without case, blanks and numbering."""
    said = [f"{tool['description']} {' '.join(tool['behaviour'])}" for tool in spec["tools"]]
    return json.dumps(sorted(re.sub(r"[\W_]+", " ", text.lower()).strip() for text in said))


@dataclass(frozen=True, slots=True)
class _SplitWork:
    """What all specs of a split need."""

    planner: Planner
    maker: Maker
    pool: ThreadPoolExecutor
    split: str
    requests: Sequence[str]
    seed: int
    mix: Mapping[int, float]

    async def attempt(self, number: int, seen: frozenset[str]) -> Try:
        """Ask for one spec and its code, and make a task of them; no code for what has been seen."""
        variation, place = divmod(number, len(self.requests))
        levels = sorted(self.mix)
        rng = random.Random(f"{self.seed}/{self.split}/{number}")
        [difficulty] = rng.choices(levels, [self.mix[level] for level in levels])
        draft = await ask_draft(self.planner, self.requests[place], variation, difficulty, seed=self.seed)
        if isinstance(draft, Try):
            return draft
        if _mark(draft) in seen:
            return Try(None, "duplicate", draft["name"])
        task_id = f"{FAMILY}/{self.split}/{number:05d}-{draft['name']}"
        return await make_planned(self.planner, self.maker, self.pool, draft, task_id, seed=self.seed)


async def ask_draft(
    planner: Planner, request: str, variation: int, difficulty: int, *, seed: int
) -> dict[str, Any] | Try:
    """Return what a planner makes of a user's request: a draft (`drafts.SPEC_SCHEMA`), or why there is none.

    Args:
        planner: Asks the service.
        request: What the user wants.
        variation: Number of the draft among those of this request.
        difficulty: 1 to 5.
        seed: Of the sampling.
    """
    answer = await planner.ask(spec_prompt(request, variation, difficulty), SPEC_SCHEMA, seed=seed)
    if not isinstance(answer, Answered):
        return Try(None, str(answer.kind), answer.reason)
    return {**answer.value, "difficulty": difficulty}


async def make_planned(
    planner: Planner, maker: Maker, pool: Executor, draft: dict[str, Any], task_id: str, *, seed: int
) -> Try:
    """Return the proved task of a draft, whose code the planner writes several times over.

    Args:
        planner: Asks the service.
        maker: Builds and proves.
        pool: Where that is done.
        draft: Of `drafts.SPEC_SCHEMA`.
        task_id: Of the task.
        seed: Of the sampling.
    """
    prompt = code_prompt(draft)
    seeds = range(seed, seed + NUM_REFERENCES)
    codes = await asyncio.gather(*(planner.ask(prompt, CODE_SCHEMA, seed=each) for each in seeds))
    bodies: list[dict[str, str]] = []
    for code in codes:
        if not isinstance(code, Answered):
            return Try(None, str(code.kind), code.reason)
        bodies.append({item["name"]: item["body"] for item in code.value["functions"]})

    def build(oracle: ReferenceOracle) -> Task:
        return build_task(checked_source(draft, bodies, oracle), task_id, oracle)

    key = f"{task_id}/{json.dumps([draft, bodies], sort_keys=True)}"
    made = await asyncio.get_running_loop().run_in_executor(pool, maker.make, key, build)
    return Try(made.task, "" if made.task else "unsound", made.reason)


def summary(planned: Planned, planner: Planner) -> dict[str, Any]:
    """Return what is written into the data set's manifest."""
    return {
        "requests": planned.requests,
        "rejected": dict(planned.rejected),
        "examples": planned.examples,
        "answers": dict(planner.outcomes),
        "replayed": planner.num_replayed,
    }
