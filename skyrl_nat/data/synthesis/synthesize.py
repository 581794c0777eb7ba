"""Many different tasks from the library, exactly as many as asked for and the same ones for the same seed."""

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from skyrl_nat.data.making.build import FAMILY, build_task
from skyrl_nat.data.making.maker import Made, Maker
from skyrl_nat.data.near_duplicates import fingerprint, near_duplicates, same_code, same_names
from skyrl_nat.data.synthesis.complete import complete
from skyrl_nat.data.synthesis.compose import Recipe, draw_recipe
from skyrl_nat.data.synthesis.family import Family
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

MAX_DRAWS = 300
"""Draws for one place until a task comes that is not there yet."""
MAX_ROUNDS = 12
"""Rounds in which rejected tasks are replaced."""


@dataclass(slots=True)
class _Place:
    """One row of the data set to be."""

    split: str
    number: int
    difficulty: int
    num_draws: int = 0
    recipe: Recipe | None = None
    task: Task | None = None


@dataclass(slots=True)
class Synthesis:
    """What was made."""

    tasks: dict[str, list[Task]]
    """Split -> tasks."""
    rejected: list[Made] = field(default_factory=list[Made])


def synthesize(
    maker: Maker,
    families: Mapping[str, Sequence[Family]],
    counts: Mapping[str, int],
    *,
    seed: int,
    mix: Mapping[int, float],
    stays: Collection[str] = ("train",),
    repeats: Mapping[str, int] | None = None,
) -> Synthesis:
    """Return as many tasks for each split as asked for.

    Args:
        maker: Builds and proves.
        families: Split -> the families that its tasks may use.
        counts: Split -> number of tasks.
        seed: Of all that is drawn.
        mix: Difficulty -> share.
        stays: Splits that keep their task where it and one of another split are nearly the same.
        repeats: Split -> how often it may ask for the same functions, each time with its own draw of words and inputs;
            once where it is not named.

    Raises:
        DataError: The library has too few different tasks.
    """
    places = [
        _Place(split, number, difficulty)
        for split, count in counts.items()
        for number, difficulty in enumerate(_difficulties(count, mix, f"{seed}/{split}"))
    ]
    taken: Counter[str] = Counter()
    most = repeats or {}
    rejected: list[Made] = []
    for _ in range(MAX_ROUNDS):
        open_places = [place for place in places if place.task is None]
        if not open_places:
            break
        for place in open_places:
            _fill(place, families[place.split], seed, taken, most.get(place.split, 1))
        work = [(_key(place), partial(_build, place)) for place in open_places]
        for place, made in zip(open_places, maker.make_all(work), strict=True):
            place.task = made.task
            rejected += [made] if made.task is None else []
        rejected += _drop_near_duplicates(places, stays)
    missing = sum(place.task is None for place in places)
    if missing:
        raise DataError(
            f"the library must give {len(places)} tasks, {missing} are missing after {MAX_ROUNDS} rounds, such as: "
            f"{rejected[-1].reason}. Ask for fewer, or add families"
        )
    return Synthesis({split: [p.task for p in places if p.split == split and p.task] for split in counts}, rejected)


def _drop_near_duplicates(places: Sequence[_Place], stays: Collection[str]) -> list[Made]:
    """Empty the places of tasks that are nearly the same as one that stays, or equal to one before."""
    dropped: list[Made] = []
    others = [place.task for place in places if place.split in stays and place.task]
    leaving = [place.task for place in places if place.split not in stays and place.task]
    near = dict(same_names(leaving, others)) | dict(same_code(leaving, others))
    near |= {task: other for task, other, _ in near_duplicates(leaving, others)}
    prints: set[str] = set()
    for place in places:
        if place.task is None:
            continue
        mark = fingerprint(place.task)
        if place.task.task_id in near or mark in prints:
            other = near.get(place.task.task_id, "another one")
            dropped.append(Made(key=_key(place), reason=f"{place.task.task_id} is nearly the same as {other}"))
            place.task = None
        prints.add(mark)
    return dropped


def _fill(place: _Place, families: Sequence[Family], seed: int, taken: Counter[str], most: int) -> None:
    """Draw a recipe that fewer than `most` places have or have had."""
    for _ in range(MAX_DRAWS):
        place.num_draws += 1
        recipe = draw_recipe(families, place.difficulty, f"{seed}/{place.split}/{place.number}/{place.num_draws}")
        if recipe is not None and taken[recipe.key] < most:
            taken[recipe.key] += 1
            place.recipe = recipe
            return
    raise DataError(
        f"the families of {place.split} must give another task of difficulty {place.difficulty}, found none in "
        f"{MAX_DRAWS} draws. Ask for fewer, change the mix, or add families"
    )


def _key(place: _Place) -> str:
    assert place.recipe is not None
    return f"{place.recipe.seed}/{place.recipe.key}"


def _build(place: _Place, oracle: ReferenceOracle) -> Task:
    assert place.recipe is not None
    source = complete(place.recipe, oracle)
    return build_task(source, f"{FAMILY}/{place.split}/{place.number:05d}-{source['id']}", oracle)


def _difficulties(count: int, mix: Mapping[int, float], seed: str) -> list[int]:
    """Return the difficulty of every place: shares by largest remainder, order by seed."""
    total = sum(mix.values())
    exact = {level: count * share / total for level, share in mix.items()}
    found = {level: int(value) for level, value in exact.items()}
    by_remainder = sorted(exact, key=lambda level: (found[level] - exact[level], level))
    for level in by_remainder[: count - sum(found.values())]:
        found[level] += 1
    levels = [level for level in sorted(found) for _ in range(found[level])]
    random.Random(seed).shuffle(levels)
    return levels
