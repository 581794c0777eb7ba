"""Truncated importance sampling."""

import math

import pytest
import torch

from skyrl_nat.algorithms.off_policy import truncated_importance_weights


def test_weight_is_trainer_over_rollout_and_capped() -> None:
    """Row 31: a ratio of 3 with cap 2 gives 2; a ratio of one third stays."""
    trainer = torch.tensor([0.0, math.log(1 / 3), 0.0])
    rollout = torch.tensor([math.log(1 / 3), 0.0, 0.0])
    weights = truncated_importance_weights(trainer, rollout, torch.ones(3, dtype=torch.bool), cap=2.0)
    assert weights.tolist() == pytest.approx([2.0, 1 / 3, 1.0])


@pytest.mark.parametrize("filler", [0.0, 1.0, float("nan")])
def test_masked_positions_weigh_one_whatever_they_hold(filler: float) -> None:
    """MT-08: no exp(-1) of a filler appears anywhere."""
    weights = truncated_importance_weights(
        torch.tensor([-1.0, 0.0]),
        torch.tensor([-1.0, filler]),
        torch.tensor([True, False]),
        cap=2.0,
    )
    assert weights.tolist() == [1.0, 1.0]


def test_weight_carries_no_gradient() -> None:
    trainer = torch.tensor([-1.0], requires_grad=True)
    weights = truncated_importance_weights(trainer, torch.tensor([-1.2]), torch.tensor([True]), cap=2.0)
    assert not weights.requires_grad
