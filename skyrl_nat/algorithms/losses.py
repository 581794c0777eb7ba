"""Policy losses per token. Legend: N packed tokens, B sequences.

What a masked position holds (NaN included) reaches neither a value nor a gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Log-ratios are cut to +-20 before `exp`, far outside any clip range, so that 0 * inf cannot make NaN."""


class ClipBounds(NamedTuple):
    """How far a ratio may go before its gradient stops."""

    low: float
    """Distance under 1; in (0, 1)."""
    high: float
    """Distance over 1; at least `low`."""
    dual: float = 0.0
    """Bound of `ppo_clip`'s loss for negative advantages as a multiple of |A|; 0 for off."""


class PolicyLoss(NamedTuple):
    """What a policy loss says about every token."""

    losses: Tensor
    """`[N]` lower is better; 0 where masked."""
    is_clipped: Tensor
    """`[N]` bool, True where a bound is active; False where masked."""


def masked_log_ratio(logprobs: Tensor, old_logprobs: Tensor, loss_mask: Tensor) -> Tensor:
    """Return `logprobs - old_logprobs`, uncut, and 0 where masked.

    Args:
        logprobs: `[N]` under the policy in training; carries the gradient.
        old_logprobs: `[N]` under the policy as it was before this batch.
        loss_mask: `[N]` bool.
    """
    return torch.where(loss_mask, logprobs - old_logprobs.detach(), 0.0)


def sequence_means(values: Tensor, loss_mask: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return the mean over each sequence's loss tokens, repeated along the sequence.

    Args:
        values: `[N]` one value per token.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.

    Returns:
        `[N]`; 0 along a sequence without loss tokens.
    """
    lengths = cu_seqlens.diff().long()
    owner = torch.repeat_interleave(torch.arange(lengths.numel(), device=values.device), lengths)
    kept = torch.where(loss_mask, values, 0.0)
    sums = torch.zeros(lengths.numel(), dtype=values.dtype, device=values.device)
    counts = torch.zeros_like(sums).index_add(0, owner, loss_mask.to(values.dtype))
    return (sums.index_add(0, owner, kept) / counts.clamp(min=1.0))[owner]


def ppo_clip_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    cu_seqlens: Tensor,
    *,
    bounds: ClipBounds,
) -> PolicyLoss:
    """Return the clipped surrogate loss of every token, optionally dual-clipped.

    Args:
        logprobs: `[N]` log-probs of the tokens under the policy in training; carries the gradient.
        old_logprobs: `[N]` the same tokens under the policy as it was before this batch.
        advantages: `[N]` one value per token, constant along a rollout.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]`; not used, the ratio is per token.
        bounds: The clip range and the dual clip.

    Reference:
        PPO, arXiv:1707.06347, equation 7; asymmetric bounds, DAPO, arXiv:2503.14476, equation 8; dual
        clip, arXiv:1912.09729, equation 5.
    """
    del cu_seqlens
    log_ratio = masked_log_ratio(logprobs, old_logprobs, loss_mask)
    return _clipped_surrogate(log_ratio, advantages, loss_mask, bounds)


def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    cu_seqlens: Tensor,
    *,
    bounds: ClipBounds,
) -> PolicyLoss:
    """Return the clipped surrogate of every sequence, repeated on its tokens.

    The ratio is the geometric mean of the token ratios. Reduce with `sequence_mean`, so that every
    sequence counts once whatever its length.

    Args:
        logprobs: `[N]` log-probs of the tokens under the policy in training; carries the gradient.
        old_logprobs: `[N]` the same tokens under the policy as it was before this batch.
        advantages: `[N]` one value per token, constant along a rollout.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
        bounds: The clip range (three orders of magnitude narrower than PPO's in the paper).

    Reference:
        GSPO, arXiv:2507.18071, equations 5 and 7.
    """
    log_ratio = masked_log_ratio(logprobs, old_logprobs, loss_mask)
    return _clipped_surrogate(sequence_means(log_ratio, loss_mask, cu_seqlens), advantages, loss_mask, bounds)


def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    cu_seqlens: Tensor,
    *,
    bounds: ClipBounds,
) -> PolicyLoss:
    """Return REINFORCE weighted with the clipped, detached ratio: a clipped token keeps its gradient.

    Args:
        logprobs: `[N]` log-probs of the tokens under the policy in training; carries the gradient.
        old_logprobs: `[N]` the same tokens under the policy as it was before this batch.
        advantages: `[N]` one value per token, constant along a rollout.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]`; not used, the ratio is per token.
        bounds: The range of the weight.

    Reference:
        CISPO, MiniMax-M1, arXiv:2506.13585, equations 4 and 5.
    """
    del cu_seqlens
    ratio = _bounded_exp(masked_log_ratio(logprobs, old_logprobs, loss_mask)).detach()
    weight = ratio.clamp(1.0 - bounds.low, 1.0 + bounds.high)
    kept = torch.where(loss_mask, logprobs, 0.0)
    losses = -weight * torch.where(loss_mask, advantages, 0.0) * kept
    return PolicyLoss(losses, (ratio != weight) & loss_mask)


def reinforce_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    loss_mask: Tensor,
    cu_seqlens: Tensor,
    *,
    bounds: ClipBounds,
) -> PolicyLoss:
    """Return `-A log pi` of every token: no ratio, nothing clipped.

    Args:
        logprobs: `[N]` log-probs of the tokens under the policy in training; carries the gradient.
        old_logprobs: `[N]`; not used.
        advantages: `[N]` one value per token, constant along a rollout.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]`; not used.
        bounds: Not used.

    Reference:
        Williams 1992, doi:10.1007/BF00992696, section 4.
    """
    del old_logprobs, cu_seqlens, bounds
    kept = torch.where(loss_mask, logprobs, 0.0)
    losses = -torch.where(loss_mask, advantages, 0.0) * kept
    return PolicyLoss(losses, torch.zeros_like(loss_mask))


def _bounded_exp(log_ratio: Tensor) -> Tensor:
    """Return `exp` of log-ratios, cut at the numerical bound."""
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def _clipped_surrogate(log_ratio: Tensor, advantages: Tensor, loss_mask: Tensor, bounds: ClipBounds) -> PolicyLoss:
    """Return the pessimistic one of the plain and the clipped surrogate, as a loss."""
    ratio = _bounded_exp(log_ratio)
    kept = torch.where(loss_mask, advantages, 0.0)
    plain = -ratio * kept
    clipped = -ratio.clamp(1.0 - bounds.low, 1.0 + bounds.high) * kept
    losses = torch.maximum(plain, clipped)
    is_clipped = clipped > plain
    if bounds.dual > 0:
        ceiling = -bounds.dual * kept
        is_over = (kept < 0) & (losses > ceiling)
        losses = torch.where(is_over, ceiling, losses)
        is_clipped = is_clipped | is_over
    return PolicyLoss(torch.where(loss_mask, losses, 0.0), is_clipped & loss_mask)


POLICY_LOSSES: dict[str, Callable[..., PolicyLoss]] = {
    "ppo_clip": ppo_clip_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "reinforce": reinforce_loss,
}
"""Policy losses by config name (`algorithm.policy_loss`); all have the signature of `ppo_clip_loss`."""
