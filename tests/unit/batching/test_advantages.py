"""Rewards of a group to advantages of tokens."""

from dataclasses import replace

import pytest
from groups import make_group, make_rollout, make_turn

from skyrl_nat.batching.advantages import group_advantages, has_signal
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.types import Outcome, RewardResult, RolloutGroup, Task


def advantages(group: RolloutGroup, **settings: object) -> list[list[float]]:
    return group_advantages(group, AlgorithmConfig(**settings), max_total_tokens=10)  # type: ignore[arg-type]


def test_a_rollout_without_a_verdict_shifts_nobody() -> None:
    """Rows 15, 16, 18; GM-04: statistics are over the valid rollouts; tokens outside the loss get exactly 0."""
    found = advantages(make_group(0, [1.0, None, 0.0, 0.0, 0.0]))
    assert [values[:2] for values in found] == [[0.0, 0.0]] * 4
    assert [values[-1] for values in found] == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


def test_every_path_to_an_advantage_is_the_same_one() -> None:
    """GM-08: off 0.75 and -0.25, on 1.5 and -0.5, for one turn and for several."""
    for turns in ([make_turn(2)], [make_turn(1), make_turn(1)]):
        group = make_group(0, [1.0, 0.0, 0.0, 0.0], turns=turns)
        for name, expected in (("dr_grpo", [0.75, -0.25]), ("grpo", [1.5, -0.5])):
            found = advantages(group, advantage=name)
            assert [found[0][-1], found[1][-1]] == pytest.approx(expected, abs=1e-5)


def by_turn(name: str, rewards: list[float]) -> RolloutGroup:
    """Return a group of one rollout whose turns of two tokens earned these rewards."""
    result = RewardResult(total=sum(rewards), parts={}, is_success=False, is_by_turn=True)
    rollout = make_rollout(
        name,
        0.0,
        num_sampled=2 * len(rewards) + 1,
        loss_mask=[False, False, *([True, True, False, *[True, True] * (len(rewards) - 1)])],
        turns=[make_turn(2, reward) for reward in rewards],
    )
    rollout = replace(rollout, reward=result)
    return RolloutGroup(task=Task(task_id=name, family="f", payload={}), index=0, rollouts=[rollout])


def test_rewards_earned_turn_by_turn_go_to_what_led_to_them() -> None:
    """Rows 21 and 23: 1 for the first turn, 2 for the second; the observation between them gets nothing."""
    (found,) = advantages(by_turn("a", [1.0, 2.0]), advantage="reinforce")
    assert found == [0.0, 0.0, 3.0, 3.0, 0.0, 2.0, 2.0]
    (discounted,) = advantages(by_turn("a", [1.0, 2.0]), advantage="reinforce", gamma=0.5)
    assert discounted == [0.0, 0.0, 0.5 + 0.25, 1.0 + 0.5, 0.0, 1.0, 2.0]


def test_kto_and_cross_entropy_read_labels_and_nothing() -> None:
    group = make_group(0, [1.0, 0.4])
    settings = {"policy_loss": "kto", "reduction": "sequence_mean", "desirable_weight": 1.5, "undesirable_weight": 0.5}
    assert [values[-1] for values in advantages(group, **settings)] == [1.5, -0.5]
    assert [values[-1] for values in advantages(group, policy_loss="cross_entropy")] == [1.0, 1.0]


def test_length_penalty_enters_advantages_and_no_filter() -> None:
    """Row 20: the filter's decision is that of the rewards without the penalty."""
    group = make_group(0, [0.5, 0.5])
    longer = make_rollout("long", 0.5, num_sampled=8)
    mixed = RolloutGroup(task=group.task, index=0, rollouts=[group.rollouts[0], longer])
    config = AlgorithmConfig(advantage="dr_grpo", overlong_buffer=4, overlong_penalty=0.5)  # type: ignore[arg-type]
    found = group_advantages(mixed, config, max_total_tokens=10)
    assert [values[-1] for values in found] == pytest.approx([0.25, -0.25])
    assert not has_signal(mixed, config)
    assert mixed.rollouts[1].reward is not None
    assert mixed.rollouts[1].reward.total == 0.5, "the logged reward is not touched"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"advantage": "reinforce"}, True),
        ({"kl_in_reward": True, "kl_coefficient": 0.1, "kl_estimator": "k1", "old_logprobs": "rollout"}, True),
        ({"policy_loss": "cross_entropy"}, True),
    ],
)
def test_flat_groups_have_a_signal_where_something_else_than_the_group_gives_one(
    settings: dict[str, object], expected: bool
) -> None:
    config = AlgorithmConfig(**settings)  # type: ignore[arg-type]
    assert has_signal(make_group(0, [0.7, 0.7, 0.7]), config) is expected
    assert has_signal(make_group(0, [0.7, 0.7, 0.8]), config)


@pytest.mark.parametrize("total", [5.0, 500.0])
def test_a_rejected_rollout_that_has_a_reward_shifts_nobody(total: float) -> None:
    """GM-04: of 1, 1, 0 and a rejected one the advantages are 1/3, 1/3, -2/3, whatever the rejected one got."""
    group = make_group(0, [1.0, 1.0, 0.0])
    rejected = make_rollout("rejected", total, outcome=Outcome.VALIDATOR_FAILURE)
    found = advantages(replace(group, rollouts=[*group.rollouts, rejected]), advantage="dr_grpo")
    assert [values[-1] for values in found] == pytest.approx([1 / 3, 1 / 3, -2 / 3])


def test_a_reward_at_the_end_reaches_every_turn_once() -> None:
    """Row 21: the verdict of the whole rollout, minus nothing, at each of its tokens."""
    rollout = replace(by_turn("a", [0.5, 0.25]).rollouts[0], reward=RewardResult(total=1.0, parts={}, is_success=True))
    group = RolloutGroup(task=Task(task_id="a", family="f", payload={}), index=0, rollouts=[rollout])
    assert advantages(group, advantage="reinforce") == [[0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0]]


def test_flow_grpo_gives_the_outcomes_advantage_to_every_token_of_every_turn() -> None:
    """Two turns of two tokens; rewards 1 and 0 are 0.5 from their mean and have a deviation of 1/sqrt(2)."""
    turns, mask = [make_turn(2), make_turn(2)], [False, False, True, True, False, True, True]
    group = make_group(0, [1.0, 0.0], num_sampled=5, turns=turns, loss_mask=mask)
    found = group_advantages(group, load_config(["algorithm=flow_grpo"]).algorithm, max_total_tokens=10)
    for values, expected in zip(found, (2**-0.5, -(2**-0.5)), strict=True):
        assert values == pytest.approx([expected if is_sampled else 0.0 for is_sampled in mask], abs=1e-4)
