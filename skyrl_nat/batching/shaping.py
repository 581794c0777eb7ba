"""What a batch as a whole does to its advantages, in place. Legend: N loss tokens of the batch.

Runs once per batch, after log-probs are attached and before the first update, over the micro-batches of all
ranks and updates: nothing in it depends on how samples are packed.
"""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from skyrl_nat.algorithms.advantages import reward_to_go, whiten
from skyrl_nat.algorithms.covariance import clip_cov_selection, kl_cov_selection, token_covariances
from skyrl_nat.algorithms.kl import KL_ESTIMATORS
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.config.algorithm import AlgorithmConfig, OldLogprobs, PolicyLoss
from skyrl_nat.errors import DataError


def shape_advantages(
    micro_batches: Sequence[MicroBatch], config: AlgorithmConfig, *, kl_coefficient: float, seed: int
) -> dict[str, float]:
    """Apply the KL penalty, whitening and the choice of tokens by covariance, each where the config asks for it.

    Args:
        micro_batches: All of the batch, with the log-probs that the config needs.
        config: Section `algorithm`.
        kl_coefficient: Of this step.
        seed: Of the random choice of `clip_cov`.

    Returns:
        Metrics, for instance `reward/kl` in nats per loss token.
    """
    metrics: dict[str, float] = {}
    if config.kl_in_reward:
        metrics["reward/kl"] = _subtract_kl(micro_batches, config, kl_coefficient)
    if config.whiten_advantages:
        _put(micro_batches, "advantages", whiten(_gather(micro_batches, "advantages")))
    if config.policy_loss in (PolicyLoss.clip_cov, PolicyLoss.kl_cov):
        metrics["batch/covariance"] = _select(micro_batches, config, seed)
    return metrics


def _subtract_kl(micro_batches: Sequence[MicroBatch], config: AlgorithmConfig, coefficient: float) -> float:
    """Take the KL still to come from every token's advantage; return the KL per loss token."""
    total, count = 0.0, 0
    for micro_batch in micro_batches:
        is_trusted = config.old_logprobs is OldLogprobs.rollout
        policy = micro_batch.rollout_logprobs if is_trusted else micro_batch.old_logprobs
        if policy is None or micro_batch.ref_logprobs is None:
            raise DataError(
                "algorithm.kl_in_reward must come with log-probs of policy and reference, got a micro-batch without. "
                "Attach both before shaping."
            )
        kl = KL_ESTIMATORS[config.kl_estimator](policy, micro_batch.ref_logprobs, micro_batch.loss_mask)
        to_go = reward_to_go(kl, micro_batch.loss_mask, micro_batch.cu_seqlens, gamma=config.gamma)
        micro_batch.advantages = micro_batch.advantages - coefficient * to_go
        total += float(kl.double().sum())
        count += micro_batch.num_loss_tokens
    return total / max(count, 1)


def _select(micro_batches: Sequence[MicroBatch], config: AlgorithmConfig, seed: int) -> float:
    """Mark the tokens that the loss treats apart; return the batch's covariance."""
    covariances = token_covariances(_gather(micro_batches, "rollout_logprobs"), _gather(micro_batches, "advantages"))
    if not covariances.numel():
        return 0.0
    share = config.covariance_share
    if config.policy_loss is PolicyLoss.kl_cov:
        selected = kl_cov_selection(covariances, share=share)
    else:
        low, high = config.covariance_low, config.covariance_high
        generator = torch.Generator().manual_seed(seed)
        selected = clip_cov_selection(covariances, share=share, low=low, high=high, generator=generator)
    _put(micro_batches, "selected", selected)
    return float(covariances.mean())


def _gather(micro_batches: Sequence[MicroBatch], name: str) -> Tensor:
    """Return a field of all loss tokens, sorted by sample id, so that packing leaves no trace: `[N]`."""
    parts = [getattr(micro_batch, name)[micro_batch.loss_mask] for micro_batch in micro_batches]
    return torch.cat(parts)[_order(micro_batches)]


def _put(micro_batches: Sequence[MicroBatch], name: str, values: Tensor) -> None:
    """Write `[N]` values in the order of `_gather` back."""
    packed = torch.empty_like(values)
    packed[_order(micro_batches)] = values
    start = 0
    for micro_batch in micro_batches:
        end = start + micro_batch.num_loss_tokens
        field = torch.zeros(micro_batch.num_tokens, dtype=values.dtype)
        field[micro_batch.loss_mask] = packed[start:end]
        setattr(micro_batch, name, field)
        start = end


def _order(micro_batches: Sequence[MicroBatch]) -> Tensor:
    """Return the places of all loss tokens in order of sample id: `[N]`."""
    runs: list[tuple[str, Tensor]] = []
    start = 0
    for micro_batch in micro_batches:
        borders = pairwise(int(border) for border in micro_batch.cu_seqlens)
        # A filler has a border and no id.
        for name, (first, end) in zip(micro_batch.sample_ids, borders, strict=False):
            count = int(micro_batch.loss_mask[first:end].sum())
            runs.append((name, torch.arange(start, start + count)))
            start += count
    runs.sort(key=lambda run: run[0])
    return torch.cat([places for _, places in runs]) if runs else torch.zeros(0, dtype=torch.int64)
