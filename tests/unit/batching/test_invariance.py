"""Loss and gradient of a step do not depend on how its samples are laid out, over random batches and objectives.

Everything is fp64 after packing, gradients are by the log-probs and entropies of every token, gathered by sample.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from skyrl_nat.algorithms.kl import KL_ESTIMATORS
from skyrl_nat.algorithms.losses import POLICY_LOSSES
from skyrl_nat.algorithms.off_policy import CORRECTIONS
from skyrl_nat.algorithms.reduction import REDUCTIONS, ReductionWeights
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import build_micro_batch, filler_micro_batch, pack
from skyrl_nat.batching.shaping import shape_advantages
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.objective import StepConstants, micro_batch_loss

TOLERANCE = 1e-9
NAN = float("nan")
MODELS = ("logprobs", "entropies", "old_logprobs", "ref_logprobs")
ONE_FOR_ALL = 100_000
"""A micro-batch budget that holds any of the batches."""
PROFILE = settings(max_examples=100, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Batch:
    """Samples of one step, and by sample id what models would say about their tokens."""

    samples: list[TrainingSample]
    said: dict[str, dict[str, Tensor]]


def make_sample(name: str, lengths: Sequence[int], shared: list[int], generator: random.Random) -> TrainingSample:
    """Return a sample of prompt, sampled tokens, observation, sampled tokens and so on, from their lengths."""
    mask = [index % 2 == 1 for index, length in enumerate(lengths) for _ in range(length)]
    mask = [False] * len(shared) + mask
    advantage = generator.choice([-1.5, -0.5, 0.0, 0.75, 2.0])
    return TrainingSample(
        sample_id=name,
        rollout_id=name.split("#")[0],
        group_id=name.split("-")[0],
        token_ids=shared + [generator.randrange(50) for _ in range(len(mask) - len(shared))],
        loss_mask=mask,
        rollout_logprobs=[-generator.uniform(0.1, 5) if is_kept else 0.0 for is_kept in mask],
        advantages=[advantage if is_kept else 0.0 for is_kept in mask],
        oldest_version=0,
    )


def said_about(sample: TrainingSample, generator: random.Random) -> dict[str, Tensor]:
    """Return log-probs around the engine's, and entropies; NaN where masked."""
    spreads = {"logprobs": 0.4, "old_logprobs": 0.3, "ref_logprobs": 0.6, "entropies": 1.0}
    return {
        name: torch.tensor(
            [
                value + generator.gauss(0, spread) if is_kept else NAN
                for value, is_kept in zip(sample.rollout_logprobs, sample.loss_mask, strict=True)
            ],
            dtype=torch.float64,
        )
        for name, spread in spreads.items()
    }


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Draw ragged groups: prompts alone or shared, observations, rollouts of one or two contexts, silent samples."""
    generator = random.Random(draw(st.integers(0, 2**32 - 1)))
    turns = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=3)
    samples = []
    for group, size in enumerate(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))):
        shared = [generator.randrange(50) for _ in range(draw(st.sampled_from([0, 3, 16, 25])))]
        for member in range(size):
            num_contexts = draw(st.sampled_from([1, 1, 1, 2]))
            for context in range(num_contexts):
                name = f"{group}-{member}" + (f"#{context}" if num_contexts > 1 else "")
                lengths = [length for turn in draw(turns) for length in turn]
                samples.append(make_sample(name, lengths, shared, generator))
    if draw(st.booleans()):
        samples.append(make_sample("silent", [3], [], generator))
    return Batch(samples, {sample.sample_id: said_about(sample, generator) for sample in samples})


@st.composite
def objectives(draw: st.DrawFn) -> AlgorithmConfig:
    """Draw a policy loss and everything that can go with it."""
    policy_loss = draw(st.sampled_from(sorted(POLICY_LOSSES)))
    is_sequence_loss = policy_loss in ("gspo", "kto")
    kl = draw(st.sampled_from(["none", "reward", *sorted(set(KL_ESTIMATORS) - {"k1"})]))
    drawn: dict[str, Any] = {
        "policy_loss": policy_loss,
        "reduction": "sequence_mean" if is_sequence_loss else draw(st.sampled_from(sorted(REDUCTIONS))),
        "old_logprobs": draw(st.sampled_from(["recompute", "recompute", "rollout", "current"])),
        "whiten_advantages": policy_loss != "kto" and draw(st.booleans()),
        "entropy_coefficient": draw(st.sampled_from([0.0, 0.1])),
        "dual_clip": draw(st.sampled_from([0.0, 1.5])),
        "outlier_ratio": draw(st.sampled_from([0.0, 0.4])),
        "covariance_share": 0.3,
        "covariance_low": -5.0,
    }
    if drawn["old_logprobs"] != "rollout":
        drawn["correction"] = draw(st.sampled_from(["none", *sorted(CORRECTIONS)]))
    if kl == "reward" and drawn["old_logprobs"] != "current":
        drawn |= {"kl_coefficient": 0.2, "kl_estimator": "k1", "kl_in_reward": True, "gamma": 0.95}
    elif kl not in ("none", "reward"):
        drawn |= {"kl_coefficient": 0.2, "kl_estimator": kl, "kl_importance_weighted": draw(st.booleans())}
    return AlgorithmConfig(**drawn)


def reduced(samples: Sequence[TrainingSample], config: AlgorithmConfig) -> ReductionWeights:
    """Return weights and denominator of the step."""
    return REDUCTIONS[config.reduction](
        [sample.num_loss_tokens for sample in samples],
        [sample.rollout_id for sample in samples],
        [sample.group_id for sample in samples],
        max_tokens_divisor=16,
    )


def laid_out(
    samples: Sequence[TrainingSample], config: AlgorithmConfig, *, num_ranks: int = 1, budget: int = ONE_FOR_ALL
) -> list[MicroBatch]:
    """Return the micro-batches of all ranks, in order."""
    grid = pack(samples, reduced(samples, config).token_weights, num_ranks=num_ranks, token_budget=budget)
    assert len({len(row) for row in grid}) == 1
    return [micro_batch for row in grid for micro_batch in row]


def step(batch: Batch, config: AlgorithmConfig, micro_batches: Sequence[MicroBatch]) -> dict[str, Tensor]:
    """Return the loss of the step, and by sample id its gradient by log-probs and entropies of the loss tokens."""
    said = {name: {key: value.clone() for key, value in fields.items()} for name, fields in batch.said.items()}
    leaves = [fields[key].requires_grad_() for fields in said.values() for key in ("logprobs", "entropies")]
    joined = []
    for micro_batch in micro_batches:
        for name in ("advantages", "token_weights", "rollout_logprobs"):
            setattr(micro_batch, name, getattr(micro_batch, name).double())
        filler = [torch.full((micro_batch.num_tokens,), NAN, dtype=torch.float64)]
        parts = {key: [said[name][key] for name in micro_batch.sample_ids] or filler for key in MODELS}
        joined.append({key: torch.cat(values) for key, values in parts.items()})
        micro_batch.ref_logprobs = joined[-1]["ref_logprobs"] if config.needs_reference else None
        micro_batch.old_logprobs = joined[-1]["old_logprobs"] if config.needs_old_logprobs else None
    shape_advantages(micro_batches, config, kl_coefficient=config.kl_coefficient, seed=5)
    constants = StepConstants(
        denominator=reduced(batch.samples, config).denominator,
        kl_coefficient=config.kl_coefficient,
        entropy_coefficient=config.entropy_coefficient,
        kto_baseline=0.2,
    )
    losses = [
        micro_batch_loss(values["logprobs"], values["entropies"], micro_batch, config, constants).numerator
        for micro_batch, values in zip(micro_batches, joined, strict=True)
    ]
    loss = torch.stack(losses).sum() / constants.denominator
    gradients = iter(torch.autograd.grad(loss, leaves, materialize_grads=True))
    kept = {sample.sample_id: torch.tensor(sample.loss_mask) for sample in batch.samples}
    by_sample = {name: torch.stack([next(gradients), next(gradients)]) for name in said}
    assert not any(by_sample[name][:, ~kept[name]].any() for name in said)
    found = {name: gradient[:, kept[name]] for name, gradient in by_sample.items()}
    assert sum(micro_batch.num_loss_tokens for micro_batch in micro_batches) == sum(int(k.sum()) for k in kept.values())
    return found | {"loss": loss.detach()}


def assert_equal(found: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Assert that loss and all gradients agree relative to the largest gradient."""
    assert found.keys() >= expected.keys()
    scale = max(float(value.abs().max()) for value in expected.values() if value.numel())
    for name, value in expected.items():
        assert torch.isfinite(value).all()
        assert (found[name] - value).abs().sum() <= TOLERANCE * scale, name


