"""The packed objective against the naive loop of `naive_objective`, from rewards to gradients, in fp64.

Both get the same random rollouts. Masked positions of the packed side hold NaN.
"""

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from groups import make_rollout, make_turn
from naive_objective import (
    NaiveSample,
    log_ratios,
    naive_advantages,
    naive_loss,
    subtract_kl_to_go,
    whiten_tokens,
)
from torch import Tensor

from skyrl_nat.algorithms.kl import KL_ESTIMATORS
from skyrl_nat.algorithms.losses import POLICY_LOSSES
from skyrl_nat.algorithms.off_policy import CORRECTIONS
from skyrl_nat.algorithms.reduction import REDUCTIONS
from skyrl_nat.batching.advantages import group_advantages
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import pack
from skyrl_nat.batching.samples import build_samples
from skyrl_nat.batching.shaping import shape_advantages
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.config.load import config_dir, load_config
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task, TrainingSample
from skyrl_nat.workers.objective import StepConstants, micro_batch_loss, named_metrics

TOLERANCE = 1e-6
SEEDS = range(3)
LAYOUTS = [(1, 1000), (2, 60), (3, 48)]
"""Ranks and micro-batch budget that go with each seed."""
BASELINE = 0.3
DIVISOR = 37
NAN = float("nan")
SILENT = TrainingSample(
    sample_id="silent",
    rollout_id="silent",
    group_id="silent",
    token_ids=[7, 8, 9],
    loss_mask=[False] * 3,
    rollout_logprobs=[0.0] * 3,
    advantages=[0.0] * 3,
    oldest_version=-1,
)
"""A sequence without loss tokens."""
PRESETS = sorted(path.stem for path in Path(config_dir(), "algorithm").glob("*.yaml"))
OFFLINE = ("kto", "sft")


pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Batch:
    """Random groups, and by sample id what models would say about their tokens, still without advantages."""

    groups: list[RolloutGroup]
    said: dict[str, NaiveSample] = field(default_factory=dict)


def single(value: float) -> float:
    """Return the nearest fp32 number, since packing stores engine log-probs in fp32."""
    return float(torch.tensor(value, dtype=torch.float32))


def segments(rollout: Rollout) -> Iterator[tuple[str, slice]]:
    """Return the id and the place of each sample that a rollout is cut into."""
    borders = [*rollout.segment_starts, len(rollout.token_ids)]
    for number, (start, end) in enumerate(pairwise(borders)):
        yield (f"{rollout.rollout_id}#{number}" if len(borders) > 2 else rollout.rollout_id), slice(start, end)


def random_rollout(generator: random.Random, name: str, shared: list[int], by_turn: bool) -> Rollout:
    """Return two or three turns with observations between them; sometimes a turn starts a new context."""
    ids, mask, starts, turns = list(shared), [False] * len(shared), [0], []
    for turn in range(generator.randint(2, 3)):
        num_observed, num_sampled = generator.randint(1, 4), generator.randint(1, 7)
        if turn == 1 and name.endswith("0"):
            starts.append(len(ids))
        mask += [False] * num_observed + [True] * num_sampled
        ids += [generator.randrange(300) for _ in range(num_observed + num_sampled)]
        turns.append(make_turn(num_sampled, generator.randint(0, 4) / 8))
    total = sum(turn.reward for turn in turns) if by_turn else generator.randint(0, 8) / 8
    rollout = make_rollout(
        name,
        total,
        token_ids=ids,
        loss_mask=mask,
        rollout_logprobs=[single(-generator.uniform(0.1, 6)) if is_kept else 0.0 for is_kept in mask],
        token_versions=[0 if is_kept else -1 for is_kept in mask],
        turns=turns,
        outcome=Outcome.TRUNCATED if name.endswith("1") else Outcome.FINISHED,
        segment_starts=starts,
    )
    return replace(rollout, reward=RewardResult(total=total, parts={}, is_success=total > 0.5, is_by_turn=by_turn))


