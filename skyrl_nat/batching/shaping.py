"""What a batch as a whole does to its advantages, in place. Legend: N loss tokens of the batch.

Runs once per batch, after log-probs are attached and before the first update, over the micro-batches of all
ranks and updates: nothing in it depends on how samples are packed.
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise

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
    tokens = _BatchTokens(micro_batches)
    if config.kl_in_reward:
        metrics["reward/kl"] = _subtract_kl(tokens, config, kl_coefficient)
    if config.whiten_advantages:
        tokens.put("advantages", whiten(tokens.get("advantages")))
    if config.policy_loss in (PolicyLoss.clip_cov, PolicyLoss.kl_cov):
        metrics["batch/covariance"] = _select(tokens, config, seed)
    return metrics


class _BatchTokens:
    """The loss tokens of all micro-batches as one row: rollout by rollout, each in the order of its segments."""

    def __init__(self, micro_batches: Sequence[MicroBatch]) -> None:
        self._micro_batches = micro_batches
        runs: list[tuple[str, int, Tensor]] = []
        start = 0
        for micro_batch in micro_batches:
            borders = pairwise(int(border) for border in micro_batch.cu_seqlens)
            # A filler has a border and no id.
            for name, (first, end) in zip(micro_batch.sample_ids, borders, strict=False):
                count = int(micro_batch.loss_mask[first:end].sum())
                rollout, _, segment = name.partition("#")
                runs.append((rollout, int(segment or 0), torch.arange(start, start + count)))
                start += count
        runs.sort(key=lambda run: run[:2])
        self._order = torch.cat([places for _, _, places in runs]) if runs else torch.zeros(0, dtype=torch.int64)
        counts: dict[str, int] = {}
        for rollout, _, places in runs:
            counts[rollout] = counts.get(rollout, 0) + places.numel()
        self.rollout_borders = torch.tensor([0, *accumulate(counts.values())])
        """`[R + 1]` where each rollout's tokens begin, and N."""

    def get(self, name: str) -> Tensor:
        """Return a field: `[N]`."""
        return self.gather([getattr(micro_batch, name) for micro_batch in self._micro_batches])

    def gather(self, values: Sequence[Tensor]) -> Tensor:
        """Return values that are given per micro-batch: `[N]`."""
        kept = [value[m.loss_mask] for value, m in zip(values, self._micro_batches, strict=True)]
        return torch.cat(kept)[self._order]

    def put(self, name: str, values: Tensor) -> None:
        """Write `[N]` values into a field, 0 outside the loss."""
        packed = torch.empty_like(values)
        packed[self._order] = values
        start = 0
        for micro_batch in self._micro_batches:
            end = start + micro_batch.num_loss_tokens
            field = torch.zeros(micro_batch.num_tokens, dtype=values.dtype)
            field[micro_batch.loss_mask] = packed[start:end]
            setattr(micro_batch, name, field)
            start = end

    def kl(self, config: AlgorithmConfig) -> Tensor:
        """Return the KL estimates of the policy as it was at sampling: `[N]`.

        Raises:
            DataError: Log-probs of policy or reference are missing.
        """
        estimates: list[Tensor] = []
        for micro_batch in self._micro_batches:
            is_trusted = config.old_logprobs is OldLogprobs.rollout
            policy = micro_batch.rollout_logprobs if is_trusted else micro_batch.old_logprobs
            if policy is None or micro_batch.ref_logprobs is None:
                raise DataError(
                    "algorithm.kl_in_reward must come with log-probs of policy and reference, got a micro-batch "
                    "without. Attach both before shaping."
                )
            estimate = KL_ESTIMATORS[config.kl_estimator]
            estimates.append(estimate(policy, micro_batch.ref_logprobs, micro_batch.loss_mask))
        return self.gather(estimates)


def _subtract_kl(tokens: _BatchTokens, config: AlgorithmConfig, coefficient: float) -> float:
    """Take the KL still to come in its rollout from every token's advantage; return the KL per loss token."""
    kl = tokens.kl(config)
    everything = torch.ones_like(kl, dtype=torch.bool)
    to_go = reward_to_go(kl, everything, tokens.rollout_borders, gamma=config.gamma)
    tokens.put("advantages", tokens.get("advantages") - coefficient * to_go)
    return float(kl.double().mean()) if kl.numel() else 0.0


def _select(tokens: _BatchTokens, config: AlgorithmConfig, seed: int) -> float:
    """Mark the tokens that the loss treats apart; return the batch's covariance."""
    covariances = token_covariances(tokens.get("rollout_logprobs"), tokens.get("advantages"))
    if not covariances.numel():
        return 0.0
    share = config.covariance_share
    if config.policy_loss is PolicyLoss.kl_cov:
        selected = kl_cov_selection(covariances, share=share)
    else:
        low, high = config.covariance_low, config.covariance_high
        generator = torch.Generator().manual_seed(seed)
        selected = clip_cov_selection(covariances, share=share, low=low, high=high, generator=generator)
    tokens.put("selected", selected)
    return float(covariances.mean())
