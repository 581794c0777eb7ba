"""From groups to numbers: names are `part/quantity[/reduction]`."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from skyrl_nat.types import FinishReason, Outcome, RolloutGroup

_OWN = {"retries", "environment_reward"}
"""Numbers of a rollout that are not the environment's."""


def mean(values: Iterable[float]) -> float:
    """Return the mean of the values that are known; NaN stands for one that is not, and for the mean of nothing."""
    items = _known(values)
    return sum(items) / len(items) if items else math.nan


def standard_deviation(values: Iterable[float]) -> float:
    """Return the sample standard deviation of the values that are known, 0.0 of one and NaN of none."""
    items = _known(values)
    if len(items) < 2:
        return 0.0 if items else math.nan
    centre = mean(items)
    return math.sqrt(sum((value - centre) ** 2 for value in items) / (len(items) - 1))


def group_metrics(groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Return reward, outcome, length and spread figures of a batch.

    Statistics are over rollouts that have a verdict; those without are counted, never averaged as 0. A part of the
    reward that not all of them have has its count beside its mean. Numbers that environments give of their rollouts are
    averaged over those that have them. What nothing is known of is absent.
    """
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    valid = [rollout for group in groups for rollout in group.valid_rollouts]
    rewards = [rollout.reward.total for rollout in valid if rollout.reward is not None]
    turns = [turn for rollout in valid for turn in rollout.turns]
    metrics = {
        "rollout/reward/mean": mean(rewards),
        "rollout/reward/std": standard_deviation(rewards),
        "rollout/reward/max": max(_known(rewards), default=math.nan),
        "rollout/success/mean": mean(float(r.reward.is_success) for r in valid if r.reward is not None),
        "rollout/num_valid": float(len(valid)),
        "rollout/turns/mean": mean(len(rollout.turns) for rollout in valid),
        "rollout/segments/mean": mean(len(rollout.segment_starts) for rollout in valid),
        "rollout/completion_tokens/mean": mean(rollout.num_loss_tokens for rollout in valid),
        "rollout/total_tokens/mean": mean(len(rollout.token_ids) for rollout in valid),
        "rollout/length_finish/mean": mean(turn.finish_reason is FinishReason.LENGTH for turn in turns),
        "rollout/generate_s/mean": mean(turn.generate_s for turn in turns),
        "rollout/environment_s/mean": mean(turn.environment_s for turn in turns),
        "rollout/score_s/mean": mean(group.score_s for group in groups),
        "rollout/score_s/max": max((group.score_s for group in groups), default=math.nan),
        "rollout/zero_spread_groups/mean": mean(_has_no_spread(group) for group in groups),
    }
    for outcome in Outcome:
        metrics[f"rollout/{outcome}/count"] = float(sum(rollout.outcome is outcome for rollout in rollouts))
    judged = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    metrics["reward/suspected/mean"] = mean(float(bool(reward.suspicions)) for reward in judged)
    parts: dict[str, list[float]] = defaultdict(list)
    for rollout in valid:
        for name, value in (rollout.reward.parts if rollout.reward else {}).items():
            parts[name].append(value)
    for name, values in sorted(parts.items()):
        metrics[f"reward/{name}/mean"] = mean(values)
        if len(_known(values)) < len(valid):
            metrics[f"reward/{name}/count"] = float(len(_known(values)))
    metrics |= _said_by_environments(rollout.metrics for rollout in valid)
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _said_by_environments(said: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Return the mean of every number that environments give of their rollouts (`get_metrics`)."""
    columns: dict[str, list[float]] = defaultdict(list)
    for metrics in said:
        for name in metrics.keys() - _OWN:
            columns[name].append(metrics[name])
    return {f"environment/{name}/mean": mean(columns[name]) for name in sorted(columns)}


def staleness_metrics(groups: Sequence[RolloutGroup], version: int) -> dict[str, float]:
    """Return how far behind `version` the oldest token of each group is, at consumption."""
    lags = [float(version - group.oldest_version) for group in groups if group.oldest_version >= 0]
    return {"rollout/staleness/mean": mean(lags), "rollout/staleness/max": max(lags)} if lags else {}


def with_prefix(prefix: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics with a first part put before their names."""
    return {f"{prefix}/{name}": value for name, value in metrics.items()}


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not math.isnan(value)]


def _has_no_spread(group: RolloutGroup) -> float:
    rewards = [rollout.reward.total for rollout in group.valid_rollouts if rollout.reward is not None]
    return float(len(rewards) > 0 and max(rewards) - min(rewards) < 1e-8)
