"""From rewards to advantages. Legend: G rollouts of a group, N packed tokens, B sequences.

Group-relative advantages are computed in fp64, so that fp32 rewards leave no rounding residue, and are
exactly 0 for a group that teaches nothing: one rollout, or equal rewards.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor

STD_EPS = 1e-6
"""Added to the standard deviation, in reward units."""
ZERO_SPREAD_TOLERANCE = 1e-6
"""Rewards whose range is below this share of max(1, largest |reward|) count as equal."""


def has_zero_spread(rewards: Tensor) -> bool:
    """Return True where a group holds no preference: fewer than two rewards, or all equal.

    Args:
        rewards: `[G]` total rewards of one group; float residue of weighted sums counts as equal.
    """
    if rewards.numel() < 2:
        return True
    values = rewards.double()
    scale = max(1.0, float(values.abs().max()))
    return float(values.max() - values.min()) <= ZERO_SPREAD_TOLERANCE * scale


def grpo_advantages(rewards: Tensor) -> Tensor:
    """Return rewards minus their mean, divided by their sample standard deviation.

    Args:
        rewards: `[G]` total rewards of one group.

    Returns:
        `[G]` in the format of `rewards`; `[1, 0, 0, 0]` gives `[1.5, -0.5, -0.5, -0.5]`.

    Reference:
        DeepSeekMath, arXiv:2402.03300, section 4.1.2 (G - 1 in the deviation, and `STD_EPS` added to it).
    """
    if has_zero_spread(rewards):
        return torch.zeros_like(rewards)
    values = rewards.double()
    centred = values - values.mean()
    return (centred / (values.std(correction=1) + STD_EPS)).to(rewards.dtype)


def dr_grpo_advantages(rewards: Tensor) -> Tensor:
    """Return rewards minus their mean, not divided: a group's scale stays in its gradient.

    Args:
        rewards: `[G]` total rewards of one group.

    Returns:
        `[G]` in the format of `rewards`; `[1, 0, 0, 0]` gives `[0.75, -0.25, -0.25, -0.25]`.

    Reference:
        Dr. GRPO, arXiv:2503.20783, section 3.2.
    """
    if has_zero_spread(rewards):
        return torch.zeros_like(rewards)
    values = rewards.double()
    return (values - values.mean()).to(rewards.dtype)


def rloo_advantages(rewards: Tensor) -> Tensor:
    """Return each reward minus the mean of the other ones.

    Args:
        rewards: `[G]` total rewards of one group.

    Returns:
        `[G]` in the format of `rewards`; `[1, 0, 0, 0]` gives `[1, -1/3, -1/3, -1/3]`.

    Reference:
        RLOO, arXiv:2402.14740, section 2.3.
    """
    if has_zero_spread(rewards):
        return torch.zeros_like(rewards)
    values = rewards.double()
    others = (values.sum() - values) / (values.numel() - 1)
    return (values - others).to(rewards.dtype)


def maxrl_advantages(rewards: Tensor) -> Tensor:
    """Return rewards minus their mean, divided by their mean: the gradient of log success, not of success.

    Args:
        rewards: `[G]` total rewards of one group, none below 0.

    Returns:
        `[G]` in the format of `rewards`; `[1, 0, 0, 0]` gives `[3, -1, -1, -1]`.

    Raises:
        ValueError: A reward is negative.

    Reference:
        MaxRL, arXiv:2602.02710, section 4.
    """
    if has_zero_spread(rewards):
        return torch.zeros_like(rewards)
    if float(rewards.min()) < 0:
        raise ValueError(f"rewards must be >= 0 for maxrl, got {float(rewards.min())}. Use dr_grpo or shift them.")
    values = rewards.double()
    return ((values - values.mean()) / values.mean()).to(rewards.dtype)


def raw_rewards(rewards: Tensor) -> Tensor:
    """Return the rewards themselves: REINFORCE++ centres and scales over the whole batch (`whiten`).

    Args:
        rewards: `[G]` total rewards of one group.

    Reference:
        REINFORCE++, arXiv:2501.03262, section 3.
    """
    return rewards.clone()


def reward_to_go(token_rewards: Tensor, loss_mask: Tensor, cu_seqlens: Tensor, *, gamma: float) -> Tensor:
    """Return the discounted sum of the rewards from each loss token to the end of its sequence.

    What lies between two spans of loss tokens (observations) holds no reward and no time: a reward crosses it
    undiscounted.

    Args:
        token_rewards: `[N]`; masked positions are not read.
        loss_mask: `[N]` bool.
        cu_seqlens: `[B + 1]` first token of every sequence, and N.
        gamma: Discount per loss token, in (0, 1].

    Returns:
        `[N]`, 0 where masked; mask `[1, 1, 0, 0, 1, 1]` with reward 1 at the end gives the mask itself.

    Reference:
        REINFORCE++, arXiv:2501.03262, section 3.
    """
    result = torch.zeros_like(token_rewards)
    borders = [int(border) for border in cu_seqlens]
    for start, end in pairwise(borders):
        places = loss_mask[start:end].nonzero()[:, 0] + start
        rewards = token_rewards[places].double().flip(0)
        if gamma < 1.0:
            running = torch.zeros((), dtype=torch.float64)
            returns = torch.empty_like(rewards)
            for index in range(rewards.numel()):
                running = returns[index] = rewards[index] + gamma * running
        else:
            returns = rewards.cumsum(0)
        result[places] = returns.flip(0).to(result.dtype)
    return result


def whiten(values: Tensor) -> Tensor:
    """Return values minus their mean, divided by their sample standard deviation; equal ones give 0.

    Args:
        values: `[N]` of the loss tokens alone, over all ranks and micro-batches.

    Reference:
        REINFORCE++, arXiv:2501.03262, section 3 (normalisation over the global batch).
    """
    if has_zero_spread(values):
        return torch.zeros_like(values)
    wide = values.double()
    return ((wide - wide.mean()) / (wide.std(correction=1) + STD_EPS)).to(values.dtype)


def overlong_penalty(num_tokens: int, *, limit: int, buffer: int) -> float:
    """Return DAPO's soft punishment of length: 0 up to `limit - buffer`, falling to -1 at `limit`.

    Args:
        num_tokens: Sampled tokens of a rollout.
        limit: Most tokens that a rollout may sample.
        buffer: Width of the ramp in tokens, >= 1.

    Reference:
        DAPO, arXiv:2503.14476, equation 13.
    """
    over = num_tokens - (limit - buffer)
    return -min(max(over / buffer, 0.0), 1.0)


ADVANTAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "grpo": grpo_advantages,
    "dr_grpo": dr_grpo_advantages,
    "rloo": rloo_advantages,
    "maxrl": maxrl_advantages,
    "reinforce": raw_rewards,
}
"""Advantage functions by config name (`algorithm.advantage`)."""
