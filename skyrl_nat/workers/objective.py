"""The loss of one micro-batch and what is reported about it. Legend: N packed tokens.

Policy, KL and entropy terms share the token weights of the step's reduction.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skyrl_nat.algorithms.kl import KL_ESTIMATORS, importance_weighted
from skyrl_nat.algorithms.losses import LOG_RATIO_BOUND, POLICY_LOSSES, LossConstants, LossTokens, masked_log_ratio
from skyrl_nat.algorithms.off_policy import CORRECTIONS, CorrectionBounds, outlier_mask
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.algorithm import AlgorithmConfig, Correction, OldLogprobs, PolicyLoss
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
    "correction_weight",
    "correction_square",
    "correction_masked",
    "token_entropy",
    "token_kl",
    "tokens",
)
"""Sums over loss tokens, in the order of `MicroBatchLoss.sums`; the first four carry the reduction's weights."""
PEAKS = ("log_ratio", "rollout_difference")
"""Largest absolute values over loss tokens, in the order of `MicroBatchLoss.peaks`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConstants:
    """Numbers of one optimizer step that are known over all ranks and micro-batches before it starts."""

    denominator: float
    """What the weighted sum of losses is divided by; from `algorithms.reduction`."""
    kl_coefficient: float = 0.0
    entropy_coefficient: float = 0.0
    kto_baseline: float = 0.0
    """KL(policy || reference) in nats per sequence, estimated on mismatched pairs; >= 0."""


@dataclass(slots=True, kw_only=True)
class MicroBatchLoss:
    """Loss and statistics of one micro-batch, not divided by anything yet."""

    numerator: Tensor
    """Weighted sum of policy, KL and entropy terms; carries the gradient."""
    sums: Tensor
    """`[len(SUMS)]` fp64, detached."""
    peaks: Tensor
    """`[len(PEAKS)]` fp64, detached."""
    is_clipped: Tensor
    """`[N]` bool, where a bound of the policy loss is active."""


def micro_batch_loss(
    logprobs: Tensor,
    entropies: Tensor,
    micro_batch: MicroBatch,
    config: AlgorithmConfig,
    constants: StepConstants,
) -> MicroBatchLoss:
    """Return the numerator of the step's loss that one micro-batch contributes.

    Args:
        logprobs: `[N]` under the policy in training; carries the gradient.
        entropies: `[N]` in nats; carries the gradient if the entropy coefficient is not 0.
        micro_batch: On the same device.
        config: Section `algorithm`.
        constants: Of the optimizer step.

    Raises:
        WorkerError: Reference log-probs are needed and missing.
    """
    mask = micro_batch.loss_mask
    old = _old_logprobs(logprobs, micro_batch, config)
    tokens = LossTokens(
        logprobs=logprobs,
        old_logprobs=_reference(micro_batch, config) if config.policy_loss is PolicyLoss.kto else old,
        advantages=micro_batch.advantages,
        loss_mask=mask,
        cu_seqlens=micro_batch.cu_seqlens,
        selected=micro_batch.selected,
    )
    policy = POLICY_LOSSES[config.policy_loss](tokens, _loss_constants(config, constants))
    correction = _correction(old, micro_batch, config)
    weights = torch.where(mask, micro_batch.token_weights, 0.0)
    policy_sum = (weights * correction * policy.losses).sum()
    kl = _kl(logprobs, old, micro_batch, config)
    kl_sum = (weights * correction * kl).sum()
    entropies = torch.where(mask, entropies, 0.0)
    entropy_sum = (weights * entropies).sum()
    numerator = policy_sum
    if constants.kl_coefficient and not config.kl_in_reward:
        numerator = numerator + constants.kl_coefficient * kl_sum
    if constants.entropy_coefficient:
        numerator = numerator - constants.entropy_coefficient * entropy_sum
    weighted = torch.stack([numerator, policy_sum, kl_sum, entropy_sum]).detach().double()
    per_token = torch.stack([entropies.detach().double().sum(), kl.detach().double().sum(), mask.sum().double()])
    counts, peaks = _statistics(logprobs.detach(), old, micro_batch, policy.is_clipped, correction)
    return MicroBatchLoss(
        numerator=numerator,
        sums=torch.cat([weighted, counts, per_token]),
        peaks=peaks,
        is_clipped=policy.is_clipped.detach(),
    )


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
        "loss/correction_weight_mean": value["correction_weight"] / tokens,
        "loss/correction_masked_fraction": value["correction_masked"] / tokens,
        "loss/effective_sample_fraction": value["correction_weight"] ** 2
        / ((value["correction_square"] or 1.0) * tokens),
        "loss/token_entropy": value["token_entropy"] / tokens,
        "loss/token_kl": value["token_kl"] / tokens,
        "loss/num_tokens": value["tokens"],
    }


def _loss_constants(config: AlgorithmConfig, constants: StepConstants) -> LossConstants:
    """Return what the losses read, from config and step."""
    return LossConstants(
        clip_low=config.clip_low,
        clip_high=config.clip_high,
        dual_clip=config.dual_clip,
        tau_positive=config.tau_positive,
        tau_negative=config.tau_negative,
        kl_cov_coefficient=config.kl_cov_coefficient,
        kto_beta=config.kto_beta,
        kto_baseline=constants.kto_baseline,
    )


def _old_logprobs(logprobs: Tensor, micro_batch: MicroBatch, config: AlgorithmConfig) -> Tensor:
    """Return the ratio's denominator, `[N]`, detached."""
    if config.old_logprobs is OldLogprobs.rollout:
        return micro_batch.rollout_logprobs
    if config.old_logprobs is OldLogprobs.current:
        return logprobs.detach()
    if micro_batch.old_logprobs is None:
        raise WorkerError(
            "algorithm.old_logprobs=recompute must come with log-probs of the policy before the batch, got none on a "
            "micro-batch. Attach them before training."
        )
    return micro_batch.old_logprobs


