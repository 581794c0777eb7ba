"""Policy losses per token. Legend: N packed tokens, B sequences.

All have the signature `(tokens, constants) -> PolicyLoss`. What a masked position holds (NaN included)
reaches neither a value nor a gradient.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

LOG_RATIO_BOUND = 20.0
"""Log-ratios are cut to +-20 before `exp`, far outside any clip range, so that 0 * inf cannot make NaN."""


class LossTokens(NamedTuple):
    """The tokens of one micro-batch as a loss sees them."""

    logprobs: Tensor
    """`[N]` under the policy in training; carries the gradient."""
    old_logprobs: Tensor
    """`[N]` under the policy as it was before this batch (`kto`: under the reference); never a gradient."""
    advantages: Tensor
    """`[N]` (`kto`: +desirable weight or -undesirable weight, constant along a sequence)."""
    loss_mask: Tensor
    """`[N]` bool."""
    cu_seqlens: Tensor
    """`[B + 1]` first token of every sequence, and N."""
    selected: Tensor
    """`[N]` bool: the tokens that `algorithms.covariance` picked from the whole batch."""


class LossConstants(NamedTuple):
    """The constants of all losses; each reads its own."""

    clip_low: float = 0.2
    """Distance of the ratio under 1 at which its gradient stops; in (0, 1)."""
    clip_high: float = 0.2
    """Distance over 1; at least `clip_low`."""
    dual_clip: float = 0.0
    """Bound of `ppo_clip`'s loss for negative advantages as a multiple of |A|; 0 for off."""
    tau_positive: float = 1.0
    """Temperature of `sapo`'s gate where A > 0."""
    tau_negative: float = 1.05
    """Temperature of `sapo`'s gate where A <= 0."""
    kl_cov_coefficient: float = 1.0
    """Weight of `kl_cov`'s penalty on the selected tokens."""
    kto_beta: float = 0.1
    """Scale of `kto`'s log-ratios."""
    kto_baseline: float = 0.0
    """Estimate of KL(policy || reference) over the whole batch, in nats per sequence, >= 0."""


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


