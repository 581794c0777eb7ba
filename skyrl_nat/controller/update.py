"""One batch of scored groups into optimizer steps."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

import torch

from skyrl_nat.algorithms.advantages import ADVANTAGES
from skyrl_nat.algorithms.reduction import REDUCTIONS
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import attach_logprobs, pack, split_updates
from skyrl_nat.batching.samples import build_samples
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.config.run import RunConfig
from skyrl_nat.types import RolloutGroup, TrainingSample
from skyrl_nat.weight_sync.base import WorkerCalls


class Trained(Protocol):
    """What an update needs of a run."""

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
        """The reference ranks, if a KL term asks for them."""
        ...


async def update_policy(run: Trained, groups: Sequence[RolloutGroup]) -> dict[str, float]:
    """Train on a batch: advantages, samples, packing, then one optimizer step per part.

    Returns:
        Metrics of the optimizer steps, averaged where there are several.
    """
    config = run.config
    samples = samples_of(groups, config.algorithm)
    parts = split_updates(samples, config.trainer.updates_per_batch)
    grids = [_pack(part, config) for part in parts]
    if len(grids) > 1 and config.algorithm.needs_old_logprobs:
        # With a single update the current log-probs are the old ones: the ratio is exactly 1.
        for grid in grids:
            await _attach(run.policy, [row for row, _ in grid], "old_logprobs")
    if run.reference is not None:
        for grid in grids:
            await _attach(run.reference, [row for row, _ in grid], "ref_logprobs")
    results = []
    for grid in grids:
        per_rank = await run.policy.call_each("train", grid)
        results.append(per_rank[0])
    metrics = _mean_metrics(results)
    metrics["batch/num_samples"] = float(len(samples))
    metrics["batch/num_tokens"] = float(sum(sample.num_tokens for sample in samples))
    metrics["batch/num_loss_tokens"] = float(sum(sample.num_loss_tokens for sample in samples))
    metrics["batch/num_micro_batches"] = float(sum(len(grid[0][0]) for grid in grids))
    return metrics


def samples_of(groups: Sequence[RolloutGroup], algorithm: AlgorithmConfig) -> list[TrainingSample]:
    """Return the training samples of scored groups; advantages are relative to the valid rollouts of a group."""
    estimate = ADVANTAGES[algorithm.advantage]
    samples: list[TrainingSample] = []
    for group in groups:
        rewards = torch.tensor(
            [rollout.reward.total for rollout in group.valid_rollouts if rollout.reward is not None],
            dtype=torch.float64,
        )
        advantages = estimate(rewards).tolist()
        samples.extend(build_samples(group, advantages, mask_truncated=algorithm.mask_truncated))
    return samples


def _pack(samples: Sequence[TrainingSample], config: RunConfig) -> list[tuple[list[MicroBatch], float]]:
    """Return per rank its micro-batches and the denominator of the whole optimizer step."""
    weights, denominator = REDUCTIONS[config.algorithm.reduction](
        [sample.num_loss_tokens for sample in samples],
        [sample.group_id for sample in samples],
        max_tokens_divisor=config.algorithm.max_tokens_divisor,
    )
    grid = pack(
        samples,
        weights,
        num_ranks=config.cluster.num_policy_ranks,
        token_budget=config.trainer.micro_batch_tokens,
    )
    return [(row, denominator) for row in grid]


async def _attach(workers: WorkerCalls, rows: Sequence[list[MicroBatch]], field: str) -> None:
    computed = await workers.call_each("compute_logprobs", [(row,) for row in rows])
    for row, logprobs in zip(rows, computed, strict=True):
        attach_logprobs(row, logprobs, field)  # pyright: ignore[reportArgumentType]


def _mean_metrics(results: Sequence[dict[str, float]]) -> dict[str, float]:
    columns: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for name, value in result.items():
            columns[name].append(value)
    return {name: sum(values) / len(values) for name, values in columns.items()}
