"""Correction for samples that another distribution than the trainer's produced. Legend: N packed tokens."""

import torch
from torch import Tensor


def truncated_importance_weights(
    trainer_logprobs: Tensor, rollout_logprobs: Tensor, loss_mask: Tensor, *, cap: float
) -> Tensor:
    """Return min(trainer / rollout, cap) of every token, detached.

    Args:
        trainer_logprobs: `[N]` under the trainer's policy before this batch.
        rollout_logprobs: `[N]` as the engine reported them at sampling.
        loss_mask: `[N]` bool.
        cap: Upper bound of the weight, > 0; 2 is usual.

    Returns:
        `[N]` in (0, cap]; 1 where masked.

    Reference:
        Truncated importance sampling, Yao et al., "Your efficient RL framework secretly brings you
        off-policy RL training", 2025; IMPALA, arXiv:1802.01561, section 4.1.
    """
    difference = torch.where(loss_mask, (trainer_logprobs - rollout_logprobs).detach(), 0.0)
    weights = difference.exp().clamp(max=cap)
    return torch.where(loss_mask, weights, 1.0)