@PROFILE
@given(batches(), objectives(), st.data())
def test_budget_ranks_and_order_of_rollouts_change_nothing(
    batch: Batch, config: AlgorithmConfig, data: st.DataObject
) -> None:
    """From the longest sample alone to everything in one, on 1 to 3 ranks, rollouts in any order."""
    expected = step(batch, config, laid_out(batch.samples, config))
    longest = max(sample.num_tokens for sample in batch.samples)
    total = sum(sample.num_tokens for sample in batch.samples)
    shuffled = data.draw(st.permutations(batch.samples), label="order")
    budget = data.draw(st.integers(longest, total), label="budget")
    for num_ranks in (1, 2, 3):
        found = step(batch, config, laid_out(shuffled, config, num_ranks=num_ranks, budget=budget))
        assert_equal(found, expected)


@PROFILE
@given(batches(), objectives(), st.data())
def test_any_partition_with_fillers_between_changes_nothing(
    batch: Batch, config: AlgorithmConfig, data: st.DataObject
) -> None:
    """Micro-batches of any samples in any order, also such as packing would never build."""
    expected = step(batch, config, laid_out(batch.samples, config))
    weights = reduced(batch.samples, config).token_weights
    order = data.draw(st.permutations(range(len(batch.samples))), label="order")
    micro_batches = [filler_micro_batch()]
    while order:
        size = data.draw(st.integers(1, len(order)), label="size")
        chosen, order = order[:size], order[size:]
        micro_batches.append(build_micro_batch([batch.samples[i] for i in chosen], [weights[i] for i in chosen]))
        micro_batches += [filler_micro_batch() for _ in range(data.draw(st.integers(0, 2), label="fillers"))]
    assert_equal(step(batch, config, micro_batches), expected)


