"""Group-relative advantages. Legend: G rollouts of a group.

All of them are computed in fp64, so that fp32 rewards leave no rounding residue, and are exactly 0 for
a group that teaches nothing: one rollout, or equal rewards.
"""

from collections.abc import Callable

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


ADVANTAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "grpo": grpo_advantages,
    "dr_grpo": dr_grpo_advantages,
    "rloo": rloo_advantages,
}
"""Advantage functions by config name (`algorithm.advantage`)."""