def sequence_sums(values: Tensor, loss_mask: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return the sum over each sequence's loss tokens, repeated along the sequence.

    Args:
        values: `[N]` one value per token.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
    """
    lengths = cu_seqlens.diff().long()
    owner = torch.repeat_interleave(torch.arange(lengths.numel(), device=values.device), lengths)
    kept = torch.where(loss_mask, values, 0.0)
    sums = torch.zeros(lengths.numel(), dtype=values.dtype, device=values.device)
    return sums.index_add(0, owner, kept)[owner]


def sequence_means(values: Tensor, loss_mask: Tensor, cu_seqlens: Tensor) -> Tensor:
    """Return the mean over each sequence's loss tokens, repeated along the sequence.

    Args:
        values: `[N]` one value per token.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.

    Returns:
        `[N]`; 0 along a sequence without loss tokens.
    """
    counts = sequence_sums(torch.ones_like(values), loss_mask, cu_seqlens)
    return sequence_sums(values, loss_mask, cu_seqlens) / counts.clamp(min=1.0)


def ppo_clip_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return the clipped surrogate loss of every token, optionally dual-clipped.

    Reference:
        PPO, arXiv:1707.06347, equation 7; asymmetric bounds, DAPO, arXiv:2503.14476, equation 8; dual
        clip, arXiv:1912.09729, equation 5.
    """
    log_ratio = masked_log_ratio(tokens.logprobs, tokens.old_logprobs, tokens.loss_mask)
    return _clipped_surrogate(log_ratio, tokens, constants)


def gspo_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return the clipped surrogate of every sequence, repeated on its tokens.

    The ratio is the geometric mean of the token ratios, and the clip range three orders of magnitude
    narrower than PPO's in the paper. Reduce with `sequence_mean`, so that every sequence counts once
    whatever its length.

    Reference:
        GSPO, arXiv:2507.18071, equations 5 and 7.
    """
    log_ratio = masked_log_ratio(tokens.logprobs, tokens.old_logprobs, tokens.loss_mask)
    means = sequence_means(log_ratio, tokens.loss_mask, tokens.cu_seqlens)
    return _clipped_surrogate(means, tokens, constants)


def cispo_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return REINFORCE weighted with the clipped, detached ratio: a clipped token keeps its gradient.

    Reference:
        CISPO, MiniMax-M1, arXiv:2506.13585, equations 4 and 5.
    """
    ratio = _ratio(tokens).detach()
    weight = ratio.clamp(1.0 - constants.clip_low, 1.0 + constants.clip_high)
    losses = -weight * _kept(tokens.advantages, tokens) * _kept(tokens.logprobs, tokens)
    return PolicyLoss(losses, (ratio != weight) & tokens.loss_mask)


def sapo_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return the surrogate whose ratio passes a soft gate, (4 / tau) sigmoid(tau (ratio - 1)): nothing is clipped.

    At ratio 1 value and gradient weight are 2 / tau and 1. A larger tau, used for A <= 0, narrows the gate.

    Reference:
        SAPO, arXiv:2511.20347, section 3.
    """
    advantages = _kept(tokens.advantages, tokens)
    tau = torch.full_like(advantages, constants.tau_negative).masked_fill(advantages > 0, constants.tau_positive)
    gate = torch.sigmoid(tau * (_ratio(tokens) - 1.0)) * 4.0 / tau
    return PolicyLoss(_kept(-gate * advantages, tokens), torch.zeros_like(tokens.loss_mask))


def clip_cov_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return `ppo_clip_loss` without the gradient of the selected tokens.

    Reference:
        Clip-Cov, arXiv:2505.22617, section 4.
    """
    loss = ppo_clip_loss(tokens, constants)
    is_selected = tokens.selected & tokens.loss_mask
    return PolicyLoss(torch.where(is_selected, loss.losses.detach(), loss.losses), loss.is_clipped | is_selected)


def kl_cov_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return the surrogate without a clip, plus a penalty of |log-ratio| on the selected tokens.

    Reference:
        KL-Cov, arXiv:2505.22617, section 4 and its listing (k1 in absolute value as the penalty).
    """
    log_ratio = masked_log_ratio(tokens.logprobs, tokens.old_logprobs, tokens.loss_mask)
    penalty = torch.where(tokens.selected, constants.kl_cov_coefficient * log_ratio.abs(), 0.0)
    losses = penalty - _bounded_exp(log_ratio) * _kept(tokens.advantages, tokens)
    return PolicyLoss(_kept(losses, tokens), torch.zeros_like(tokens.loss_mask))


def importance_sampling_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return -ratio A of every token, nothing clipped: unbiased for samples of `old_logprobs`.

    Reference:
        Sutton and Barto, Reinforcement Learning, 2nd edition, section 5.5, per decision.
    """
    del constants
    losses = -_ratio(tokens) * _kept(tokens.advantages, tokens)
    return PolicyLoss(_kept(losses, tokens), torch.zeros_like(tokens.loss_mask))


def reinforce_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return `-A log pi` of every token: no ratio, nothing clipped.

    Reference:
        Williams 1992, doi:10.1007/BF00992696, section 4.
    """
    del constants
    losses = -_kept(tokens.advantages, tokens) * _kept(tokens.logprobs, tokens)
    return PolicyLoss(losses, torch.zeros_like(tokens.loss_mask))


def cross_entropy_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return `-log pi` of every token: supervised fine-tuning; advantages are not read."""
    del constants
    return PolicyLoss(-_kept(tokens.logprobs, tokens), torch.zeros_like(tokens.loss_mask))


def kto_loss(tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return Kahneman-Tversky's loss of every sequence, repeated on its tokens; reduce with `sequence_mean`.

    With r the sequence's log-ratio to the reference and z the baseline: w (1 - sigmoid(beta (r - z))) for a
    desirable sequence (A = w > 0), w (1 - sigmoid(beta (z - r))) for an undesirable one (A = -w). The baseline
    carries no gradient.

    Reference:
        KTO, arXiv:2402.01306, section 4.1.
    """
    log_ratio = masked_log_ratio(tokens.logprobs, tokens.old_logprobs, tokens.loss_mask)
    rewards = sequence_sums(log_ratio, tokens.loss_mask, tokens.cu_seqlens)
    advantages = _kept(tokens.advantages, tokens)
    margin = constants.kto_beta * (rewards - constants.kto_baseline) * advantages.sign()
    return PolicyLoss(advantages.abs() * torch.sigmoid(-margin), torch.zeros_like(tokens.loss_mask))


def _kept(values: Tensor, tokens: LossTokens) -> Tensor:
    """Return values with 0 where masked."""
    return torch.where(tokens.loss_mask, values, 0.0)


def _ratio(tokens: LossTokens) -> Tensor:
    """Return the ratio of every token, 1 where masked."""
    return _bounded_exp(masked_log_ratio(tokens.logprobs, tokens.old_logprobs, tokens.loss_mask))


def _bounded_exp(log_ratio: Tensor) -> Tensor:
    """Return `exp` of log-ratios, cut at the numerical bound."""
    return log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).exp()


def _clipped_surrogate(log_ratio: Tensor, tokens: LossTokens, constants: LossConstants) -> PolicyLoss:
    """Return the pessimistic one of the plain and the clipped surrogate, as a loss."""
    ratio = _bounded_exp(log_ratio)
    kept = _kept(tokens.advantages, tokens)
    plain = -ratio * kept
    clipped = -ratio.clamp(1.0 - constants.clip_low, 1.0 + constants.clip_high) * kept
    losses = torch.maximum(plain, clipped)
    is_clipped = clipped > plain
    if constants.dual_clip > 0:
        ceiling = -constants.dual_clip * kept
        is_over = (kept < 0) & (losses > ceiling)
        losses = torch.where(is_over, ceiling, losses)
        is_clipped = is_clipped | is_over
    return PolicyLoss(_kept(losses, tokens), is_clipped & tokens.loss_mask)


POLICY_LOSSES: dict[str, Callable[[LossTokens, LossConstants], PolicyLoss]] = {
    "ppo_clip": ppo_clip_loss,
    "gspo": gspo_loss,
    "cispo": cispo_loss,
    "sapo": sapo_loss,
    "clip_cov": clip_cov_loss,
    "kl_cov": kl_cov_loss,
    "importance_sampling": importance_sampling_loss,
    "reinforce": reinforce_loss,
    "cross_entropy": cross_entropy_loss,
    "kto": kto_loss,
}
"""Policy losses by config name (`algorithm.policy_loss`)."""
