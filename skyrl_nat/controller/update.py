"""One batch of scored groups into optimizer steps."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from skyrl_nat.algorithms.coefficients import adapted_entropy_coefficient, adapted_kl_coefficient
from skyrl_nat.algorithms.reduction import REDUCTIONS, ReductionWeights
from skyrl_nat.batching.advantages import group_advantages, has_signal
from skyrl_nat.batching.counts import pack_metrics
from skyrl_nat.batching.dynamic_sampling import replace_flat_groups
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.mismatch import kto_baseline, mismatched_samples
from skyrl_nat.batching.packing import attach_logprobs, pack, split_updates
from skyrl_nat.batching.samples import build_samples
from skyrl_nat.batching.shaping import shape_advantages
from skyrl_nat.batching.trained import TrainedTokens, trained_columns
from skyrl_nat.config.algorithm import AlgorithmConfig, DynamicSampling, PolicyLoss
from skyrl_nat.config.run import RunConfig
from skyrl_nat.types import Outcome, RolloutGroup, TrainingSample
from skyrl_nat.weight_sync.base import WorkerCalls
from skyrl_nat.workers.objective import StepConstants

Grid = list[list[MicroBatch]]
"""`[row][k]`: the micro-batches of one optimizer step; a row belongs to one rank, or to ranks that share it."""


Record = Callable[[dict[str, NDArray[np.generic]]], Awaitable[None]]
"""Takes the columns of `batching.trained.trained_columns`."""


@dataclass(slots=True)
class Coefficients:
    """Numbers of the objective that move from batch to batch; part of a checkpoint."""

    kl: float
    entropy: float

    def adapt(self, metrics: dict[str, float], config: AlgorithmConfig, num_rollouts: int) -> None:
        """Move towards the targets of the config, by what this batch measured."""
        if config.kl_target:
            measured = metrics["reward/kl" if config.kl_in_reward else "loss/token_kl"]
            self.kl = adapted_kl_coefficient(
                self.kl,
                measured=measured,
                target=config.kl_target,
                num_rollouts=num_rollouts,
                horizon=config.kl_horizon,
            )
        if config.entropy_target:
            self.entropy = adapted_entropy_coefficient(
                self.entropy,
                measured=metrics["loss/token_entropy"],
                target=config.entropy_target,
                step_size=config.entropy_step,
                largest=config.entropy_max_coefficient,
            )


class Trained(Protocol):
    """What an update needs of a run."""

    step: int
    """Batches trained before this one."""
    coefficients: Coefficients

    @property
    def config(self) -> RunConfig:
        """The run's config."""
        ...

    @property
    def policy(self) -> WorkerCalls:
        """The policy ranks."""
        ...

    @property
    def reference(self) -> WorkerCalls | None:
        """The reference ranks, if the objective asks for them."""
        ...


async def update_policy(run: Trained, groups: Sequence[RolloutGroup], record: Record | None = None) -> dict[str, float]:
    """Train on a batch: samples with advantages, packing, log-probs, then one optimizer step per part.

    Args:
        run: Step, config and workers.
        groups: The batch.
        record: Gets what training said of every token; None spares the way.

    Returns:
        Metrics of the optimizer steps, averaged where there are several.
    """
    config, algorithm = run.config, run.config.algorithm
    used = groups
    if algorithm.dynamic_sampling is DynamicSampling.replace:
        used = replace_flat_groups(groups, algorithm, seed=config.seed + run.step)
    samples = samples_of(used, config)
    parts = split_updates(samples, config.trainer.updates_per_batch)
    reductions = [_reduce(part, config) for part in parts]
    grids = [_pack(part, weights, config) for part, (weights, _) in zip(parts, reductions, strict=True)]
    for grid in grids:
        if algorithm.needs_old_logprobs:
            await _attach(run.policy, grid, "old_logprobs")
        if run.reference is not None:
            await _attach(run.reference, grid, "ref_logprobs")
    micro_batches = [micro_batch for grid in grids for row in grid for micro_batch in row]
    shaping = shape_advantages(
        micro_batches, algorithm, kl_coefficient=run.coefficients.kl, seed=config.seed + run.step
    )
    results = []
    trained: list[tuple[MicroBatch, TrainedTokens]] = []
    for part, grid, (_, denominator) in zip(parts, grids, reductions, strict=True):
        constants = await _constants(run, part, denominator)
        per_row = await call_per_row(run.policy, "train", [(row, constants) for row in grid])
        results.append(per_row[0])
        if record is not None:
            trained += await _trained(run.policy, grid)
    if record is not None:
        await record(trained_columns(trained))
    metrics = _mean_metrics(results) | shaping | _batch_metrics(groups, samples, algorithm)
    metrics |= pack_metrics(micro_batches, num_sharing=config.model.sequence_parallel_size)
    metrics["batch/num_sampled_tokens"] = float(sum(_num_to_train(group, algorithm) for group in used))
    metrics["batch/num_trained_tokens"] = float(sum(result["loss/num_tokens"] for result in results))
    metrics["batch/num_micro_batches"] = float(sum(len(grid[0]) for grid in grids))
    # Of the first update, before the batch has moved the policy.
    metrics["batch/first_policy_kl"] = results[0]["loss/log_ratio_mean"] if results else 0.0
    metrics["batch/first_logprob_diff"] = results[0]["loss/rollout_logprob_diff"] if results else 0.0
    metrics["loss/kl_coefficient"] = run.coefficients.kl
    metrics["loss/entropy_coefficient"] = run.coefficients.entropy
    if results:
        run.coefficients.adapt(metrics, algorithm, num_rollouts=len({sample.rollout_id for sample in samples}))
    return metrics


