"""What an evaluation says of a model: shares and means with their intervals, from the groups that were played."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from skyrl_nat.evaluation.statistics import Interval, bootstrap_interval, pass_at_k, wilson_interval
from skyrl_nat.monitoring.metrics import group_metrics, mean
from skyrl_nat.types import Outcome, Rollout, RolloutGroup

Figure = dict[str, float | int | str | None]


def figures(groups: Sequence[RolloutGroup]) -> dict[str, Any]:
    """Return all figures of some groups as JSON data.

    Every task counts once, with the mean over its rollouts. A failure of the policy is a failure. A rollout without a
    verdict says nothing of the policy: it is counted, and in no mean; `num_without_verdict` tells of tasks that have
    none at all, which are played again when the evaluation is started anew.
    """
    judged = [group for group in groups if group.valid_rollouts]
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    finished = [rollout for group in judged for rollout in group.valid_rollouts if rollout.outcome is Outcome.FINISHED]
    return {
        "num_tasks": len(groups),
        "num_rollouts": len(rollouts),
        "num_without_verdict": len(groups) - len(judged),
        "success": success_of(judged),
        "success_of_finished": {"value": _or_none(mean(map(success, finished))), "n": len(finished)},
        "reward": reward_of(judged),
        "parts": _parts(judged),
        "outcomes": {str(outcome): sum(rollout.outcome is outcome for rollout in rollouts) for outcome in Outcome},
        "by_difficulty": _by(judged, lambda group: f"level {group.task.difficulty}"),
        "by_family": _by(judged, lambda group: group.task.family),
        "pass_at_k": passes(judged),
        "metrics": group_metrics(groups),
    }


def success_of(groups: Sequence[RolloutGroup]) -> Figure:
    """Return the share of successes: Wilson's interval of one rollout per task, the bootstrap's over tasks of more."""
    shares = [mean(map(success, group.valid_rollouts)) for group in groups]
    if not shares:
        return _figure(shares, None)
    if all(share in (0.0, 1.0) for share in shares):
        return _figure(shares, wilson_interval(int(sum(shares)), len(shares)))
    return _figure(shares, bootstrap_interval(shares))


def reward_of(groups: Sequence[RolloutGroup]) -> Figure:
    """Return the mean reward with the bootstrap's interval over tasks."""
    rewards = [mean(_reward(rollout) for rollout in group.valid_rollouts) for group in groups]
    return _figure(rewards, bootstrap_interval(rewards) if rewards else None)


def passes(groups: Sequence[RolloutGroup]) -> dict[str, Figure]:
    """Return pass@k for k = 1, 2, 4, … up to the number of rollouts that every task has; nothing of one rollout."""
    fewest = min((len(group.valid_rollouts) for group in groups), default=0)
    found = {}
    k = 1
    while k <= fewest and fewest > 1:
        chances = [
            pass_at_k(len(group.valid_rollouts), sum(map(bool, map(success, group.valid_rollouts))), k)
            for group in groups
        ]
        found[str(k)] = _figure(chances, bootstrap_interval(chances))
        k *= 2
    return found


def _by(groups: Sequence[RolloutGroup], key: Callable[[RolloutGroup], str]) -> dict[str, dict[str, Figure]]:
    parts: dict[str, list[RolloutGroup]] = defaultdict(list)
    for group in groups:
        parts[key(group)].append(group)
    return {
        name: {"success": success_of(members), "reward": reward_of(members)} for name, members in sorted(parts.items())
    }


def _parts(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return the mean of every reward part over the rollouts that have it."""
    values: dict[str, list[float]] = defaultdict(list)
    for group in groups:
        for rollout in group.valid_rollouts:
            for name, value in (rollout.reward.parts if rollout.reward else {}).items():
                values[name].append(value)
    return {name: average for name, found in sorted(values.items()) if (average := mean(found)) == average}


def _figure(values: Sequence[float], interval: Interval | None) -> Figure:
    if interval is None:
        return {"value": None, "low": None, "high": None, "n": 0, "method": "", "note": "no task has a verdict"}
    return {
        "value": mean(values),
        "low": interval.low,
        "high": interval.high,
        "n": len(values),
        "method": interval.method,
        "note": interval.note,
    }


def success(rollout: Rollout) -> float:
    """Return 1.0 where every hidden requirement holds, else 0.0."""
    return float(rollout.reward is not None and rollout.reward.is_success)


def _reward(rollout: Rollout) -> float:
    assert rollout.reward is not None
    return rollout.reward.total


def _or_none(value: float) -> float | None:
    return value if value == value else None
