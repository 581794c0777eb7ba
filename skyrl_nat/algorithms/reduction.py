"""From losses per token to the one number that is optimised.

    loss = sum_i sum_t weight_i * loss_it / denominator

over ALL samples i of one optimizer step, on every rank and in every micro-batch. Weights and
denominator come from one call on the whole step, so the loss cannot depend on how samples are packed.
Policy loss, KL and entropy share them. A sample without loss tokens weighs 0 and counts nowhere.
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
    num_loss_tokens: Sequence[int], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Every loss token of the step counts the same.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        group_ids: Not used.
        max_tokens_divisor: Not used.

    Reference:
        DAPO, arXiv:2503.14476, section 3.3.
    """
    del group_ids, max_tokens_divisor
    weights = [1.0 if count else 0.0 for count in num_loss_tokens]
    return ReductionWeights(weights, float(sum(num_loss_tokens)))


def sequence_mean(
    num_loss_tokens: Sequence[int], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Every sample counts the same: mean over its tokens, then over samples.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        group_ids: Not used.
        max_tokens_divisor: Not used.

    Reference:
        DeepSeekMath, arXiv:2402.03300, equation 3.
    """
    del group_ids, max_tokens_divisor
    weights = [1.0 / count if count else 0.0 for count in num_loss_tokens]
    return ReductionWeights(weights, float(sum(count > 0 for count in num_loss_tokens)))


def sequence_mean_token_sum(
    num_loss_tokens: Sequence[int], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Sum over a sample's tokens divided by a constant, then the mean over samples.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        group_ids: Not used.
        max_tokens_divisor: The constant, in tokens; never taken from the batch.

    Reference:
        Dr. GRPO, arXiv:2503.20783, section 3.2.
    """
    del group_ids
    weights = [1.0 / max_tokens_divisor if count else 0.0 for count in num_loss_tokens]
    return ReductionWeights(weights, float(sum(count > 0 for count in num_loss_tokens)))


def prompt_mean(
    num_loss_tokens: Sequence[int], group_ids: Sequence[str], *, max_tokens_divisor: int
) -> ReductionWeights:
    """Every group counts the same: mean over all tokens of a group, then over groups.

    Args:
        num_loss_tokens: Loss tokens of each sample.
        group_ids: Group of each sample, in any order.
        max_tokens_divisor: Not used.

    Reference:
        ScaleRL, arXiv:2510.13786, section 3.2 (prompt-level loss aggregation).
    """
    del max_tokens_divisor
    totals: dict[str, int] = {}
    for count, group in zip(num_loss_tokens, group_ids, strict=True):
        totals[group] = totals.get(group, 0) + count
    weights = [1.0 / totals[group] if count else 0.0 for count, group in zip(num_loss_tokens, group_ids, strict=True)]
    return ReductionWeights(weights, float(sum(total > 0 for total in totals.values())))


REDUCTIONS: dict[str, Callable[..., ReductionWeights]] = {
    "token_mean": token_mean,
    "sequence_mean": sequence_mean,
    "sequence_mean_token_sum": sequence_mean_token_sum,
    "prompt_mean": prompt_mean,
}
"""Reductions by config name (`algorithm.reduction`); all have the signature of `token_mean`."""