def random_batch(seed: int, spread: float) -> Batch:
    """Return four groups; `spread` is the standard deviation of the log-ratios to the old policy."""
    generator = random.Random(seed)
    batch = Batch(groups=[])
    for index, size in enumerate((3, 2, 4, 3)):
        shared = [generator.randrange(300) for _ in range(generator.choice([1, 5, 18]))]
        rollouts = [random_rollout(generator, f"{index}-{i}", shared, index == 2) for i in range(size)]
        if index == 1:
            rollouts = [replace(rollout, reward=rollouts[0].reward) for rollout in rollouts]
        task = Task(task_id=f"t{index}", family="f", payload={})
        batch.groups.append(RolloutGroup(task=task, index=index, rollouts=rollouts))
    say(batch, "silent", SILENT.loss_mask, SILENT.rollout_logprobs, generator, spread)
    for rollout in (rollout for group in batch.groups for rollout in group.rollouts):
        for name, place in segments(rollout):
            say(batch, name, rollout.loss_mask[place], rollout.rollout_logprobs[place], generator, spread)
    return batch


def say(
    batch: Batch, name: str, mask: list[bool], rollout: list[float], generator: random.Random, spread: float
) -> None:
    """Draw log-probs, entropies and selected flags of one sample; masked places are NaN.

    Every second sequence has a mean log-ratio inside GSPO's clip range, the others have one far outside.
    """
    kept = [place for place, is_kept in enumerate(mask) if is_kept]
    ratios = {place: generator.gauss(0, spread) for place in kept}
    if len(batch.said) % 2:
        excess = sum(ratios.values()) / len(kept) - generator.uniform(-2e-4, 2e-4)
        ratios = {place: ratio - excess for place, ratio in ratios.items()}
    old = [rollout[place] + generator.gauss(0, 0.5) if place in ratios else NAN for place in range(len(mask))]
    current = [value + ratios.get(place, NAN) for place, value in enumerate(old)]
    batch.said[name] = NaiveSample(
        rollout_id=name.split("#")[0],
        group_id=name.split("-")[0],
        loss_mask=mask,
        advantages=[],
        logprobs=torch.tensor(current, dtype=torch.float64).requires_grad_(),
        entropies=torch.tensor([generator.uniform(0, 3) if m else NAN for m in mask]).double().requires_grad_(),
        old_logprobs=old,
        rollout_logprobs=rollout,
        ref_logprobs=[value + generator.gauss(0, 0.7) for value in current],
        selected=[is_kept and generator.random() < 0.3 for is_kept in mask],
    )


# The packed side


def widen(micro_batch: MicroBatch, exact: dict[str, tuple[TrainingSample, float]]) -> None:
    """Put fp64 values in the place of what packing stored in fp32, NaN where log-probs are masked."""
    mask = micro_batch.loss_mask
    found = [exact[name] for name in micro_batch.sample_ids] or [(replace(SILENT, advantages=[0.0, 0.0]), 0.0)]
    advantages = torch.tensor([a for sample, _ in found for a in sample.advantages], dtype=torch.float64)
    weights = torch.tensor([w for sample, w in found for _ in sample.advantages], dtype=torch.float64) * mask
    assert torch.equal(micro_batch.advantages, advantages.float())
    assert torch.equal(micro_batch.token_weights, weights.float())
    micro_batch.advantages, micro_batch.token_weights = advantages, weights
    micro_batch.rollout_logprobs = torch.where(mask, micro_batch.rollout_logprobs.double(), NAN)


def joined(micro_batch: MicroBatch, parts: list[Any]) -> Tensor:
    """Return the values of the sequences of a micro-batch as one tensor, NaN for a filler."""
    filler = torch.full((micro_batch.num_tokens,), NAN, dtype=torch.float64)
    return torch.cat([torch.as_tensor(part, dtype=torch.float64) for part in parts]) if parts else filler


