"""Advantages against numbers worked out by hand."""

import pytest
import torch

from skyrl_nat.algorithms.advantages import (
    ADVANTAGES,
    has_zero_spread,
    overlong_penalty,
    reward_to_go,
    whiten,
)

FUNCTIONS = [(name, ADVANTAGES[name]) for name in sorted(ADVANTAGES.keys() - {"reinforce"})]


def test_one_success_in_four_gives_the_documented_numbers() -> None:
    """Row 15, GM-08: the deviation is the sample's, and each function is what its paper says."""
    rewards = torch.tensor([1.0, 0.0, 0.0, 0.0])
    expected = {
        "grpo": [1.5, -0.5, -0.5, -0.5],
        "dr_grpo": [0.75, -0.25, -0.25, -0.25],
        "rloo": [1.0, -1 / 3, -1 / 3, -1 / 3],
        "maxrl": [3.0, -1.0, -1.0, -1.0],
        "reinforce": [1.0, 0.0, 0.0, 0.0],
    }
    assert expected.keys() == ADVANTAGES.keys()
    for name, values in expected.items():
        assert ADVANTAGES[name](rewards).tolist() == pytest.approx(values, abs=1e-5)


def test_close_rewards_are_not_swallowed_by_epsilon() -> None:
    """Row 14: a spread of 1e-5 still counts."""
    rewards = torch.tensor([1.00000, 1.00001], dtype=torch.float64)
    assert ADVANTAGES["grpo"](rewards).tolist() == pytest.approx([-0.6195, 0.6195], abs=1e-4)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 16, 64])
@pytest.mark.parametrize("value", [0.0, 0.1, 0.3, 0.7, 1 / 3, -0.2, 10000.0])
def test_equal_rewards_give_exactly_zero(name: str, function, size: int, value: float) -> None:
    """Rows 12 and 13, GM-02: one rollout or no spread teaches nothing, in any format."""
    for dtype in (torch.float32, torch.float64):
        for rewards in (
            torch.full((size,), value, dtype=dtype),
            torch.full((size,), value).bfloat16().to(dtype),
        ):
            assert function(rewards).tolist() == [0.0] * size, name
            assert has_zero_spread(rewards)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_float_residue_of_weighted_sums_counts_as_equal(name: str, function) -> None:
    """GM-02: 0.1 + 0.2 and 0.3 are the same reward."""
    rewards = torch.tensor([0.1 + 0.2, 0.3, 0.3, 0.6 - 0.3], dtype=torch.float64)
    assert rewards.unique().numel() > 1
    assert function(rewards).tolist() == [0.0] * 4, name


@pytest.mark.parametrize(("name", "function"), FUNCTIONS)
def test_advantages_follow_their_rewards_when_rollouts_are_reordered(name: str, function) -> None:
    """Row 16: identity is the position in the group, nothing else."""
    rewards = torch.tensor([0.0, 0.25, 1.0, 0.5, 0.75], dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 2, 1])
    assert torch.equal(function(rewards[order]), function(rewards)[order]), name


def test_a_reward_of_zero_is_a_reward() -> None:
    """Row 17: the mean of 0 and 1 is one half."""
    assert ADVANTAGES["dr_grpo"](torch.tensor([0.0, 1.0])).tolist() == [-0.5, 0.5]


def test_one_low_reward_among_equal_ones_stays_bounded() -> None:
    """GM-01: no residue is amplified; fp32 and fp64 agree."""
    values = [0.0] + [0.95] * 7
    for name, function in FUNCTIONS:
        single = function(torch.tensor(values))
        double = function(torch.tensor(values, dtype=torch.float64))
        assert single.tolist() == pytest.approx(double.tolist(), abs=1e-3), name
        assert single.abs().max() < 100, name
    low = ADVANTAGES["rloo"](torch.tensor(values))[0]
    assert float(low) == pytest.approx(-0.95)


def test_a_rejected_rollout_does_not_touch_the_statistics_of_the_others() -> None:
    """GM-04: statistics are taken over what is passed in, so a filter removes the row before."""
    kept = ADVANTAGES["dr_grpo"](torch.tensor([1.0, 1.0, 0.0]))
    assert kept.tolist() == pytest.approx([1 / 3, 1 / 3, -2 / 3])


def test_an_empty_group_gives_no_advantages() -> None:
    for function in ADVANTAGES.values():
        assert function(torch.zeros(0)).tolist() == []


def test_maxrl_has_the_gradient_of_log_success() -> None:
    """The mean over successes of the score, minus the mean over all: weights 1/K - 1/G, times G."""
    advantages = ADVANTAGES["maxrl"](torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0]))
    assert (advantages / 5).tolist() == pytest.approx([1 / 2 - 1 / 5] * 2 + [-1 / 5] * 3)
    with pytest.raises(ValueError, match="rewards must be >= 0 for maxrl"):
        ADVANTAGES["maxrl"](torch.tensor([1.0, -0.5]))


def test_a_reward_crosses_an_observation() -> None:
    """Row 21: mask 1 1 0 0 1 1 and reward 1 at the end give the mask itself, whatever the gap holds."""
    mask = torch.tensor([1, 1, 0, 0, 1, 1], dtype=torch.bool)
    rewards = torch.tensor([0.0, 0.0, float("nan"), 7.0, 0.0, 1.0])
    assert reward_to_go(rewards, mask, torch.tensor([0, 6]), gamma=1.0).tolist() == [1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_reward_to_go_stays_in_its_sequence_and_discounts_per_token(gamma: float) -> None:
    mask = torch.tensor([False, True, True, False, True, True])
    rewards = torch.tensor([0.0, 1.0, 2.0, 0.0, 4.0, 8.0])
    found = reward_to_go(rewards, mask, torch.tensor([0, 3, 6]), gamma=gamma)
    assert found.tolist() == [0.0, 1 + gamma * 2, 2.0, 0.0, 4 + gamma * 8, 8.0]


def test_whitened_values_have_mean_0_and_sample_deviation_1() -> None:
    """Row 22; equal values give 0 and not noise."""
    assert whiten(torch.tensor([1.0, 2.0, 3.0])).tolist() == pytest.approx([-1.0, 0.0, 1.0], abs=1e-5)
    assert whiten(torch.full((7,), 0.1)).tolist() == [0.0] * 7


@pytest.mark.parametrize(("length", "penalty"), [(10, 0.0), (80, 0.0), (90, -0.5), (100, -1.0), (150, -1.0)])
def test_overlong_penalty_is_a_ramp(length: int, penalty: float) -> None:
    assert overlong_penalty(length, limit=100, buffer=20) == pytest.approx(penalty)
