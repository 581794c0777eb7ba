"""The loss of one micro-batch and what is reported about it. Legend: N packed tokens.

Policy, KL and entropy terms share the token weights of the step's reduction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skyrl_nat.algorithms.kl import KL_ESTIMATORS
from skyrl_nat.algorithms.losses import LOG_RATIO_BOUND, POLICY_LOSSES, ClipBounds, masked_log_ratio
from skyrl_nat.algorithms.off_policy import truncated_importance_weights
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.algorithm import AlgorithmConfig, OldLogprobs
from skyrl_nat.errors import WorkerError

SUMS = (
    "total",
    "policy",
    "kl",
    "entropy",
    "clipped",
    "ratio",
    "log_ratio",
    "log_ratio_cut",
    "rollout_difference",
    "tis_weight",
    "tokens",
)
"""Sums over loss tokens, in the order of `MicroBatchLoss.sums`; the first four carry the reduction's weights."""
PEAKS = ("log_ratio", "rollout_difference")
"""Largest absolute values over loss tokens, in the order of `MicroBatchLoss.peaks`."""


@dataclass(slots=True, kw_only=True)
class MicroBatchLoss:
    """Loss and statistics of one micro-batch, not divided by anything yet."""

    numerator: Tensor
    """Weighted sum of policy, KL and entropy terms; carries the gradient."""
    sums: Tensor
    """`[len(SUMS)]` fp64, detached."""
    peaks: Tensor
    """`[len(PEAKS)]` fp64, detached."""


def micro_batch_loss(
    logprobs: Tensor, entropies: Tensor, micro_batch: MicroBatch, config: AlgorithmConfig
) -> MicroBatchLoss:
    """Return the numerator of the step's loss that one micro-batch contributes.

    Args:
        logprobs: `[N]` under the policy in training; carries the gradient.
        entropies: `[N]` in nats; carries the gradient if the entropy coefficient is not 0.
        micro_batch: On the same device.
        config: Section `algorithm`.

    Raises:
        WorkerError: The KL term is on and reference log-probs are missing.
    """
    mask = micro_batch.loss_mask
    old = _old_logprobs(logprobs, micro_batch, config)
    bounds = ClipBounds(config.clip_low, config.clip_high, config.dual_clip)
    policy = POLICY_LOSSES[config.policy_loss](
        logprobs, old, micro_batch.advantages, mask, micro_batch.cu_seqlens, bounds=bounds
    )
    tis = torch.ones_like(old)
    if config.tis_cap > 0:
        tis = truncated_importance_weights(old, micro_batch.rollout_logprobs, mask, cap=config.tis_cap)
    weights = torch.where(mask, micro_batch.token_weights, 0.0)
    policy_sum = (weights * tis * policy.losses).sum()
    kl_sum = (weights * tis * _kl(logprobs, micro_batch, config)).sum()
    entropy_sum = (weights * torch.where(mask, entropies, 0.0)).sum()
    numerator = policy_sum
    if config.kl_coefficient:
        numerator = numerator + config.kl_coefficient * kl_sum
    if config.entropy_coefficient:
        numerator = numerator - config.entropy_coefficient * entropy_sum
    weighted = torch.stack([numerator, policy_sum, kl_sum, entropy_sum]).detach().double()
    counts, peaks = _statistics(logprobs.detach(), old, micro_batch, policy.is_clipped, tis)
    return MicroBatchLoss(numerator=numerator, sums=torch.cat([weighted, counts]), peaks=peaks)


def named_metrics(sums: Tensor, peaks: Tensor, denominator: float) -> dict[str, float]:
    """Turn sums over all ranks and micro-batches into metrics.

    Args:
        sums: `[len(SUMS)]`.
        peaks: `[len(PEAKS)]`.
        denominator: Of the step's loss.
    """
    value = dict(zip(SUMS, sums.tolist(), strict=True))
    peak = dict(zip(PEAKS, peaks.tolist(), strict=True))
    scale = denominator or 1.0
    tokens = value["tokens"] or 1.0
    return {
        "loss/total": value["total"] / scale,
        "loss/policy": value["policy"] / scale,
        "loss/kl": value["kl"] / scale,
        "loss/entropy": value["entropy"] / scale,
        "loss/clip_fraction": value["clipped"] / tokens,
        "loss/ratio_mean": value["ratio"] / tokens,
        "loss/log_ratio_mean": value["log_ratio"] / tokens,
        "loss/log_ratio_max": peak["log_ratio"],
        "loss/log_ratio_cut": value["log_ratio_cut"],
        "loss/rollout_logprob_diff": value["rollout_difference"] / tokens,
        "loss/rollout_logprob_diff_max": peak["rollout_difference"],
        "loss/tis_weight_mean": value["tis_weight"] / tokens,
        "loss/num_tokens": value["tokens"],
    }


def _old_logprobs(logprobs: Tensor, micro_batch: MicroBatch, config: AlgorithmConfig) -> Tensor:
    """Return the ratio's denominator, `[N]`, detached."""
    if config.old_logprobs == OldLogprobs.rollout:
        return micro_batch.rollout_logprobs
    if micro_batch.old_logprobs is None:
        return logprobs.detach()
    return micro_batch.old_logprobs


def _kl(logprobs: Tensor, micro_batch: MicroBatch, config: AlgorithmConfig) -> Tensor:
    """Return `[N]` KL estimates, 0 without a KL term."""
    if not config.needs_reference:
        return torch.zeros_like(micro_batch.token_weights)
    if micro_batch.ref_logprobs is None:
        raise WorkerError(
            f"algorithm.kl_coefficient={config.kl_coefficient} must come with reference log-probs, got "
            "none on a micro-batch. Attach the reference worker's log-probs before training."
        )
    estimator = KL_ESTIMATORS[config.kl_estimator]
    return estimator(logprobs, micro_batch.ref_logprobs, micro_batch.loss_mask)


def _statistics(
    logprobs: Tensor, old: Tensor, micro_batch: MicroBatch, is_clipped: Tensor, tis: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the unweighted sums and the peaks over loss tokens, as fp64."""
    mask = micro_batch.loss_mask
    log_ratio = masked_log_ratio(logprobs, old, mask).double()
    is_before_batch = micro_batch.old_logprobs is not None
    trainer = micro_batch.old_logprobs if is_before_batch else logprobs
    assert trainer is not None
    difference = masked_log_ratio(trainer, micro_batch.rollout_logprobs, mask).double().abs()
    sums = [
        is_clipped.sum().double(),
        torch.where(mask, log_ratio.clamp(max=LOG_RATIO_BOUND).exp(), 0.0).sum(),
        log_ratio.sum(),
        (log_ratio.abs() > LOG_RATIO_BOUND).sum().double(),
        difference.sum(),
        torch.where(mask, tis, 0.0).double().sum(),
        mask.sum().double(),
    ]
    return torch.stack(sums), torch.stack([log_ratio.abs().max(), difference.max()])
