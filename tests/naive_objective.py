"""The loss of a whole optimizer step, written down token by token, to compare the packed objective with.

It is slow on purpose: Python loops over fp64 scalars, one sample after the other, straight from the definitions.
It shares no code with the package, only its records. Settings are a plain dict with the keys of section `algorithm`,
and `kto_baseline`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from skyrl_nat.types import Rollout, RolloutGroup

Settings = Mapping[str, Any]
Number = Tensor | float
"""A scalar: a tensor where a gradient flows, a float where none does."""

STD_EPS = 1e-6
"""Added to a standard deviation before rewards are divided by it."""


@dataclass(slots=True, kw_only=True)
class NaiveSample:
    """One sequence; lists and tensors have one entry per token, and masked entries are never read."""

    rollout_id: str
    group_id: str
    loss_mask: list[bool]
    advantages: list[float]
    logprobs: Tensor
    """`[T]` fp64 under the policy in training; carries the gradient."""
    entropies: Tensor
    """`[T]` fp64; carries the gradient."""
    old_logprobs: list[float]
    rollout_logprobs: list[float]
    ref_logprobs: list[float]
    selected: list[bool]

    @property
    def places(self) -> list[int]:
        """Positions of the loss tokens."""
        return [place for place, is_kept in enumerate(self.loss_mask) if is_kept]


# Advantages


def group_relative(name: str, rewards: Sequence[float]) -> list[float]:
    """Return the advantage of each rollout of a group, all 0 where rewards are equal."""
    count = len(rewards)
    if count < 2 or max(rewards) == min(rewards):
        return [0.0] * count
    mean = sum(rewards) / count
    centred = [reward - mean for reward in rewards]
    if name == "grpo":
        std = math.sqrt(sum(value**2 for value in centred) / (count - 1))
        return [value / (std + STD_EPS) for value in centred]
    if name == "dr_grpo":
        return centred
    if name == "rloo":
        return [reward - (sum(rewards) - reward) / (count - 1) for reward in rewards]
    if name == "maxrl":
        return [value / mean for value in centred]
    raise KeyError(name)


def rewards_to_go(rewards: Sequence[float], loss_mask: Sequence[bool], gamma: float) -> list[float]:
    """Return the discounted sum of the rewards from each loss token on; time passes on loss tokens only."""
    places = [place for place, is_kept in enumerate(loss_mask) if is_kept]
    returns = [0.0] * len(loss_mask)
    for index, place in enumerate(places):
        returns[place] = sum(gamma**steps * rewards[later] for steps, later in enumerate(places[index:]))
    return returns


def whiten_tokens(samples: Sequence[NaiveSample]) -> None:
    """Centre and scale the advantages of all loss tokens of the batch, in place."""
    values = [sample.advantages[place] for sample in samples for place in sample.places]
    mean = sum(values) / len(values)
    std = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    for sample in samples:
        for place in sample.places:
            sample.advantages[place] = (sample.advantages[place] - mean) / (std + STD_EPS)


def subtract_kl_to_go(samples: Sequence[NaiveSample], settings: Settings) -> None:
    """Take the log-ratios old / reference still to come in a rollout from its advantages, in place.

    The samples of a rollout are its segments, in order.
    """
    for rollout_id in {sample.rollout_id for sample in samples}:
        segments = [sample for sample in samples if sample.rollout_id == rollout_id]
        tokens = [(sample, place) for sample in segments for place in sample.places]
        kl = [sample.old_logprobs[place] - sample.ref_logprobs[place] for sample, place in tokens]
        for index, (sample, place) in enumerate(tokens):
            to_go = sum(settings["gamma"] ** steps * value for steps, value in enumerate(kl[index:]))
            sample.advantages[place] -= settings["kl_coefficient"] * to_go


def token_rewards(rollout: Rollout) -> list[float]:
    """Return what was earned at every token: at the last one of each turn, or all at the last of all."""
    assert rollout.reward is not None
    rewards = [0.0] * len(rollout.token_ids)
    places = [place for place, is_sampled in enumerate(rollout.loss_mask) if is_sampled]
    if not rollout.reward.is_by_turn:
        rewards[places[-1]] = rollout.reward.total
        return rewards
    end = 0
    for turn in rollout.turns:
        end += turn.num_completion_tokens
        rewards[places[end - 1]] = turn.reward
    return rewards


def naive_advantages(group: RolloutGroup, settings: Settings) -> list[list[float]]:
    """Return the advantages of every token of a group's rollouts."""
    rollouts = group.rollouts
    if settings["advantage"] == "reinforce":
        return [rewards_to_go(token_rewards(r), r.loss_mask, settings["gamma"]) for r in rollouts]
    if settings["policy_loss"] == "kto":
        weights = settings["desirable_weight"], -settings["undesirable_weight"]
        values = [weights[0] if r.reward and r.reward.is_success else weights[1] for r in rollouts]
    else:
        values = group_relative(settings["advantage"], [r.reward.total for r in rollouts if r.reward])
    return [[value] * len(r.token_ids) for value, r in zip(values, rollouts, strict=True)]


