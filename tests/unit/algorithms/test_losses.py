"""Policy losses against numbers worked out by hand and against naive loops."""

import math

import pytest
import torch
from torch import Tensor

from skyrl_nat.algorithms.losses import (
    LOG_RATIO_BOUND,
    POLICY_LOSSES,
    LossConstants,
    LossTokens,
    masked_log_ratio,
    sequence_means,
)

BOUNDS = LossConstants(clip_low=0.2, clip_high=0.28)


def make_tokens(logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, cu_seqlens: Tensor) -> LossTokens:
    """Return tokens of which none is selected by covariance."""
    return LossTokens(logprobs, old, advantages, mask, cu_seqlens, torch.zeros_like(mask))


def one_token(name: str, ratio: float, advantage: float, constants: LossConstants) -> tuple[float, float, bool]:
    """Return loss, gradient by the log-prob, and clip flag of a single token."""
    logprobs = torch.tensor([math.log(ratio) - 1.0], dtype=torch.float64, requires_grad=True)
    output = POLICY_LOSSES[name](
        make_tokens(
            logprobs,
            torch.tensor([-1.0], dtype=torch.float64),
            torch.tensor([advantage], dtype=torch.float64),
            torch.tensor([True]),
            torch.tensor([0, 1]),
        ),
        constants,
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
    bounds = LossConstants(dual_clip=3.0)
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
        make_tokens(
            torch.full((100,), -0.99),
            torch.full((100,), -1.0),
            torch.ones(100),
            torch.ones(100, dtype=torch.bool),
            torch.tensor([0, 100]),
        ),
        BOUNDS,
    )
    assert output.losses.tolist() == pytest.approx([-math.exp(0.01)] * 100, rel=1e-5)


def test_gspo_sequences_of_different_length_weigh_the_same() -> None:
    """Row 10: lengths 2 and 8, same advantage, sequence mean: each holds one half of the gradient."""
    logprobs = torch.full((10,), -1.0, requires_grad=True)
    output = POLICY_LOSSES["gspo"](
        make_tokens(
            logprobs,
            torch.full((10,), -1.0),
            torch.ones(10),
            torch.ones(10, dtype=torch.bool),
            torch.tensor([0, 2, 10]),
        ),
        BOUNDS,
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
    output = POLICY_LOSSES["gspo"](make_tokens(logprobs, old, advantages, mask, torch.tensor([0, 5, 12])), BOUNDS)
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
        output = POLICY_LOSSES[name](make_tokens(logprobs, old, advantages, mask, torch.tensor([0, 3, 5])), BOUNDS)
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
    output = POLICY_LOSSES[name](make_tokens(logprobs, old, advantages, mask, torch.tensor([0, 2])), BOUNDS)
    output.losses.sum().backward()
    assert logprobs.grad is not None
    assert torch.isfinite(logprobs.grad).all()
    assert masked_log_ratio(logprobs, old, mask).tolist() == [200.0, -200.0]
    assert LOG_RATIO_BOUND == 20.0


@pytest.mark.parametrize(
    "name", ["ppo_clip", "gspo", "cispo", "sapo", "clip_cov", "kl_cov", "importance_sampling", "reinforce"]
)
def test_at_ratio_one_every_loss_has_the_policy_gradient(name: str) -> None:
    """Row 30: with old log-probs equal to current ones the gradient is -A and nothing is clipped."""
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    both = torch.tensor([True, True])
    tokens = make_tokens(logprobs, logprobs.detach().clone(), torch.tensor([0.7, 0.7]), both, torch.tensor([0, 2]))
    output = POLICY_LOSSES[name](tokens, BOUNDS)
    output.losses.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-0.7, -0.7])
    assert not output.is_clipped.any()


@pytest.mark.parametrize(("advantage", "tau"), [(1.0, 1.0), (-1.0, 1.05)])
def test_sapo_gates_the_gradient_by_the_side_of_the_advantage(advantage: float, tau: float) -> None:
    """At ratio 1.5 the weight is 4 p (1 - p) times the ratio, with p = sigmoid(tau / 2)."""
    loss, gradient, is_clipped = one_token("sapo", 1.5, advantage, BOUNDS)
    gate = 1 / (1 + math.exp(-tau * 0.5))
    assert loss == pytest.approx(-advantage * 4 / tau * gate)
    assert gradient == pytest.approx(-advantage * 4 * gate * (1 - gate) * 1.5)
    assert not is_clipped


