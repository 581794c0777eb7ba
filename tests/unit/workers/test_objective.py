"""The loss of a micro-batch without a model."""

import dataclasses
import math

import pytest
import torch

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.algorithm import AlgorithmConfig, OldLogprobs
from skyrl_nat.errors import WorkerError
from skyrl_nat.workers.objective import PEAKS, SUMS, StepConstants, micro_batch_loss, named_metrics

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


@pytest.mark.parametrize(
    ("settings", "sign", "losses"),
    [
        ({"clip_low": 0.05, "clip_high": 0.08}, 1.0, [-1.08, -math.exp(-0.1), 2 * math.exp(0.3)]),
        ({"clip_low": 0.05, "clip_high": 0.08, "dual_clip": 1.2}, 1.0, [-1.08, -math.exp(-0.1), 2 * 1.2]),
        ({"clip_low": 0.05, "clip_high": 0.2}, -1.0, [math.exp(0.1), 0.95, -2 * 1.2]),
        ({"policy_loss": "kl_cov", "kl_cov_coefficient": 0.5}, 1.0, [0.05 - math.exp(0.1), -math.exp(-0.1), 2.69972]),
    ],
)
def test_constants_of_the_config_reach_the_loss(settings: dict[str, float], sign: float, losses: list[float]) -> None:
    """Rows 28 and 29: ratios exp(.1), exp(-.1), exp(.3); A = 1, 1, -2 or the opposite; bounds are not forgotten."""
    batch = dataclasses.replace(make_batch(), selected=torch.arange(5) == 1)
    batch.advantages = sign * batch.advantages
    assert evaluate(batch, **settings)["loss/policy"] == pytest.approx(sum(losses) / 3, rel=1e-5)


@pytest.mark.parametrize(("sign", "tau"), [(1.0, 2.0), (-1.0, 3.0)])
def test_temperatures_of_the_config_reach_the_gate(sign: float, tau: float) -> None:
    batch = make_batch()
    batch.advantages = torch.tensor([0.0, 1.0, 1.0, 0.0, 1.0]) * sign
    found = evaluate(batch, policy_loss="sapo", tau_positive=2.0, tau_negative=3.0)["loss/policy"]
    gates = [4 / tau / (1 + math.exp(-tau * (math.exp(x) - 1))) for x in (0.1, -0.1, 0.3)]
    assert found == pytest.approx(-sign * sum(gates) / 3, rel=1e-5)


def test_kto_reads_the_reference_its_scale_and_the_baseline_of_the_step() -> None:
    """Sequences with log-ratios 0.2 (good) and 0 (bad, weight 2), scale 0.5, baseline 0.05."""
    config = AlgorithmConfig(policy_loss="kto", reduction="sequence_mean", kto_beta=0.5)  # type: ignore[arg-type]
    constants = StepConstants(denominator=3.0, kto_baseline=0.05)
    logprobs = torch.tensor([0.0, -1.0, -2.0, 0.0, -3.0])
    loss = micro_batch_loss(logprobs, torch.zeros(5), make_batch(), config, constants)
    good = 1 / (1 + math.exp(0.5 * (0.2 - 0.05)))
    bad = 1 / (1 + math.exp(-0.5 * (0.0 - 0.05)))
    assert loss.numerator.item() == pytest.approx(2 * good + 2 * bad, rel=1e-5)


def test_kl_of_an_older_policys_tokens_is_weighted_with_the_ratio() -> None:
    """Row 26: d = 0.2 at the first token, whose ratio is exp(.1)."""
    settings = {"kl_coefficient": 0.5, "kl_importance_weighted": True}
    assert evaluate(make_batch(), **settings)["loss/kl"] == pytest.approx(math.exp(0.1) * 0.02 / 3, rel=1e-5)


def test_kl_in_the_reward_is_not_in_the_loss_once_more() -> None:
    """Rows 4 and 25."""
    metrics = evaluate(make_batch(), kl_coefficient=0.5, kl_estimator="k1", kl_in_reward=True)
    assert metrics["loss/total"] == metrics["loss/policy"]
    assert metrics["loss/token_kl"] == pytest.approx(0.2 / 3, rel=1e-5)


def test_entropy_lowers_the_loss() -> None:
    """Row 4: entropies 1, 2, 3 with coefficient 0.1."""
    metrics = evaluate(make_batch(), entropy_coefficient=0.1)
    assert metrics["loss/total"] == pytest.approx(metrics["loss/policy"] - 0.1 * 2.0, rel=1e-5)


def test_a_left_out_sequence_stays_in_the_denominator_and_is_counted() -> None:
    """Row 31: trainer / rollout is exp(-.1), exp(.1), exp(-.3); below 0.75 only the last one."""
    metrics = evaluate(make_batch(), outlier_ratio=0.75)
    assert metrics["loss/policy"] == pytest.approx((-math.exp(0.1) - math.exp(-0.1)) / 3, rel=1e-5)
    assert metrics["loss/correction_masked_fraction"] == pytest.approx(1 / 3)
    assert metrics["loss/effective_sample_fraction"] == pytest.approx(2**2 / (2 * 3))


def test_metrics_of_unequal_ranks_are_weighted_by_their_tokens() -> None:
    """Row 5: 0 of 1 token clipped on one rank, 3 of 3 on the other give 0.75, not 0.5."""
    by_rank = torch.zeros(2, len(SUMS), dtype=torch.float64)
    by_rank[:, SUMS.index("tokens")] = torch.tensor([1.0, 3.0], dtype=torch.float64)
    by_rank[1, SUMS.index("clipped")] = 3.0
    metrics = named_metrics(by_rank.sum(0), torch.zeros(len(PEAKS)), denominator=2.0)
    assert metrics["loss/clip_fraction"] == 0.75
