"""Figures of every judged rollout of a run as columns: some bytes a rollout, whatever its text."""

import math
from array import array
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from skyrl_nat.evaluation.analysis.findings import Evidence
from skyrl_nat.evaluation.measures import ComparisonSettings, Measure, Values, measures_of
from skyrl_nat.evaluation.scores import judged, success
from skyrl_nat.evaluation.scores import reward as reward_of
from skyrl_nat.evaluation.verdict import Decision, verdict_of
from skyrl_nat.types import RolloutGroup

MIN_PAIRS = 8
"""Of a comparison of the same tasks: under it, one task decides."""
FLAT = 1e-8
"""Rewards of a group that differ by less are equal."""
GOOD_FIT = 0.9
"""Share of the total's variance from which on the weights of its parts are known: under it they do not make it up."""


@dataclass(frozen=True, slots=True)
class PairedChange:
    """How the same tasks fare at two steps."""

    first_step: int
    last_step: int
    measure: Measure
    """First step before, last step after."""
    decision: Decision

    def to_dict(self) -> Evidence:
        """Return it as evidence."""
        found = self.measure
        return {
            "first_step": self.first_step,
            "last_step": self.last_step,
            "n": found.num_tasks,
            "first": found.before,
            "last": found.after,
            "change": found.difference,
            "low": found.interval.low,
            "high": found.interval.high,
            "p": found.test.p,
        }


class RolloutTable:
    """Step, group, task, reward, success and reward parts of rollouts that have a verdict."""

    def __init__(self) -> None:
        self._columns: dict[str, array[float]] = defaultdict(lambda: array("d"))
        self._parts: dict[str, array[float]] = {}
        self._tasks: dict[str, int] = {}
        self.families = set[str]()
        """Of the tasks."""

    def __len__(self) -> int:
        return len(self._columns["reward"])

    def add(self, step: int, group: RolloutGroup, *, is_held_out: bool = False) -> None:
        """Take the valid rollouts of a group; of a held-out task also screened ones, as failures, as in evaluations."""
        self.families.add(group.task.family)
        task = self._tasks.setdefault(group.task.task_id, len(self._tasks))
        for rollout in judged(group) if is_held_out else group.valid_rollouts:
            reward = rollout.reward
            if reward is None or not math.isfinite(reward.total):
                continue
            for name in reward.parts.keys() - self._parts.keys():
                self._parts[name] = array("d", [math.nan]) * len(self)
            for name, column in self._parts.items():
                column.append(reward.parts.get(name, math.nan))
            row = {"step": step, "group": group.index, "task": task, "success": success(rollout)}
            for name, value in {**row, "reward": reward_of(rollout)}.items():
                self._columns[name].append(value)

    def column(self, name: str) -> np.ndarray:
        """Return `step`, `group`, `task`, `reward` or `success` of all rollouts."""
        return np.array(self._columns[name])

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """Reward parts by name; NaN where a rollout has none of it."""
        return {name: np.array(self._parts[name]) for name in sorted(self._parts)}

    def half_widths(self, name: str) -> dict[int, float]:
        """Return by step the half width of the interval of a column's mean, over groups: their rollouts share a task.

        Steps of one group have none.
        """
        widths = {}
        steps, means = self._group_means(name)
        for step in np.unique(steps):
            values = means[steps == step]
            if len(values) > 1:
                # Of the normal distribution: the picture of a band needs no more.
                widths[int(step)] = float(1.96 * values.std(ddof=1) / math.sqrt(len(values)))
        return widths

    def flat_groups(self) -> dict[int, tuple[int, int, int]]:
        """Return by step how many groups there are, and how many of equal rewards succeed wholly, or not at all."""
        if not len(self):
            return {}
        keys, inverse = np.unique(np.stack([self.column("step"), self.column("group")]), axis=1, return_inverse=True)
        lowest, highest = np.full(keys.shape[1], math.inf), np.full(keys.shape[1], -math.inf)
        np.minimum.at(lowest, inverse.ravel(), self.column("reward"))
        np.maximum.at(highest, inverse.ravel(), self.column("reward"))
        success = np.bincount(inverse.ravel(), self.column("success")) / np.bincount(inverse.ravel())
        is_flat = highest - lowest < FLAT
        return {
            int(step): (
                int((keys[0] == step).sum()),
                int((is_flat & (success == 1) & (keys[0] == step)).sum()),
                int((is_flat & (success == 0) & (keys[0] == step)).sum()),
            )
            for step in np.unique(keys[0])
        }

    def paired(self, name: str) -> PairedChange | None:
        """Return how the tasks that both the first and the last step have changed in `success` or `reward`.

        The tests are those of a comparison; None of fewer tasks than `MIN_PAIRS`.
        """
        steps = np.unique(self.column("step"))
        if len(steps) < 2:
            return None
        first, last = (self._task_means(name, step) for step in (steps[0], steps[-1]))
        tasks = sorted(first.keys() & last.keys())
        if len(tasks) < MIN_PAIRS:
            return None
        before, after = ([means[task] for task in tasks] for means in (first, last))
        settings = ComparisonSettings()
        [measure] = measures_of([Values(name=name, before=before, after=after, is_share=name == "success")], settings)
        return PairedChange(int(steps[0]), int(steps[-1]), measure, verdict_of(measure, settings).decision)

    def _task_means(self, name: str, step: float) -> Mapping[int, float]:
        rows = self.column("step") == step
        tasks, values = self.column("task")[rows], self.column(name)[rows]
        return {int(task): float(values[tasks == task].mean()) for task in np.unique(tasks)}

    def _group_means(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return step and mean of every group."""
        if not len(self):
            return np.empty(0), np.empty(0)
        keys, inverse = np.unique(np.stack([self.column("step"), self.column("group")]), axis=1, return_inverse=True)
        return keys[0], np.bincount(inverse.ravel(), self.column(name)) / np.bincount(inverse.ravel())


@dataclass(frozen=True, slots=True)
class PartWeights:
    """What one unit of each part adds to the total."""

    weights: dict[str, float]
    fit: float
    """R²: share of the total's variance that the weighted parts explain; 1 where they make it up."""

    @property
    def is_good(self) -> bool:
        """Whether the parts make up the total."""
        return self.fit >= GOOD_FIT


def part_weights(table: RolloutTable) -> PartWeights:
    """Return the weights that explain the total best (least squares; equal parts get equal weights).

    A part that a rollout has none of counts as 0, as it does in the total.
    """
    parts, total = table.parts, table.column("reward")
    if not parts or np.ptp(total) == 0:
        return PartWeights(dict.fromkeys(parts, 0.0), 0.0)
    matrix = np.nan_to_num(np.stack([*parts.values(), np.ones(len(total))], axis=1))
    found = np.linalg.lstsq(matrix, total, rcond=None)[0]
    fit = 1 - float(((total - matrix @ found) ** 2).sum() / ((total - total.mean()) ** 2).sum())
    return PartWeights(dict(zip(parts, map(float, found), strict=False)), fit)


def correlations(table: RolloutTable) -> dict[str, dict[str, float | None]]:
    """Return Pearson's correlation of success, reward and every part with each other; None where one is constant."""
    columns = {"success": table.column("success"), "reward": table.column("reward"), **table.parts}
    return {one: {other: _correlation(columns[one], columns[other]) for other in columns} for one in columns}


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < 3 or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return None
    return float(np.corrcoef(one[known], other[known])[0, 1])
