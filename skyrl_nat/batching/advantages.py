"""From the rewards of a group to the advantages of its tokens."""

from itertools import accumulate

import torch
from torch import Tensor

from skyrl_nat.algorithms.advantages import ADVANTAGES, has_zero_spread, overlong_penalty, reward_to_go
from skyrl_nat.config.algorithm import Advantage, AlgorithmConfig, PolicyLoss
from skyrl_nat.types import Rollout, RolloutGroup


def group_advantages(group: RolloutGroup, config: AlgorithmConfig, *, max_total_tokens: int) -> list[list[float]]:
    """Return the advantages of every valid rollout's tokens, 0 outside the loss.

    Args:
        group: Scored; rollouts without a verdict take no part.
        config: Section `algorithm`.
        max_total_tokens: Longest rollout allowed, where the penalty on length is 1.

    Returns:
        One list per entry of `group.valid_rollouts`, with one entry per token.
    """
    rollouts = group.valid_rollouts
    if config.policy_loss is PolicyLoss.cross_entropy:
        return [_constant(rollout, 1.0) for rollout in rollouts]
    if config.policy_loss is PolicyLoss.kto:
        return [_constant(rollout, _label(rollout, config)) for rollout in rollouts]
    penalties = [_length_penalty(rollout, config, max_total_tokens) for rollout in rollouts]
    if config.advantage is Advantage.reinforce:
        return [_returns(r, penalty, config.gamma) for r, penalty in zip(rollouts, penalties, strict=True)]
    values = ADVANTAGES[config.advantage](_totals(rollouts) + torch.tensor(penalties, dtype=torch.float64))
    return [_constant(rollout, float(value)) for rollout, value in zip(rollouts, values, strict=True)]


def has_signal(group: RolloutGroup, config: AlgorithmConfig) -> bool:
    """Return False where the group's own rewards give every token the advantage 0.

    Penalties on length are not looked at: a filter must not depend on how rewards are shaped. Advantages that
    are centred over the batch, or hold a KL term, always have something to say.
    """
    if not config.is_group_relative or config.kl_in_reward:
        return True
    return not has_zero_spread(_totals(group.valid_rollouts))


def _totals(rollouts: list[Rollout]) -> Tensor:
    """Return `[G]` fp64 total rewards."""
    return torch.tensor([r.reward.total for r in rollouts if r.reward is not None], dtype=torch.float64)


def _label(rollout: Rollout, config: AlgorithmConfig) -> float:
    """Return KTO's weight, negative for a rollout that did not succeed."""
    is_desirable = rollout.reward is not None and rollout.reward.is_success
    return config.desirable_weight if is_desirable else -config.undesirable_weight


def _length_penalty(rollout: Rollout, config: AlgorithmConfig, max_total_tokens: int) -> float:
    """Return what is added to a rollout's reward for its length, <= 0."""
    if not config.overlong_buffer:
        return 0.0
    length = len(rollout.token_ids)
    return config.overlong_penalty * overlong_penalty(length, limit=max_total_tokens, buffer=config.overlong_buffer)


def _constant(rollout: Rollout, value: float) -> list[float]:
    """Return one value on all loss tokens."""
    return [value if is_sampled else 0.0 for is_sampled in rollout.loss_mask]


def _returns(rollout: Rollout, penalty: float, gamma: float) -> list[float]:
    """Return the reward to go at every sampled token: earned turn by turn, or all of it at the end."""
    assert rollout.reward is not None
    mask = torch.tensor(rollout.loss_mask)
    places = [index for index, is_sampled in enumerate(rollout.loss_mask) if is_sampled]
    if not places:
        return [0.0] * len(rollout.loss_mask)
    rewards = torch.zeros(len(rollout.loss_mask), dtype=torch.float64)
    rewards[places[-1]] = penalty
    if rollout.reward.is_by_turn:
        ends = accumulate(turn.num_completion_tokens for turn in rollout.turns)
        for turn, end in zip(rollout.turns, ends, strict=True):
            rewards[places[max(end - 1, 0)]] += turn.reward
    else:
        rewards[places[-1]] += rollout.reward.total
    whole = torch.tensor([0, len(rollout.loss_mask)])
    return [float(value) for value in reward_to_go(rewards, mask, whole, gamma=gamma)]
