"""What a task scored in an evaluation.

What the policy caused counts against it: a task that ran out of budget or broke off has its score. A rollout that was
screened, as a suspect of cheating, is no success and earns 0. What infrastructure or validator lost has no score.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skyrl_nat.evaluation.statistics import mean
from skyrl_nat.types import Outcome, Rollout, RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScore:
    """What one side scored on one task: means over its rollouts, the same for every order of them."""

    success: float
    """Share of judged rollouts whose hidden requirements all hold."""
    reward: float
    finished_success: float | None
    """The same share over rollouts that finished; None where none did."""
    parts: dict[str, float]
    """Mean of every reward part over the rollouts that have it."""


def score_of(group: RolloutGroup) -> TaskScore | None:
    """Return the score of a task, None where no rollout has a verdict.

    Args:
        group: One greedy rollout, or several.
    """
    found = judged(group)
    if not found:
        return None
    finished = [rollout for rollout in found if rollout.outcome is Outcome.FINISHED]
    parts: dict[str, list[float]] = defaultdict(list)
    for rollout in group.valid_rollouts:
        for name, value in (rollout.reward.parts if rollout.reward else {}).items():
            if math.isfinite(value):
                parts[name].append(value)
    return TaskScore(
        success=mean(map(success, found)),
        reward=mean(map(reward, found)),
        finished_success=mean(map(success, finished)) if finished else None,
        parts={name: mean(values) for name, values in sorted(parts.items())},
    )


def averaged(evaluations: Iterable[Sequence[RolloutGroup]]) -> list[RolloutGroup]:
    """Return each task once, with the rollouts of all evaluations: its score is their mean."""
    tasks: dict[str, list[RolloutGroup]] = defaultdict(list)
    for groups in evaluations:
        for group in groups:
            tasks[group.task.task_id].append(group)
    return [
        RolloutGroup(task=found[0].task, index=index, rollouts=[one for group in found for one in group.rollouts])
        for index, found in enumerate(tasks.values())
    ]


def judged(group: RolloutGroup) -> list[Rollout]:
    """Return the rollouts that say something of the policy."""
    return [*group.valid_rollouts, *(rollout for rollout in group.rollouts if rollout.outcome is Outcome.SCREENED)]


def success(rollout: Rollout) -> float:
    """Return 1.0 where every hidden requirement holds, else 0.0."""
    return float(rollout.outcome.is_trainable and rollout.reward is not None and rollout.reward.is_success)


def reward(rollout: Rollout) -> float:
    """Return what a judged rollout earned."""
    return rollout.reward.total if rollout.outcome.is_trainable and rollout.reward is not None else 0.0
