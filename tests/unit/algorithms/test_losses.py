"""Policy losses against numbers worked out by hand and against naive loops."""

import math

import pytest
import torch
from torch import Tensor

from skyrl_nat.algorithms.losses import (
    LOG_RATIO_BOUND,
    POLICY_LOSSES,
    ClipBounds,
    masked_log_ratio,
    sequence_means,
)

BOUNDS = ClipBounds(low=0.2, high=0.28)


def one_token(name: str, ratio: float, advantage: float, bounds: ClipBounds) -> tuple[float, float, bool]:
    """Return loss, gradient by the log-prob, and clip flag of a single token."""
    logprobs = torch.tensor([math.log(ratio) - 1.0], dtype=torch.float64, requires_grad=True)
    output = POLICY_LOSSES[name](
        logprobs,
        torch.tensor([-1.0], dtype=torch.float64),
        torch.tensor([advantage], dtype=torch.float64),
        torch.tensor([True]),
        torch.tensor([0, 1]),
        bounds=bounds,
    )
    output.losses.sum().backward()
    assert logprobs.grad is not None
    return float(output.losses.detach()[0]), float(logprobs.grad[0]), bool(output.is_clipped[0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "is_clipped"),
    [
        (1.25, 1.0, -1.25, -1.25, False),
        (1.30, 1.0, -1.28, 0.0, True),
        (0.70, -1.0, 0.80, 0.0, True),
        (0.70, 1.0, -0.70, -0.70, False),
        (1.50, -1.0, 1.50, 1.50, False),
        (1.00, 2.0, -2.00, -2.00, False),
    ],
)
def test_ppo_clip_stops_the_gradient_on_the_side_that_the_advantage_pushes_to(
    ratio: float, advantage: float, loss: float, gradient: float, is_clipped: bool
) -> None:
    """Row 29: the two bounds are not swapped and both work."""
    found = one_token("ppo_clip", ratio, advantage, BOUNDS)
    assert found == (pytest.approx(loss), pytest.approx(gradient), is_clipped)


def test_dual_clip_bounds_the_loss_of_a_negative_advantage() -> None:
    """Row 28: ratio 5, A = -1, bound 3 gives loss 3 and no gradient."""
    bounds = ClipBounds(0.2, 0.2, 3.0)
    assert one_token("ppo_clip", 5.0, -1.0, bounds) == (pytest.approx(3.0), 0.0, True)
    assert one_token("ppo_clip", 2.0, -1.0, bounds) == (
        pytest.approx(2.0),
        pytest.approx(2.0),
        False,
    )
    assert one_token("ppo_clip", 5.0, 1.0, bounds)[0] == pytest.approx(-1.2)


def test_cispo_keeps_the_gradient_of_a_clipped_token() -> None:
    loss, gradient, is_clipped = one_token("cispo", 2.0, 1.0, BOUNDS)
    assert gradient == pytest.approx(-1.28)
    assert loss == pytest.approx(-1.28 * (math.log(2.0) - 1.0))
    assert is_clipped


def test_reinforce_ignores_the_ratio() -> None:
    assert one_token("reinforce", 2.0, 3.0, BOUNDS)[1:] == (pytest.approx(-3.0), False)


def test_gspo_ratio_is_the_geometric_mean_of_the_sequence() -> None:
    """Row 32: 100 tokens of +0.01 each give 1.010, not 2.718."""
    output = POLICY_LOSSES["gspo"](
        torch.full((100,), -0.99),
        torch.full((100,), -1.0),
        torch.ones(100),
        torch.ones(100, dtype=torch.bool),
        torch.tensor([0, 100]),
        bounds=BOUNDS,
    )
    assert output.losses.tolist() == pytest.approx([-math.exp(0.01)] * 100, rel=1e-5)


def test_gspo_sequences_of_different_length_weigh_the_same() -> None:
    """Row 10: lengths 2 and 8, same advantage, sequence mean: each holds one half of the gradient."""
    logprobs = torch.full((10,), -1.0, requires_grad=True)
    output = POLICY_LOSSES["gspo"](
        logprobs,
        torch.full((10,), -1.0),
        torch.ones(10),
        torch.ones(10, dtype=torch.bool),
        torch.tensor([0, 2, 10]),
        bounds=BOUNDS,
    )
    weights = torch.tensor([1 / 2] * 2 + [1 / 8] * 8)
    ((weights * output.losses).sum() / 2).backward()
    assert logprobs.grad is not None
    assert logprobs.grad[:2].sum().item() == pytest.approx(-0.5)
    assert logprobs.grad[2:].sum().item() == pytest.approx(-0.5)