def packed_step(batch: Batch, config: AlgorithmConfig, num_ranks: int, budget: int) -> tuple[Tensor, dict[str, float]]:
    """Return loss and metrics of the step, summed over all ranks and micro-batches."""
    samples = [SILENT]
    for group in batch.groups:
        advantages = group_advantages(group, config, max_total_tokens=100)
        samples += build_samples(group, advantages, mask_truncated=config.mask_truncated)
    weights = REDUCTIONS[config.reduction](
        [sample.num_loss_tokens for sample in samples],
        [sample.rollout_id for sample in samples],
        [sample.group_id for sample in samples],
        max_tokens_divisor=config.max_tokens_divisor,
    )
    grid = pack(samples, weights.token_weights, num_ranks=num_ranks, token_budget=budget)
    assert len(grid) == num_ranks
    micro_batches = [micro_batch for row in grid for micro_batch in row]
    exact = {s.sample_id: (s, weight) for s, weight in zip(samples, weights.token_weights, strict=True)}
    for micro_batch in micro_batches:
        widen(micro_batch, exact)
        said = [batch.said[name] for name in micro_batch.sample_ids]
        if config.needs_old_logprobs:
            micro_batch.old_logprobs = joined(micro_batch, [sample.old_logprobs for sample in said])
        if config.needs_reference:
            micro_batch.ref_logprobs = joined(micro_batch, [sample.ref_logprobs for sample in said])
    shape_advantages(micro_batches, config, kl_coefficient=config.kl_coefficient, seed=0)
    constants = StepConstants(
        denominator=weights.denominator,
        kl_coefficient=config.kl_coefficient,
        entropy_coefficient=config.entropy_coefficient,
        kto_baseline=BASELINE,
    )
    losses = []
    for micro_batch in micro_batches:
        said = [batch.said[name] for name in micro_batch.sample_ids]
        micro_batch.selected = joined(micro_batch, [sample.selected for sample in said]) == 1.0
        logprobs = joined(micro_batch, [sample.logprobs for sample in said])
        entropies = joined(micro_batch, [sample.entropies for sample in said])
        losses.append(micro_batch_loss(logprobs, entropies, micro_batch, config, constants))
    total = torch.stack([loss.numerator / weights.denominator for loss in losses]).sum()
    sums, peaks = torch.stack([loss.sums for loss in losses]), torch.stack([loss.peaks for loss in losses])
    return total, named_metrics(sums.sum(0), peaks.amax(0), weights.denominator)


# The naive side


def naive_samples(batch: Batch, config: AlgorithmConfig) -> list[NaiveSample]:
    """Return the samples of the naive loop, with its own advantages."""
    settings = asdict(config)
    samples = [replace(batch.said["silent"], advantages=[0.0] * 3)]
    for group in batch.groups:
        for rollout, values in zip(group.rollouts, naive_advantages(group, settings), strict=True):
            if not (config.mask_truncated and rollout.outcome is Outcome.TRUNCATED):
                samples += [replace(batch.said[name], advantages=values[place]) for name, place in segments(rollout)]
    if config.kl_in_reward:
        subtract_kl_to_go(samples, settings)
    if config.whiten_advantages:
        whiten_tokens(samples)
    return samples


# The comparison