def _reference(micro_batch: MicroBatch, config: AlgorithmConfig) -> Tensor:
    """Return the reference's log-probs, `[N]`."""
    if micro_batch.ref_logprobs is None:
        raise WorkerError(
            f"algorithm.kl_coefficient={config.kl_coefficient} with algorithm.policy_loss={config.policy_loss} must "
            "come with reference log-probs, got none on a micro-batch. Attach the reference worker's before training."
        )
    return micro_batch.ref_logprobs


def _correction(old: Tensor, micro_batch: MicroBatch, config: AlgorithmConfig) -> Tensor:
    """Return the weight of every token for what the engine sampled otherwise, `[N]`, 1 where there is none."""
    mask, borders = micro_batch.loss_mask, micro_batch.cu_seqlens
    log_ratio = masked_log_ratio(old, micro_batch.rollout_logprobs, mask).detach()
    weights = outlier_mask(log_ratio, mask, borders, lowest_ratio=config.outlier_ratio)
    if config.correction is not Correction.none:
        bounds = CorrectionBounds(config.correction_low, config.correction_high)
        weights = weights * CORRECTIONS[config.correction](log_ratio, mask, borders, bounds)
    return weights


def _kl(logprobs: Tensor, old: Tensor, micro_batch: MicroBatch, config: AlgorithmConfig) -> Tensor:
    """Return `[N]` KL estimates, 0 without a reference."""
    if not config.needs_reference:
        return torch.zeros_like(micro_batch.token_weights)
    mask = micro_batch.loss_mask
    kl = KL_ESTIMATORS[config.kl_estimator](logprobs, _reference(micro_batch, config), mask)
    return importance_weighted(kl, masked_log_ratio(logprobs, old, mask)) if config.kl_importance_weighted else kl


def _statistics(
    logprobs: Tensor, old: Tensor, micro_batch: MicroBatch, is_clipped: Tensor, correction: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the unweighted sums and the peaks over loss tokens, as fp64."""
    mask = micro_batch.loss_mask
    log_ratio = masked_log_ratio(logprobs, old, mask).double()
    trainer = logprobs if micro_batch.old_logprobs is None else micro_batch.old_logprobs
    difference = masked_log_ratio(trainer, micro_batch.rollout_logprobs, mask).double().abs()
    weights = torch.where(mask, correction, 0.0).double()
    sums = [
        is_clipped.sum().double(),
        torch.where(mask, log_ratio.clamp(max=LOG_RATIO_BOUND).exp(), 0.0).sum(),
        log_ratio.sum(),
        (log_ratio.abs() > LOG_RATIO_BOUND).sum().double(),
        difference.sum(),
        weights.sum(),
        weights.square().sum(),
        (mask & (weights == 0)).sum().double(),
    ]
    return torch.stack(sums), torch.stack([log_ratio.abs().max(), difference.max()])
