"""The schedule as a pure function, and AdamW against its definition."""

import math

import pytest
import torch
from torch import nn

from skyrl_nat.config.model import OptimizerConfig
from skyrl_nat.workers.optimizer import build_optimizer, lr_at


def test_warm_up_rises_to_the_peak_and_stays() -> None:
    config = OptimizerConfig(lr=4.0, warmup_steps=4)
    assert [lr_at(s, config, 10) for s in range(6)] == [1.0, 2.0, 3.0, 4.0, 4.0, 4.0]


def test_linear_and_cosine_end_at_the_smallest_rate_in_the_last_step() -> None:
    linear = OptimizerConfig(lr=1.0, warmup_steps=1, schedule="linear", min_lr_ratio=0.2)
    assert [lr_at(s, linear, 5) for s in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    cosine = OptimizerConfig(lr=1.0, schedule="cosine")
    assert [lr_at(s, cosine, 5) for s in (0, 2, 4, 7)] == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert lr_at(1, cosine, 5) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 4))


def test_the_rate_depends_on_the_step_alone() -> None:
    """Row 67: nothing is stepped, so nothing can be stepped twice."""
    config = OptimizerConfig(lr=3e-4, warmup_steps=2, schedule="cosine")
    straight = [lr_at(s, config, 10) for s in range(10)]
    assert straight == [lr_at(s, config, 10) for s in range(5)] + straight[5:]
    assert lr_at(0, OptimizerConfig(lr=1.0, schedule="linear"), 1) == 1.0


def test_first_step_is_that_of_the_paper_and_decay_spares_norms_and_biases() -> None:
    matrix = nn.Parameter(torch.tensor([[2.0]]))
    norm = nn.Parameter(torch.tensor([2.0]))
    config = OptimizerConfig(lr=0.1, weight_decay=0.5, eps=0.0)
    optimizer = build_optimizer([("w", matrix), ("norm", norm)], config)
    assert all(len(state) == 3 for state in optimizer.state.values())
    matrix.grad, norm.grad = torch.tensor([[3.0]]), torch.tensor([3.0])
    optimizer.step()
    assert matrix.item() == pytest.approx(2.0 * (1 - 0.1 * 0.5) - 0.1)
    assert norm.item() == pytest.approx(2.0 - 0.1)