# Policy losses of one token: (log-prob, log-ratio, advantage, is selected, settings) -> loss


def _surrogate(ratio: Tensor, advantage: float, settings: Settings) -> Number:
    """Return PPO's clipped loss, dual-clipped where that is on."""
    bounded = min(max(ratio, 1.0 - settings["clip_low"]), 1.0 + settings["clip_high"])
    objective = min(ratio * advantage, bounded * advantage)
    if settings["dual_clip"] and advantage < 0:
        objective = max(objective, settings["dual_clip"] * advantage)
    return -objective


def _ppo_clip(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    del logprob, is_selected
    return _surrogate(log_ratio.exp(), advantage, settings)


def _cispo(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    del is_selected
    weight = min(max(math.exp(log_ratio.item()), 1.0 - settings["clip_low"]), 1.0 + settings["clip_high"])
    return -weight * advantage * logprob


def _sapo(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    del logprob, is_selected
    tau = settings["tau_positive"] if advantage > 0 else settings["tau_negative"]
    gate = 1.0 / (1.0 + (-tau * (log_ratio.exp() - 1.0)).exp())
    return -4.0 / tau * gate * advantage


def _clip_cov(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    loss = _ppo_clip(logprob, log_ratio, advantage, is_selected, settings)
    return loss.item() if is_selected and isinstance(loss, Tensor) else loss


def _kl_cov(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    del logprob
    loss = -log_ratio.exp() * advantage
    return loss + settings["kl_cov_coefficient"] * log_ratio.abs() if is_selected else loss


def _importance(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    del logprob, is_selected, settings
    return -log_ratio.exp() * advantage


def _reinforce(logprob: Tensor, log_ratio: Tensor, advantage: float, is_selected: bool, settings: Settings) -> Number:
    del log_ratio, is_selected, settings
    return -logprob * advantage


def _cross_entropy(logprob: Tensor, log_ratio: Tensor, advantage: float, chosen: bool, settings: Settings) -> Number:
    del log_ratio, advantage, chosen, settings
    return -logprob


TOKEN_LOSSES: dict[str, Callable[[Tensor, Tensor, float, bool, Settings], Number]] = {
    "ppo_clip": _ppo_clip,
    "cispo": _cispo,
    "sapo": _sapo,
    "clip_cov": _clip_cov,
    "kl_cov": _kl_cov,
    "importance_sampling": _importance,
    "reinforce": _reinforce,
    "cross_entropy": _cross_entropy,
}
SEQUENCE_LOSSES = ("gspo", "kto")


def log_ratios(sample: NaiveSample, settings: Settings) -> dict[int, Tensor]:
    """Return log policy - log old policy of every loss token, by position."""
    return {place: sample.logprobs[place] - _old(sample, place, settings) for place in sample.places}


def _old(sample: NaiveSample, place: int, settings: Settings) -> float:
    if settings["old_logprobs"] == "current":
        return sample.logprobs[place].item()
    return (sample.rollout_logprobs if settings["old_logprobs"] == "rollout" else sample.old_logprobs)[place]


def policy_losses(sample: NaiveSample, settings: Settings) -> dict[int, Number]:
    """Return the policy loss of every loss token of one sample, by position."""
    name = settings["policy_loss"]
    if name == "gspo":
        return _gspo(sample, settings)
    if name == "kto":
        return _kto(sample, settings)
    return {
        place: TOKEN_LOSSES[name](
            sample.logprobs[place], log_ratio, sample.advantages[place], sample.selected[place], settings
        )
        for place, log_ratio in log_ratios(sample, settings).items()
    }


def _gspo(sample: NaiveSample, settings: Settings) -> dict[int, Number]:
    """Return the surrogate of the geometric mean of a sequence's ratios, once per token."""
    found = log_ratios(sample, settings)
    mean = sum(found.values()) / len(found)
    return {place: _surrogate(mean.exp(), sample.advantages[place], settings) for place in found}


def _kto(sample: NaiveSample, settings: Settings) -> dict[int, Number]:
    """Return w (1 - v) with v the sequence's value under prospect theory, once per token."""
    reward = sum(sample.logprobs[place] - sample.ref_logprobs[place] for place in sample.places)
    distance = settings["kto_beta"] * (reward - settings["kto_baseline"])
    weight = sample.advantages[sample.places[0]]
    value = 1.0 / (1.0 + (-distance).exp()) if weight > 0 else 1.0 / (1.0 + distance.exp())
    return dict.fromkeys(sample.places, abs(weight) * (1.0 - value))


# KL, corrections, reductions


def kl_losses(sample: NaiveSample, settings: Settings) -> dict[int, Tensor]:
    """Return the estimate of KL(policy || reference) of every loss token, by position."""
    found = {}
    for place, log_ratio in log_ratios(sample, settings).items():
        d = sample.logprobs[place] - sample.ref_logprobs[place]
        kl = {"k1": d, "k2": d * d / 2, "k3": (-d).exp() - 1 + d, "abs": d.abs()}[settings["kl_estimator"]]
        found[place] = log_ratio.exp() * kl if settings["kl_importance_weighted"] else kl
    return found


def corrections(sample: NaiveSample, settings: Settings) -> dict[int, float]:
    """Return the weight of every loss token for the difference between trainer and engine, by position."""
    ratios = {
        place: math.exp(_old(sample, place, settings) - sample.rollout_logprobs[place]) for place in sample.places
    }
    lowest = settings["outlier_ratio"]
    if lowest and any(ratio < lowest or ratio > 1.0 / lowest for ratio in ratios.values()):
        return dict.fromkeys(ratios, 0.0)
    low, high = settings["correction_low"], settings["correction_high"]
    product = math.prod(ratios.values())
    geometric = product ** (1.0 / len(ratios))
    name = settings["correction"]
    if name == "none":
        return dict.fromkeys(ratios, 1.0)
    if name == "token_tis":
        return {place: min(ratio, high) for place, ratio in ratios.items()}
    if name == "icepop":
        return {place: ratio if low <= ratio <= high else 0.0 for place, ratio in ratios.items()}
    along_sequence = {
        "sequence_tis": min(product, high),
        "geometric_mask": 1.0 if low <= geometric <= high else 0.0,
        "product_mask": product if low <= product <= high else 0.0,
    }
    return dict.fromkeys(ratios, along_sequence[name])


def token_losses(sample: NaiveSample, settings: Settings) -> list[Number]:
    """Return everything that is optimised about every loss token of one sample."""
    weights = corrections(sample, settings)
    policy = policy_losses(sample, settings)
    losses: list[Number] = []
    for place in sample.places:
        loss = weights[place] * policy[place]
        losses.append(loss - settings["entropy_coefficient"] * sample.entropies[place])
    if settings["kl_coefficient"] and not settings["kl_in_reward"]:
        kl = kl_losses(sample, settings)
        for index, place in enumerate(sample.places):
            losses[index] = losses[index] + settings["kl_coefficient"] * weights[place] * kl[place]
    return losses


def naive_loss(samples: Sequence[NaiveSample], settings: Settings) -> Tensor:
    """Return the loss of the step: losses per token, reduced over all samples that have loss tokens."""
    reduction = settings["reduction"]
    per_rollout: dict[str, list[Number]] = {}
    per_group: dict[str, list[Number]] = {}
    for sample in samples:
        if sample.places:
            losses = token_losses(sample, settings)
            per_rollout.setdefault(sample.rollout_id, []).extend(losses)
            per_group.setdefault(sample.group_id, []).extend(losses)
    if reduction == "token_mean":
        return _mean([loss for losses in per_rollout.values() for loss in losses])
    if reduction == "sequence_mean":
        return _mean([_mean(losses) for losses in per_rollout.values()])
    if reduction == "sequence_mean_token_sum":
        return _mean([sum(losses) / settings["max_tokens_divisor"] for losses in per_rollout.values()])
    if reduction == "prompt_mean":
        return _mean([_mean(losses) for losses in per_group.values()])
    raise KeyError(reduction)


def _mean(values: Sequence[Number]) -> Any:
    return sum(values) / len(values)
