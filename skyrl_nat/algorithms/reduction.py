"""From losses per token to the one number that is optimised.

    loss = sum_i sum_t weight_i * loss_it / denominator

over ALL samples i of one optimizer step, on every rank and in every micro-batch. Weights and
denominator come from one call on the whole step, so the loss cannot depend on how samples are packed.
Policy loss, KL and entropy share them. A sample without loss tokens weighs 0 and counts nowhere. Samples that
were cut from one rollout count as that rollout, once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class ReductionWeights(NamedTuple):
    """Numerators and denominator of the loss."""

    token_weights: list[float]
    """One per sample; the weight of each of its loss tokens."""
    denominator: float
    """What the weighted sum is divided by; 0 where there is nothing to train on."""


def token_mean(
    num_loss_tokens: Sequence[int], rollout_ids: Sequence[str], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Every loss token of the step counts the same.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        rollout_ids: Not used.
        group_ids: Not used.
        max_tokens_divisor: Not used.

    Reference:
        DAPO, arXiv:2503.14476, section 3.3.
    """
    del rollout_ids, group_ids, max_tokens_divisor
    weights = [1.0 if count else 0.0 for count in num_loss_tokens]
    return ReductionWeights(weights, float(sum(num_loss_tokens)))


def sequence_mean(
    num_loss_tokens: Sequence[int], rollout_ids: Sequence[str], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Every rollout counts the same: mean over its tokens, then over rollouts.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        rollout_ids: Rollout of each sample, in any order.
        group_ids: Not used.
        max_tokens_divisor: Not used.

    Reference:
        DeepSeekMath, arXiv:2402.03300, equation 3.
    """
    del group_ids, max_tokens_divisor
    return _mean_per(rollout_ids, num_loss_tokens)


def sequence_mean_token_sum(
    num_loss_tokens: Sequence[int], rollout_ids: Sequence[str], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Sum over a rollout's tokens divided by a constant, then the mean over rollouts.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        rollout_ids: Rollout of each sample, in any order.
        group_ids: Not used.
        max_tokens_divisor: The constant, in tokens; never taken from the batch.

    Reference:
        Dr. GRPO, arXiv:2503.20783, section 3.2.
    """
    del group_ids
    weights = [1.0 / max_tokens_divisor if count else 0.0 for count in num_loss_tokens]
    return ReductionWeights(weights, _mean_per(rollout_ids, num_loss_tokens).denominator)


def prompt_mean(
    num_loss_tokens: Sequence[int], rollout_ids: Sequence[str], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Every group counts the same: mean over all tokens of a group, then over groups.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        rollout_ids: Not used.
        group_ids: Group of each sample, in any order.
        max_tokens_divisor: Not used.

    Reference:
        ScaleRL, arXiv:2510.13786, section 3.2 (prompt-level loss aggregation).
    """
    del rollout_ids, max_tokens_divisor
    return _mean_per(group_ids, num_loss_tokens)


def _mean_per(ids: Sequence[str], num_loss_tokens: Sequence[int]) -> ReductionWeights:
    """Return weights under which every id counts the same, whatever its samples' lengths."""
    totals: dict[str, int] = {}
    for name, count in zip(ids, num_loss_tokens, strict=True):
        totals[name] = totals.get(name, 0) + count
    weights = [1.0 / totals[name] if count else 0.0 for name, count in zip(ids, num_loss_tokens, strict=True)]
    return ReductionWeights(weights, float(sum(total > 0 for total in totals.values())))


REDUCTIONS: dict[str, Callable[..., ReductionWeights]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_mean_token_sum": sequence_mean_token_sum,
    "prompt_mean": prompt_mean,
}
"""Reductions by config name (`algorithm.reduction`); all have the signature of `token_mean`."""