def test_importance_sampling_is_unbounded() -> None:
    assert one_token("importance_sampling", 5.0, 1.0, BOUNDS) == (pytest.approx(-5.0), pytest.approx(-5.0), False)


def test_cross_entropy_reads_no_advantage() -> None:
    for advantage in (-3.0, 0.0, 2.0):
        loss, gradient, _ = one_token("cross_entropy", 2.0, advantage, BOUNDS)
        assert (loss, gradient) == (pytest.approx(1.0 - math.log(2.0)), pytest.approx(-1.0))


def with_selection(name: str, selected: list[bool]) -> tuple[list[float], list[float]]:
    """Return losses and gradients of three tokens at ratio 1.1, 0.9 and 1.1 with A = 1, 1, -1."""
    logprobs = torch.tensor([1.1, 0.9, 1.1], dtype=torch.float64).log().requires_grad_()
    advantages = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
    old, mask = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.bool)
    tokens = LossTokens(logprobs, old, advantages, mask, torch.tensor([0, 3]), torch.tensor(selected))
    output = POLICY_LOSSES[name](tokens, LossConstants(kl_cov_coefficient=0.5))
    output.losses.sum().backward()
    assert logprobs.grad is not None
    return output.losses.tolist(), logprobs.grad.tolist()


def test_clip_cov_takes_the_gradient_from_the_selected_tokens() -> None:
    losses, gradients = with_selection("clip_cov", [True, False, False])
    assert losses == pytest.approx([-1.1, -0.9, 1.1])
    assert gradients == pytest.approx([0.0, -0.9, 1.1])


def test_kl_cov_penalises_the_selected_tokens_by_their_distance() -> None:
    losses, gradients = with_selection("kl_cov", [True, True, False])
    up, down = math.log(1.1), -math.log(0.9)
    assert losses == pytest.approx([-1.1 + 0.5 * up, -0.9 + 0.5 * down, 1.1])
    assert gradients == pytest.approx([-1.1 + 0.5, -0.9 - 0.5, 1.1])


def test_kto_of_a_good_and_a_bad_sequence_by_hand() -> None:
    """Log-ratios 0.3 + 0.2 (good, weight 1) and -0.4 (bad, weight 0.5), beta 0.1, baseline 0.1."""
    logprobs = torch.tensor([-1.0, -2.0, -1.5], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([-1.3, -2.2, -1.1], dtype=torch.float64)
    advantages = torch.tensor([1.0, 1.0, -0.5], dtype=torch.float64)
    tokens = make_tokens(logprobs, reference, advantages, torch.ones(3, dtype=torch.bool), torch.tensor([0, 2, 3]))
    output = POLICY_LOSSES["kto"](tokens, LossConstants(kto_beta=0.1, kto_baseline=0.1))
    good = 1 / (1 + math.exp(-0.1 * (0.5 - 0.1)))
    bad = 1 / (1 + math.exp(-0.1 * (0.1 + 0.4)))
    assert output.losses.tolist() == pytest.approx([1 - good, 1 - good, 0.5 * (1 - bad)])
    (output.losses * torch.tensor([0.5, 0.5, 1.0])).sum().backward()
    assert logprobs.grad is not None
    slope = 0.1 * good * (1 - good)
    assert logprobs.grad.tolist() == pytest.approx([-slope, -slope, 0.5 * 0.1 * bad * (1 - bad)])


@pytest.mark.parametrize("name", ["ppo_clip", "gspo", "cispo", "sapo", "kl_cov", "importance_sampling"])
def test_old_logprobs_never_carry_a_gradient(name: str) -> None:
    """GM-10: with the current log-probs themselves as old ones the ratio is 1 and the gradient is still -A."""
    logprobs = torch.tensor([-1.0, -2.0], requires_grad=True)
    both = torch.tensor([True, True])
    tokens = make_tokens(logprobs, logprobs, torch.tensor([0.7, 0.7]), both, torch.tensor([0, 2]))
    POLICY_LOSSES[name](tokens, BOUNDS).losses.sum().backward()
    assert logprobs.grad is not None
    assert logprobs.grad.tolist() == pytest.approx([-0.7, -0.7])
