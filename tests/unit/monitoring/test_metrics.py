"""Figures of a batch, worked out by hand."""

from dataclasses import replace

import pytest

from skyrl_nat.monitoring.metrics import group_metrics, mean, staleness_metrics, standard_deviation
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task

NAN = float("nan")
TASK = Task(task_id="t", family="f", payload={})


def rollout(reward: float | None, *, outcome=Outcome.FINISHED, versions=(3,), sampled=1) -> Rollout:
    result = None if reward is None else RewardResult(total=reward, parts={"p": reward / 2}, is_success=reward >= 1)
    return Rollout(
        rollout_id="r",
        task=TASK,
        token_ids=[0] * (1 + sampled),
        loss_mask=[False] + [True] * sampled,
        rollout_logprobs=[0.0] * (1 + sampled),
        token_versions=[-1, *versions],
        turns=[],
        prompt=[],
        outcome=outcome,
        reward=result,
    )


def with_parts(reward: float, parts: dict[str, float]) -> Rollout:
    return replace(rollout(reward), reward=RewardResult(total=reward, parts=parts, is_success=True))


def group(*rollouts: Rollout) -> RolloutGroup:
    return RolloutGroup(task=TASK, index=0, rollouts=list(rollouts))


def test_means_are_over_rollouts_with_a_verdict_and_zero_is_a_verdict():
    """Rows 17 and 18."""
    metrics = group_metrics([group(rollout(0.0), rollout(1.0), rollout(None, outcome=Outcome.INFRASTRUCTURE_FAILURE))])
    assert metrics["rollout/reward/mean"] == 0.5
    assert metrics["rollout/success/mean"] == 0.5
    assert metrics["reward/p/mean"] == 0.25
    assert metrics["rollout/infrastructure_failure/count"] == 1
    assert metrics["rollout/num_valid"] == 2


def test_what_environments_say_is_averaged_over_those_that_say_it():
    one = replace(rollout(1.0), metrics={"depth": 3.0, "retries": 1.0, "environment_reward": 7.0})
    two = replace(rollout(0.0), metrics={"depth": 4.0, "width": 2.0})
    lost = replace(rollout(None, outcome=Outcome.INFRASTRUCTURE_FAILURE), metrics={"depth": 99.0})
    metrics = group_metrics([group(one, two, lost)])
    found = {name: value for name, value in metrics.items() if name.startswith("environment/")}
    assert found == {"environment/depth/mean": 3.5, "environment/width/mean": 2.0}


def test_suspects_are_counted_among_all_that_were_judged_and_screened_ones_are_no_verdict():
    suspected = RewardResult(total=1.0, parts={"p": 1.0}, is_success=True, suspicions=["early exit: a.py:1"])
    screened = replace(rollout(1.0, outcome=Outcome.SCREENED), reward=suspected)
    kept = replace(rollout(0.0), reward=replace(suspected, total=0.0))
    failed = rollout(None, outcome=Outcome.VALIDATOR_FAILURE)
    metrics = group_metrics([group(screened, kept, rollout(0.5), rollout(0.25), failed)])
    assert metrics["reward/suspected/mean"] == 0.5
    assert metrics["rollout/screened/count"] == 1
    assert metrics["rollout/num_valid"] == 3
    assert metrics["rollout/reward/mean"] == 0.25
    assert metrics["reward/p/mean"] == (1.0 + 0.25 + 0.125) / 3


def test_zero_spread_groups_are_counted():
    """Row 13."""
    metrics = group_metrics([group(rollout(1.0), rollout(1.0)), group(rollout(0.0), rollout(1.0))])
    assert metrics["rollout/zero_spread_groups/mean"] == 0.5


def test_staleness_is_that_of_the_oldest_token_at_consumption():
    """Row 63."""
    groups = [group(rollout(1.0, versions=(5,))), group(rollout(1.0, versions=(4, 9), sampled=2))]
    assert staleness_metrics(groups, 9) == {"rollout/staleness/mean": 4.5, "rollout/staleness/max": 5.0}


def test_sample_standard_deviation():
    assert standard_deviation([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.5)
    assert standard_deviation([1.0]) == 0.0


def test_a_value_that_is_missing_is_no_zero_and_spoils_no_mean():
    """LG-04: four of six have a value, and their count stands beside the mean."""
    values = [0.5, NAN, NAN, 0.8, 0.6, 0.7]
    assert mean(values) == pytest.approx(0.65)
    assert standard_deviation([1.0, NAN, 0.0, 0.0, 0.0]) == pytest.approx(0.5)
    rollouts = [with_parts(1.0, {"p": value}) for value in values]
    metrics = group_metrics([group(*rollouts[:3]), group(*rollouts[3:])])
    assert metrics["reward/p/mean"] == pytest.approx(0.65)
    assert metrics["reward/p/count"] == 4
    assert metrics["rollout/num_valid"] == 6


def test_a_part_that_some_rollouts_do_not_have_has_its_count():
    """LG-04."""
    metrics = group_metrics([group(with_parts(1.0, {"p": 0.5, "q": 1.0}), with_parts(1.0, {"q": 0.0}))])
    assert (metrics["reward/p/mean"], metrics["reward/p/count"]) == (0.5, 1)
    assert metrics["reward/q/mean"] == 0.5
    assert "reward/q/count" not in metrics, "all have it"


def test_what_nothing_is_known_of_is_absent_not_zero():
    """LG-04."""
    metrics = group_metrics([group(with_parts(1.0, {"p": NAN}), rollout(None, outcome=Outcome.VALIDATOR_FAILURE))])
    assert "reward/p/mean" not in metrics
    assert metrics["reward/p/count"] == 0
    empty = group_metrics([group(rollout(None, outcome=Outcome.INFRASTRUCTURE_FAILURE))])
    assert not [name for name in empty if name.startswith("rollout/reward") or name.endswith("success/mean")]
    assert empty["rollout/infrastructure_failure/count"] == 1
    assert group_metrics([])["rollout/num_valid"] == 0
    assert staleness_metrics([], 3) == {}