def gradients(loss: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the gradients by all token log-probs and by all entropies."""
    said = batch.said.values()
    leaves = [sample.logprobs for sample in said] + [sample.entropies for sample in said]
    found = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return torch.cat(found[: len(said)]), torch.cat(found[len(said) :])


def relative_difference(found: Tensor, expected: Tensor) -> float:
    """Return the largest relative difference of any entry; what is exactly 0 must be so in both."""
    assert torch.equal(found == 0, expected == 0)
    kept = expected != 0
    return float(((found - expected)[kept] / expected[kept]).abs().max()) if kept.any() else 0.0


def compare(config: AlgorithmConfig, seed: int, spread: float = 0.5) -> tuple[Batch, dict[str, float], Tensor]:
    """Assert that both sides agree; return the batch, the metrics and the naive gradient by log-probs."""
    batch = random_batch(seed, spread)
    found, metrics = packed_step(batch, config, *LAYOUTS[seed])
    expected = naive_loss(naive_samples(batch, config), asdict(config) | {"kto_baseline": BASELINE})
    pairs = list(zip(gradients(found, batch), gradients(expected, batch), strict=True))
    for packed, naive in pairs:
        assert relative_difference(packed, naive) < TOLERANCE
    gradient, by_entropy = pairs[0][1], pairs[1][1]
    # Centred advantages can add up to a loss of 0, so that it needs a scale of its own.
    scale = max(abs(expected.item()), float(gradient.abs().sum()))
    assert abs(found.item() - expected.item()) < TOLERANCE * scale
    assert (gradient != 0).sum() > 0.1 * metrics["loss/num_tokens"]
    assert (by_entropy != 0).sum() == (metrics["loss/num_tokens"] if config.entropy_coefficient else 0)
    return batch, metrics, gradient


def assert_clipped_on_both_sides(batch: Batch, config: AlgorithmConfig, metrics: dict[str, float]) -> None:
    """Assert that ratios lie under, in and over the clip range."""
    settings = asdict(config)
    samples = [sample for sample in naive_samples(batch, config) if sample.places]
    per_sample = [torch.stack(list(log_ratios(sample, settings).values())).detach() for sample in samples]
    if config.policy_loss == "gspo":
        per_sample = [values.mean(0, keepdim=True) for values in per_sample]
    ratios = torch.cat(per_sample).exp()
    is_under, is_over = ratios < 1 - config.clip_low, ratios > 1 + config.clip_high
    assert is_under.any()
    assert is_over.any()
    assert (~is_under & ~is_over).any()
    assert 0 < metrics["loss/clip_fraction"] < 1


def preset(name: str, *overrides: str) -> AlgorithmConfig:
    recorded = ["environment.recorded_files=[x]"] if name in OFFLINE else []
    return load_config(
        [f"algorithm={name}", f"algorithm.max_tokens_divisor={DIVISOR}", *recorded, *overrides]
    ).algorithm


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_as_it_is_equals_the_naive_loop(name: str) -> None:
    """Ratio 1 in the presets that take the log-probs of the training pass as the old ones."""
    config = preset(name)
    for seed in SEEDS:
        _, metrics, _ = compare(config, seed)
        if config.old_logprobs == "current":
            assert metrics["loss/log_ratio_max"] == 0.0


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_with_an_older_policy_equals_the_naive_loop(name: str) -> None:
    """Loss and gradient where ratios lie on both sides of the clip range."""
    config = preset(name, "algorithm.old_logprobs=recompute")
    for seed in SEEDS:
        # CISPO's clip range ends at 0.01 and 5.
        batch, metrics, _ = compare(config, seed, spread=3.0 if name == "cispo" else 0.5)
        if config.policy_loss in ("ppo_clip", "gspo", "cispo"):
            assert_clipped_on_both_sides(batch, config, metrics)
        else:
            assert metrics["loss/clip_fraction"] == 0


KL = {"kl_coefficient": 0.3}
WEIGHTED = {**KL, "kl_importance_weighted": True}
SEQUENCE = {"reduction": "sequence_mean"}
NARROW = {"geometric_mask": {"correction_low": 0.9, "correction_high": 1.1}}
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"reduction {name}": {"reduction": name, "advantage": "dr_grpo"} for name in REDUCTIONS if name != "token_mean"},
    **{f"policy loss {name}": {"policy_loss": name, **SEQUENCE} for name in POLICY_LOSSES if name != "ppo_clip"},
    **{f"correction {name}": {"correction": name} | NARROW.get(name, {}) for name in CORRECTIONS},
    **{f"kl {name}": {**KL, "kl_estimator": name} for name in KL_ESTIMATORS if name != "k1"},
    **{f"kl weighted {name}": {**WEIGHTED, "kl_estimator": name} for name in KL_ESTIMATORS if name != "k1"},
    "outliers": {"outlier_ratio": 0.35},
    "outliers and correction": {"outlier_ratio": 0.4, "correction": "token_tis", **KL, "kl_estimator": "k3"},
    "ratio to the engine": {"old_logprobs": "rollout"},
    "ratio to the engine, kl weighted": {"old_logprobs": "rollout", **WEIGHTED},
    "dual clip": {"dual_clip": 1.3},
    "gspo, dual clip": {"policy_loss": "gspo", "dual_clip": 1.05, "clip_low": 0.01, "clip_high": 0.02, **SEQUENCE},
    "asymmetric clip": {"clip_low": 0.1, "clip_high": 0.4},
    "entropy": {"entropy_coefficient": 0.2},
    "entropy, prompt mean": {"entropy_coefficient": 0.2, "reduction": "prompt_mean"},
    "kto, weights": {"policy_loss": "kto", "desirable_weight": 1.5, "undesirable_weight": 0.7, **SEQUENCE},
    "kto with kl": {"policy_loss": "kto", **KL, **SEQUENCE},
    "discounted": {"advantage": "reinforce", "gamma": 0.9, "whiten_advantages": True},
    "whitened": {"advantage": "dr_grpo", "whiten_advantages": True},
    "everything": {
        "advantage": "rloo",
        "reduction": "prompt_mean",
        "dual_clip": 2.0,
        "correction": "icepop",
        "outlier_ratio": 0.25,
        "entropy_coefficient": 0.1,
        "mask_truncated": True,
        "kl_estimator": "k3",
        **WEIGHTED,
    },
}
PLAIN = {"old_logprobs": "recompute", "max_tokens_divisor": DIVISOR}


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_equals_the_naive_loop_and_matters(name: str) -> None:
    """Agreement of both sides, and a gradient other than that of plain GRPO."""
    config = AlgorithmConfig(**(PLAIN | SETTINGS[name]))
    changes = []
    for seed in SEEDS:
        _, metrics, gradient = compare(config, seed)
        plain = plain_gradient(seed)
        changes.append(float((gradient - plain).abs().max() / plain.abs().max()))
        if config.outlier_ratio or "mask" in config.correction or config.correction == "icepop":
            assert 0 < metrics["loss/correction_masked_fraction"] < 1
        if config.correction != "none":
            assert metrics["loss/effective_sample_fraction"] < 1
    # An entropy bonus has no gradient by log-probs; `compare` looks at the one by entropies.
    assert max(changes) > 1e-3 or config.entropy_coefficient


@cache
def plain_gradient(seed: int) -> Tensor:
    return compare(AlgorithmConfig(**PLAIN), seed)[2]


@pytest.mark.parametrize("name", ["clip_cov", "kl_cov"])
def test_selected_tokens_are_treated_apart_like_in_the_naive_loop(name: str) -> None:
    """Clip-Cov takes the gradient of the selected tokens, KL-Cov adds a penalty to it."""
    for seed in SEEDS:
        batch, _, gradient = compare(AlgorithmConfig(**PLAIN, policy_loss=name), seed)
        other = "ppo_clip" if name == "clip_cov" else "importance_sampling"
        _, _, without = compare(AlgorithmConfig(**PLAIN, policy_loss=other), seed)
        is_selected = torch.tensor([flag for sample in batch.said.values() for flag in sample.selected])
        assert torch.equal(gradient[~is_selected], without[~is_selected])
        changed = gradient[is_selected] != without[is_selected]
        assert changed.all() if name == "kl_cov" else changed.any()
        if name == "clip_cov":
            assert not gradient[is_selected].any()