def test_gspo_equals_a_loop_over_sequences() -> None:
    generator = torch.Generator().manual_seed(1)
    logprobs = -torch.rand(12, generator=generator, dtype=torch.float64)
    old = logprobs + 0.3 * torch.randn(12, generator=generator, dtype=torch.float64)
    mask = torch.tensor([0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 0, 1], dtype=torch.bool)
    advantages = torch.tensor([1.5] * 5 + [-0.5] * 7, dtype=torch.float64)
    output = POLICY_LOSSES["gspo"](logprobs, old, advantages, mask, torch.tensor([0, 5, 12]), bounds=BOUNDS)
    expected = torch.zeros(12, dtype=torch.float64)
    for start, end, advantage in ((0, 5, 1.5), (5, 12, -0.5)):
        places = [i for i in range(start, end) if mask[i]]
        ratio = math.exp(sum(float(logprobs[i] - old[i]) for i in places) / len(places))
        clipped = min(max(ratio, 0.8), 1.28)
        for i in places:
            expected[i] = -min(ratio * advantage, clipped * advantage)
    assert output.losses.tolist() == pytest.approx(expected.tolist())


def test_sequence_means_of_a_sequence_without_loss_tokens_are_zero() -> None:
    means = sequence_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([True, True, False]), torch.tensor([0, 2, 3]))
    assert means.tolist() == [2.0, 2.0, 0.0]


@pytest.mark.parametrize("name", list(POLICY_LOSSES))
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf"), 1.0, 1e30])
def test_masked_positions_change_neither_loss_nor_gradient(name: str, poison: float) -> None:
    """Row 52, MT-08: whatever padding holds, the result is the same to the bit."""
    mask = torch.tensor([False, True, True, False, True])

    def evaluate(filler: float) -> tuple[Tensor, Tensor, Tensor]:
        values = torch.tensor([-1.0, -2.0, -0.5, -1.5, -0.1])
        logprobs = torch.where(mask, values, filler).requires_grad_()
        old = torch.where(mask, values * 1.2, filler)
        advantages = torch.where(mask, torch.tensor([1.0, 1.0, 1.0, -1.0, -1.0]), filler)
        output = POLICY_LOSSES[name](logprobs, old, advantages, mask, torch.tensor([0, 3, 5]), bounds=BOUNDS)
        output.losses.sum().backward()
        assert logprobs.grad is not None
        return output.losses.detach(), output.is_clipped, logprobs.grad

    clean, poisoned = evaluate(0.0), evaluate(poison)
    for left, right in zip(clean, poisoned, strict=True):
        assert torch.equal(left, right)
    assert poisoned[2][~mask].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", list(POLICY_LOSSES))
def test_an_extreme_ratio_makes_no_nan_and_is_still_reported_uncut(name: str) -> None:
    """Row 27: exp is bounded, the log-ratio that metrics see is not."""
    logprobs = torch.tensor([-1.0, -1.0], requires_grad=True)
    old = torch.tensor([-201.0, 199.0])
    mask = torch.tensor([True, True])
    advantages = torch.tensor([1.0, -1.0])
    output = POLICY_LOSSES[name](logprobs, old, advantages, mask, torch.tensor([0, 2]), bounds=BOUNDS)
    output.losses.sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    assert masked_log_ratio(logprobs, old, mask).tolist() == [200.0, -200.0]
    assert LOG_RATIO_BOUND == 20.0


def test_unclipped_losses_have_the_policy_gradient_at_ratio_one() -> None:
    """Row 30: with old log-probs equal to current ones every loss has gradient -A and clips nothing."""
    for name, function in POLICY_LOSSES.items():
        logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
        output = function(
            logprobs,
            logprobs.detach().clone(),
            torch.tensor([0.7, 0.7]),
            torch.tensor([True, True]),
            torch.tensor([0, 2]),
            bounds=BOUNDS,
        )
        output.losses.sum().backward()
        assert logprobs.grad is not None
        assert logprobs.grad.tolist() == pytest.approx([-0.7, -0.7]), name
        assert not output.is_clipped.any(), name
