"""The loss of a micro-batch without a model."""

import dataclasses
import math

import pytest
import torch

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.algorithm import AlgorithmConfig, OldLogprobs
from skyrl_nat.errors import WorkerError
from skyrl_nat.workers.objective import StepConstants, micro_batch_loss, named_metrics

MASK = torch.tensor([False, True, True, False, True])


def make_batch(filler: float = 0.0) -> MicroBatch:
    """Return two sequences; everything masked holds the filler."""
    return MicroBatch(
        token_ids=torch.arange(5),
        position_ids=torch.tensor([0, 1, 2, 0, 1]),
        cu_seqlens=torch.tensor([0, 3, 5], dtype=torch.int32),
        loss_mask=MASK,
        advantages=torch.where(MASK, torch.tensor([0.0, 1.0, 1.0, 0.0, -2.0]), filler),
        token_weights=MASK.float(),
        rollout_logprobs=torch.where(MASK, torch.tensor([0.0, -1.0, -2.0, 0.0, -3.0]), filler),
        old_logprobs=torch.where(MASK, torch.tensor([0.0, -1.1, -1.9, 0.0, -3.3]), filler),
        computed=torch.arange(5),
        source=torch.arange(5),
        cu_computed=torch.tensor([0, 3, 5], dtype=torch.int32),
        selected=torch.zeros(5, dtype=torch.bool),
        ref_logprobs=torch.where(MASK, torch.tensor([0.0, -1.2, -2.0, 0.0, -3.0]), filler),
    )


def evaluate(batch: MicroBatch, filler: float = 0.0, **settings: object) -> dict[str, float]:
    config = AlgorithmConfig(**({"old_logprobs": "recompute"} | settings))  # type: ignore[arg-type]
    constants = StepConstants(
        denominator=3.0, kl_coefficient=config.kl_coefficient, entropy_coefficient=config.entropy_coefficient
    )
    logprobs = torch.where(MASK, torch.tensor([0.0, -1.0, -2.0, 0.0, -3.0]), filler)
    entropies = torch.where(MASK, torch.tensor([0.0, 1.0, 2.0, 0.0, 3.0]), filler)
    loss = micro_batch_loss(logprobs.requires_grad_(), entropies, batch, config, constants)
    loss.numerator.backward()
    assert logprobs.grad is not None
    assert not logprobs.grad[~MASK].any()
    return named_metrics(loss.sums, loss.peaks, 3.0)


@pytest.mark.parametrize("filler", [1.0, -5.0, float("nan"), float("inf")])
def test_no_metric_and_no_term_sees_what_masked_positions_hold(filler: float) -> None:
    """Rows 52 and 53, MT-08: three fillers, one result."""
    settings = {"kl_coefficient": 0.1, "entropy_coefficient": 0.1, "correction": "token_tis"}
    expected = evaluate(make_batch(), **settings)
    assert evaluate(make_batch(filler), filler, **settings) == expected
    assert expected["loss/num_tokens"] == 3.0
    assert all(math.isfinite(value) for value in expected.values())


def test_terms_and_metrics_by_hand() -> None:
    """Ratios exp(.1), exp(-.1), exp(.3) with A = 1, 1, -2 and clip range 0.2."""
    metrics = evaluate(make_batch(), kl_coefficient=0.5)
    policy = (-math.exp(0.1) - math.exp(-0.1) + 2 * math.exp(0.3)) / 3
    kl = 0.5 * 0.2**2 / 3
    assert metrics["loss/policy"] == pytest.approx(policy, rel=1e-5)
    assert metrics["loss/kl"] == pytest.approx(kl, rel=1e-5)
    assert metrics["loss/total"] == pytest.approx(policy + 0.5 * kl, rel=1e-5)
    assert metrics["loss/entropy"] == pytest.approx(2.0)
    assert metrics["loss/rollout_logprob_diff"] == pytest.approx((0.1 + 0.1 + 0.3) / 3, rel=1e-5)
    assert metrics["loss/rollout_logprob_diff_max"] == pytest.approx(0.3, rel=1e-5)
    ratio = (math.exp(0.1) + math.exp(-0.1) + math.exp(0.3)) / 3
    assert metrics["loss/ratio_mean"] == pytest.approx(ratio, rel=1e-5)


def test_importance_weights_multiply_the_policy_loss() -> None:
    """Row 31: trainer / rollout, capped: exp(-.1), exp(.1), exp(-.3)."""
    metrics = evaluate(make_batch(), correction="token_tis", correction_high=1.05)
    weights = [math.exp(-0.1), 1.05, math.exp(-0.3)]
    losses = [-math.exp(0.1), -math.exp(-0.1), 2 * math.exp(0.3)]
    expected = sum(w * x for w, x in zip(weights, losses, strict=True)) / 3
    assert metrics["loss/policy"] == pytest.approx(expected, rel=1e-5)
    assert metrics["loss/correction_weight_mean"] == pytest.approx(sum(weights) / 3, rel=1e-5)


def test_the_denominator_of_the_ratio_is_the_chosen_one() -> None:
    rollout = evaluate(make_batch(), old_logprobs=OldLogprobs.rollout)
    assert rollout["loss/log_ratio_max"] == 0.0
    fresh = dataclasses.replace(make_batch(), old_logprobs=None)
    assert evaluate(fresh, old_logprobs=OldLogprobs.current)["loss/log_ratio_max"] == 0.0
    with pytest.raises(WorkerError, match="log-probs of the policy before the batch"):
        evaluate(fresh)
    assert evaluate(make_batch())["loss/log_ratio_max"] == pytest.approx(0.3, rel=1e-5)


def test_extreme_log_ratios_are_reported_uncut_and_counted() -> None:
    """Row 27."""
    batch = make_batch()
    assert batch.old_logprobs is not None
    batch.old_logprobs[1] = -31.0
    metrics = evaluate(batch)
    assert metrics["loss/log_ratio_max"] == pytest.approx(30.0)
    assert metrics["loss/log_ratio_cut"] == 1.0
