"""Playing held-out tasks and summing up what came out."""

import asyncio
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from skyrl_nat.evaluation.scores import score_of
from skyrl_nat.evaluation.statistics import mean
from skyrl_nat.monitoring.metrics import group_metrics
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import RolloutGroup, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationResult:
    """Figures of one evaluation."""

    step: int
    """Policy version evaluated."""
    num_tasks: int
    """Tasks played; failures of the policy count as wrong and stay in here."""
    num_without_verdict: int
    """Tasks lost to infrastructure or validator failures after all retries; not in the means."""
    success: float
    """Share of tasks with a verdict whose hidden requirements all hold."""
    reward: float
    """Mean reward over tasks with a verdict."""
    parts: dict[str, float]
    """Mean of every reward part."""
    success_by_difficulty: dict[int, float]
    metrics: dict[str, float]
    """The same metrics as in training."""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the result that a line of JSON holds; NaN, a mean of nothing, is null there."""
        values = {field.name: _with_nan(data[field.name]) for field in fields(cls)}
        levels = {int(level): share for level, share in values["success_by_difficulty"].items()}
        return cls(**{**values, "success_by_difficulty": levels})


async def play_tasks(
    runner: GroupRunner,
    tasks: Sequence[Task],
    *,
    temperature: float,
    num_rollouts: int = 1,
    kept: Mapping[int, RolloutGroup] | None = None,
    keep: Callable[[RolloutGroup], None] | None = None,
) -> list[RolloutGroup]:
    """Play all tasks at once with the rollout code of training.

    Ids and seeds do not depend on when the evaluation happens, so that two policies meet the same draws.

    Args:
        runner: Plays a group.
        tasks: What to play.
        temperature: 0 for greedy.
        num_rollouts: Of each task.
        kept: Groups that were played before, by the task's place; they are not played again.
        keep: Gets each group as soon as it is played.

    Raises:
        OSError: `keep` could not write.
    """
    known = kept or {}

    async def play(task: Task, index: int) -> RolloutGroup:
        if index in known:
            return known[index]
        group = await runner.play_group(task, index, num_rollouts=num_rollouts, temperature=temperature, label="eval")
        if keep is not None:
            keep(group)
        return group

    try:
        async with asyncio.TaskGroup() as tasks_running:
            running = [tasks_running.create_task(play(task, index)) for index, task in enumerate(tasks)]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in running]


def summarize(step: int, groups: Sequence[RolloutGroup]) -> EvaluationResult:
    """Sum up played groups; every task counts once."""
    scored = [(group, score) for group in groups if (score := score_of(group)) is not None]
    by_difficulty: dict[int, list[float]] = defaultdict(list)
    for group, score in scored:
        by_difficulty[group.task.difficulty].append(score.success)
    parts: dict[str, list[float]] = defaultdict(list)
    for _, score in scored:
        for name, value in score.parts.items():
            parts[name].append(value)
    return EvaluationResult(
        step=step,
        num_tasks=len(groups),
        num_without_verdict=len(groups) - len(scored),
        success=_mean(score.success for _, score in scored),
        reward=_mean(score.reward for _, score in scored),
        parts={name: mean(values) for name, values in sorted(parts.items())},
        success_by_difficulty={level: mean(values) for level, values in sorted(by_difficulty.items())},
        metrics=group_metrics(groups),
    )


def _mean(values: Iterable[float]) -> float:
    """Return the mean, the same for every order; NaN of nothing."""
    items = list(values)
    return mean(items) if items else math.nan


def _with_nan(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_nan(item) for key, item in value.items()}
    return math.nan if value is None else value
