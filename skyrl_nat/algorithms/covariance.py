"""Which tokens of a batch drive its entropy down. Legend: N loss tokens of the whole batch.

The choice is made once for the whole batch, from the log-probs at sampling, so that it cannot depend on how
samples are packed or on how many ranks there are.
"""

import torch
from torch import Tensor


def token_covariances(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """Return (log pi - mean log pi)(A - mean A) of every token; its mean is the batch's covariance.

    Args:
        logprobs: `[N]` at sampling.
        advantages: `[N]`.

    Reference:
        arXiv:2505.22617, section 4.
    """
    return (logprobs - logprobs.mean()) * (advantages - advantages.mean())


def clip_cov_selection(
    covariances: Tensor, *, share: float, low: float, high: float, generator: torch.Generator
) -> Tensor:
    """Return a random choice among the tokens whose covariance lies in a range.

    Args:
        covariances: `[N]`.
        share: Of the N tokens to choose, in [0, 1]; rounded down.
        low: Lower bound of the range.
        high: Upper bound of the range.
        generator: Source of the choice.

    Returns:
        `[N]` bool.

    Reference:
        Clip-Cov, arXiv:2505.22617, section 4.
    """
    candidates = ((covariances >= low) & (covariances <= high)).nonzero()[:, 0]
    order = torch.randperm(candidates.numel(), generator=generator)
    chosen = candidates[order[: int(share * covariances.numel())]]
    return torch.zeros_like(covariances, dtype=torch.bool).index_fill(0, chosen, True)


def kl_cov_selection(covariances: Tensor, *, share: float) -> Tensor:
    """Return the tokens with the largest covariances.

    Args:
        covariances: `[N]`.
        share: Of the N tokens to choose, in [0, 1]; rounded down.

    Returns:
        `[N]` bool.

    Reference:
        KL-Cov, arXiv:2505.22617, section 4.
    """
    chosen = covariances.topk(int(share * covariances.numel())).indices
    return torch.zeros_like(covariances, dtype=torch.bool).index_fill(0, chosen, True)
