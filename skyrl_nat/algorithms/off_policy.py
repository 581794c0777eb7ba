"""Correction for samples that another distribution than the trainer's produced. Legend: N tokens, B sequences.

Each takes the log-ratios trainer / rollout of the loss tokens and returns a weight per token, detached: 0 for
what is left out. Left-out tokens stay in the loss's denominator, as in the papers: a batch of which much is left
out takes a smaller step.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from skyrl_nat.algorithms.losses import sequence_means, sequence_sums


class CorrectionBounds(NamedTuple):
    """The range of a correction's ratios."""

    low: float
    """Below it a mask leaves out; truncation does not read it."""
    high: float
    """Above it a mask leaves out, and truncation cuts."""


def token_tis(log_ratio: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, bounds: CorrectionBounds) -> Tensor:
    """Return min(ratio, high) of every token (truncated importance sampling).

    Args:
        log_ratio: `[N]` trainer minus rollout log-probs, 0 where masked.
        loss_mask: `[N]` bool; not used.
        cu_seqlens: `[B + 1]`; not used.
        bounds: `high` is the cap.

    Reference:
        Yao et al., "Your efficient RL framework secretly brings you off-policy RL training", 2025; IMPALA,
        arXiv:1802.01561, section 4.1.
    """
    del loss_mask, cu_seqlens
    return log_ratio.exp().clamp(max=bounds.high)


def sequence_tis(log_ratio: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, bounds: CorrectionBounds) -> Tensor:
    """Return min(product of the sequence's ratios, high), repeated along the sequence.

    Args:
        log_ratio: `[N]` trainer minus rollout log-probs, 0 where masked.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
        bounds: `high` is the cap.

    Reference:
        Liu et al., "When speed kills stability: demystifying RL collapse from the training-inference
        mismatch", 2025 (sequence-level truncation).
    """
    return sequence_sums(log_ratio, loss_mask, cu_seqlens).exp().clamp(max=bounds.high)


def icepop(log_ratio: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, bounds: CorrectionBounds) -> Tensor:
    """Return every token's ratio where it lies within the bounds, else 0.

    Args:
        log_ratio: `[N]` trainer minus rollout log-probs, 0 where masked.
        loss_mask: `[N]` bool; not used.
        cu_seqlens: `[B + 1]`; not used.
        bounds: Both are read; 0.5 and 5 in the paper.

    Reference:
        IcePop, Ling team, "Every step evolves", arXiv:2510.18855, section 3.
    """
    del loss_mask, cu_seqlens
    ratio = log_ratio.exp()
    return torch.where((ratio >= bounds.low) & (ratio <= bounds.high), ratio, 0.0)


def geometric_mask(log_ratio: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, bounds: CorrectionBounds) -> Tensor:
    """Return 1 along sequences whose geometric mean ratio lies within the bounds, else 0: no length bias.

    Args:
        log_ratio: `[N]` trainer minus rollout log-probs, 0 where masked.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
        bounds: Both are read; close to 1, for instance 0.99 and 1.01.

    Reference:
        Liu et al. 2025, as in `sequence_tis` (geometric sequence masking).
    """
    ratio = sequence_means(log_ratio, loss_mask, cu_seqlens).exp()
    return ((ratio >= bounds.low) & (ratio <= bounds.high)).to(log_ratio.dtype)


def product_mask(log_ratio: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, bounds: CorrectionBounds) -> Tensor:
    """Return the product of the sequence's ratios along sequences where it lies within the bounds, else 0.

    Args:
        log_ratio: `[N]` trainer minus rollout log-probs, 0 where masked.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
        bounds: Both are read.

    Reference:
        Liu et al. 2025, as in `sequence_tis` (masked importance sampling).
    """
    ratio = sequence_sums(log_ratio, loss_mask, cu_seqlens).exp()
    return torch.where((ratio >= bounds.low) & (ratio <= bounds.high), ratio, 0.0)


def outlier_mask(log_ratio: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, *, lowest_ratio: float) -> Tensor:
    """Return 0 along sequences that hold a token whose ratio is below a bound or above its inverse, else 1.

    Args:
        log_ratio: `[N]` trainer minus rollout log-probs, 0 where masked.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
        lowest_ratio: In (0, 1), for instance 1e-4; 0 keeps everything.
    """
    if lowest_ratio <= 0:
        return torch.ones_like(log_ratio)
    is_outlier = log_ratio.abs() > -torch.tensor(lowest_ratio, dtype=torch.float64).log().to(log_ratio)
    return (sequence_sums(is_outlier.to(log_ratio.dtype), loss_mask, cu_seqlens) == 0).to(log_ratio.dtype)


CORRECTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, CorrectionBounds], Tensor]] = {
    "token_tis": token_tis,
    "sequence_tis": sequence_tis,
    "icepop": icepop,
    "geometric_mask": geometric_mask,
    "product_mask": product_mask,
}
"""Corrections by config name (`algorithm.correction`); all have the signature of `token_tis`."""