async def call_per_row(workers: WorkerCalls, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Call a method on all ranks, those that share a row with the same arguments.

    Args:
        workers: A multiple of the rows.
        method: Returns the same on ranks that share a row.
        arguments: One tuple per row.

    Returns:
        One result per row.
    """
    size = workers.size // len(arguments)
    results = await workers.call_each(method, [row for row in arguments for _ in range(size)])
    return results[::size]


def samples_of(groups: Sequence[RolloutGroup], config: RunConfig) -> list[TrainingSample]:
    """Return the training samples of scored groups; advantages are relative to the valid rollouts of a group."""
    algorithm = config.algorithm
    samples: list[TrainingSample] = []
    for group in groups:
        advantages = group_advantages(group, algorithm, max_total_tokens=config.rollout.max_total_tokens)
        samples.extend(build_samples(group, advantages, mask_truncated=algorithm.mask_truncated))
    return samples


def _batch_metrics(
    groups: Sequence[RolloutGroup], samples: Sequence[TrainingSample], algorithm: AlgorithmConfig
) -> dict[str, float]:
    """Return the batch's sizes."""
    return {
        "batch/num_samples": float(len(samples)),
        "batch/num_tokens": float(sum(sample.num_tokens for sample in samples)),
        "batch/num_loss_tokens": float(sum(sample.num_loss_tokens for sample in samples)),
        "batch/no_signal_groups": sum(not has_signal(group, algorithm) for group in groups) / len(groups),
        "batch/signal_groups/share": sum(has_signal(group, algorithm) for group in groups) / len(groups),
    }


def _num_to_train(group: RolloutGroup, algorithm: AlgorithmConfig) -> int:
    """Return how many tokens the engines sampled for the loss, by the turns' own counts."""
    return sum(
        turn.num_completion_tokens
        for rollout in group.valid_rollouts
        if not (algorithm.mask_truncated and rollout.outcome is Outcome.TRUNCATED)
        for turn in rollout.turns
    )


def _pack(samples: Sequence[TrainingSample], weights: Sequence[float], config: RunConfig) -> Grid:
    """Return the micro-batches of one optimizer step."""
    return pack(
        samples,
        weights,
        num_ranks=config.data_parallel_size,
        token_budget=config.trainer.micro_batch_tokens,
    )


def _reduce(samples: Sequence[TrainingSample], config: RunConfig) -> ReductionWeights:
    """Return weights and denominator of one optimizer step."""
    return REDUCTIONS[config.algorithm.reduction](
        [sample.num_loss_tokens for sample in samples],
        [sample.rollout_id for sample in samples],
        [sample.group_id for sample in samples],
        max_tokens_divisor=config.algorithm.max_tokens_divisor,
    )


async def _constants(run: Trained, samples: Sequence[TrainingSample], denominator: float) -> StepConstants:
    """Return what the ranks must know of the whole optimizer step."""
    baseline = 0.0
    if run.config.algorithm.policy_loss is PolicyLoss.kto and run.reference is not None:
        pairs = mismatched_samples(samples)
        grid = _pack(pairs, [0.0] * len(pairs), run.config)
        await _attach(run.policy, grid, "old_logprobs")
        await _attach(run.reference, grid, "ref_logprobs")
        baseline = kto_baseline([micro_batch for row in grid for micro_batch in row])
    return StepConstants(
        denominator=denominator,
        kl_coefficient=run.coefficients.kl,
        entropy_coefficient=run.coefficients.entropy,
        kto_baseline=baseline,
    )


async def _trained(workers: WorkerCalls, grid: Grid) -> list[tuple[MicroBatch, TrainedTokens]]:
    """Return the micro-batches of the last optimizer step with what it found; none where it trained nothing."""
    found = await call_per_row(workers, "trained_tokens", [() for _ in grid])
    return [pair for row, tokens in zip(grid, found, strict=True) if tokens for pair in zip(row, tokens, strict=True)]


async def _attach(workers: WorkerCalls, grid: Grid, field: Literal["old_logprobs", "ref_logprobs"]) -> None:
    computed = await call_per_row(workers, "compute_logprobs", [(row,) for row in grid])
    for row, logprobs in zip(grid, computed, strict=True):
        attach_logprobs(row, logprobs, field)


def _mean_metrics(results: Sequence[dict[str, float]]) -> dict[str, float]:
    columns: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for name, value in result.items():
            columns[name].append(value)
    return {name: sum(values) / len(values) for name, values in columns.items()}