@PROFILE
@given(batches(), objectives(), st.data())
def test_padding_and_samples_without_loss_tokens_change_nothing(
    batch: Batch, config: AlgorithmConfig, data: st.DataObject
) -> None:
    """Masked tokens before and after a sequence, and whole sequences of them."""
    expected = step(batch, config, laid_out(batch.samples, config))
    samples, said = [], {}
    for sample in batch.samples:
        before, after = data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4)), label="padding")
        samples.append(padded(sample, before, after))
        said[sample.sample_id] = {
            key: torch.nn.functional.pad(value, (before, after), value=NAN)
            for key, value in batch.said[sample.sample_id].items()
        }
    extra = make_sample("extra", [2], [], random.Random(0))
    said["extra"] = said_about(extra, random.Random(0))
    wide = Batch([*samples, extra], said)
    assert_equal(step(wide, config, laid_out(wide.samples, config, num_ranks=2)), expected)


def padded(sample: TrainingSample, before: int, after: int) -> TrainingSample:
    """Return a sample with masked tokens around it."""
    return replace(
        sample,
        token_ids=[0] * before + sample.token_ids + [0] * after,
        loss_mask=[False] * before + sample.loss_mask + [False] * after,
        rollout_logprobs=[0.0] * before + sample.rollout_logprobs + [0.0] * after,
        advantages=[0.0] * before + sample.advantages + [0.0] * after,
    )


@pytest.mark.parametrize("name", sorted(POLICY_LOSSES))
def test_the_compared_gradients_are_not_zero(name: str) -> None:
    """The comparisons above compare something, and a sample in the wrong place would be seen."""
    generator = random.Random(1)
    samples = [make_sample(f"0-{i}", [2, 5 + i, 2, 4], [], generator) for i in range(4)]
    samples = [replace(s, advantages=[1.0 + i if k else 0.0 for k in s.loss_mask]) for i, s in enumerate(samples)]
    batch = Batch(samples, {sample.sample_id: said_about(sample, generator) for sample in samples})
    config = AlgorithmConfig(
        policy_loss=name, reduction="sequence_mean", old_logprobs="recompute", clip_low=0.5, clip_high=0.5
    )
    found = step(batch, config, laid_out(samples, config, budget=40))
    assert all(float(found[sample.sample_id].abs().max()) > 1e-3 for sample in samples)
    swapped = Batch(samples, batch.said | {"0-0": {k: v.roll(1) for k, v in batch.said["0-0"].items()}})
    swapped.said["0-0"] = {k: torch.nan_to_num(v, nan=-2.0) for k, v in swapped.said["0-0"].items()}
    with pytest.raises(AssertionError):
        assert_equal(step(swapped, config, laid_out(samples, config)), found)
