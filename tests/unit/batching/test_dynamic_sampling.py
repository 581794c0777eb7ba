"""Flat groups replaced within their batch."""

from groups import make_group

from skyrl_nat.batching.dynamic_sampling import replace_flat_groups
from skyrl_nat.config.algorithm import AlgorithmConfig

CONFIG = AlgorithmConfig()


def test_flat_groups_are_replaced_by_copies_that_count_as_groups_of_their_own() -> None:
    groups = [make_group(0, [1.0, 0.0]), make_group(1, [0.5, 0.5]), make_group(2, [0.0, 1.0])]
    found = replace_flat_groups(groups, CONFIG, seed=1)
    assert [found[0], found[2]] == [groups[0], groups[2]]
    assert found[1].task.task_id in ("t0+1", "t2+1")
    assert [rollout.rollout_id for rollout in found[1].rollouts] in (["0-0+1", "0-1+1"], ["2-0+1", "2-1+1"])
    assert found == replace_flat_groups(groups, CONFIG, seed=1)
    choices = {replace_flat_groups(groups, CONFIG, seed=seed)[1].task.task_id for seed in range(20)}
    assert choices == {"t0+1", "t2+1"}


def test_a_batch_without_any_signal_stays_as_it_is() -> None:
    groups = [make_group(0, [1.0, 1.0]), make_group(1, [0.5, 0.5])]
    assert list(replace_flat_groups(groups, CONFIG, seed=1)) == groups
