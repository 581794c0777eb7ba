"""Samples onto ranks and into micro-batches, and back. Legend: N packed tokens of one micro-batch.

Loss and gradient do not depend on anything decided here: weights and denominator are those of the step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.prefixes import plan_computation, shared_tokens
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.types import TrainingSample

ATTENTION_SCALE_TOKENS = 8192
"""Sequence length at which attention costs as much as all the rest of a small model."""


def pack(
    samples: Sequence[TrainingSample],
    token_weights: Sequence[float],
    *,
    num_ranks: int,
    token_budget: int,
) -> list[list[MicroBatch]]:
    """Return the grid `[rank][k]` of micro-batches that holds every sample once.

    Samples of a group that begin alike stay together, so that their beginning is computed once; such
    bundles go to the least loaded rank, costliest first, and on each rank first-fit into micro-batches,
    which are then ordered by cost, since ranks run them in lock step. Every rank gets the same number of
    them, fillers of weight 0 included, so that collectives match. Equal input gives an equal grid.

    Args:
        samples: All samples of one optimizer step.
        token_weights: One per sample, from `algorithms.reduction`.
        num_ranks: Data-parallel ranks, >= 1; ranks that share micro-batches count as one.
        token_budget: Computed tokens of one micro-batch at most.

    Raises:
        ConfigError: One sample alone exceeds the budget.
        DataError: The number of weights is wrong.
    """
    if len(token_weights) != len(samples):
        raise DataError(
            f"token_weights must have one entry per sample ({len(samples)}), got "
            f"{len(token_weights)}. Take them from algorithms.reduction for the same samples."
        )
    for sample in samples:
        if sample.num_tokens > token_budget:
            raise ConfigError(
                f"trainer.micro_batch_tokens must be >= the longest sample ({sample.num_tokens} "
                f"tokens, {sample.sample_id}), got {token_budget}. Raise it "
                "or lower rollout.max_total_tokens."
            )
    loads = [0.0] * num_ranks
    per_rank: list[list[_Bundle]] = [[] for _ in range(num_ranks)]
    for bundle in sorted(_bundles(samples, num_ranks, token_budget), key=lambda b: (-b.cost, b.indices)):
        rank = min(range(num_ranks), key=lambda r: (loads[r], r))
        loads[rank] += bundle.cost
        per_rank[rank].append(bundle)
    grid_indices = [_first_fit(bundles, token_budget) for bundles in per_rank]
    length = max(1, *(len(row) for row in grid_indices))
    return [
        [build_micro_batch([samples[i] for i in b], [token_weights[i] for i in b]) for b in row]
        + [filler_micro_batch() for _ in range(length - len(row))]
        for row in grid_indices
    ]


def build_micro_batch(samples: Sequence[TrainingSample], token_weights: Sequence[float]) -> MicroBatch:
    """Concatenate samples into one micro-batch, in order.

    Args:
        samples: At least one.
        token_weights: One per sample.
    """
    lengths = [s.num_tokens for s in samples]
    mask = _joined([s.loss_mask for s in samples], np.bool_)
    weights = torch.as_tensor(np.repeat(np.array(token_weights, dtype=np.float32), lengths))
    computed, source, cu_computed = plan_computation([s.token_ids for s in samples])
    return MicroBatch(
        token_ids=_joined([s.token_ids for s in samples], np.int64),
        position_ids=torch.cat([torch.arange(n, dtype=torch.int64) for n in lengths]),
        cu_seqlens=torch.tensor([0, *accumulate(lengths)], dtype=torch.int32),
        loss_mask=mask,
        advantages=_joined([s.advantages for s in samples], np.float32),
        token_weights=torch.where(mask, weights, 0.0),
        rollout_logprobs=torch.where(mask, _joined([s.rollout_logprobs for s in samples], np.float32), 0.0),
        computed=computed,
        source=source,
        cu_computed=cu_computed,
        selected=torch.zeros_like(mask),
        sample_ids=tuple(s.sample_id for s in samples),
    )


def _joined(columns: Sequence[Sequence[float]], dtype: type[np.generic]) -> Tensor:
    return torch.as_tensor(np.fromiter(chain.from_iterable(columns), dtype, sum(map(len, columns))))


def filler_micro_batch() -> MicroBatch:
    """Return two tokens outside the loss: a rank's part in the collectives when it has no work left."""
    return MicroBatch(
        token_ids=torch.zeros(2, dtype=torch.int64),
        position_ids=torch.arange(2, dtype=torch.int64),
        cu_seqlens=torch.tensor([0, 2], dtype=torch.int32),
        loss_mask=torch.zeros(2, dtype=torch.bool),
        advantages=torch.zeros(2),
        token_weights=torch.zeros(2),
        rollout_logprobs=torch.zeros(2),
        computed=torch.arange(2, dtype=torch.int64),
        source=torch.arange(2, dtype=torch.int64),
        cu_computed=torch.tensor([0, 2], dtype=torch.int32),
        selected=torch.zeros(2, dtype=torch.bool),
    )


def attach_logprobs(
    micro_batches: Sequence[MicroBatch],
    logprobs: Sequence[Tensor],
    field: Literal["old_logprobs", "ref_logprobs"],
) -> None:
    """Hang log-probs that a worker computed for these micro-batches onto them, in place.

    Args:
        micro_batches: One rank's row of the grid.
        logprobs: One `[N]` tensor per micro-batch, in the same order.
        field: Which field takes them.

    Raises:
        DataError: Count or lengths differ.
    """
    found = [tuple(t.shape) for t in logprobs]
    expected = [(m.num_tokens,) for m in micro_batches]
    if found != expected:
        raise DataError(
            f"{field} must have the shapes of their micro-batches {expected}, got {found}. Use the grid "
            "that the log-probs were computed on."
        )
    for micro_batch, values in zip(micro_batches, logprobs, strict=True):
        setattr(micro_batch, field, values)


def unpack_per_sample(micro_batches: Sequence[MicroBatch], values: Sequence[Tensor]) -> dict[str, Tensor]:
    """Cut `[N]` tensors per micro-batch into one tensor per sample id.

    Args:
        micro_batches: Any micro-batches; fillers are left out.
        values: One `[N]` tensor per micro-batch.
    """
    cut: dict[str, Tensor] = {}
    for micro_batch, value in zip(micro_batches, values, strict=True):
        if micro_batch.sample_ids:
            borders = [int(border) for border in micro_batch.cu_seqlens]
            for name, (start, end) in zip(micro_batch.sample_ids, pairwise(borders), strict=True):
                cut[name] = value[start:end]
    return cut


def split_updates(samples: Sequence[TrainingSample], updates_per_batch: int) -> list[list[TrainingSample]]:
    """Split a batch into the samples of its optimizer steps; groups stay whole and in order.

    Args:
        samples: All samples of the batch.
        updates_per_batch: Optimizer steps wanted, >= 1.

    Returns:
        At most `updates_per_batch` lists, none of them empty, whose numbers of groups differ by 1 at most.
    """
    groups: dict[str, list[TrainingSample]] = {}
    for sample in samples:
        groups.setdefault(sample.group_id, []).append(sample)
    ordered = list(groups.values())
    count = min(updates_per_batch, len(ordered))
    borders = [len(ordered) * i // count for i in range(count + 1)] if count else [0]
    return [[sample for group in ordered[start:end] for sample in group] for start, end in pairwise(borders)]


@dataclass(slots=True)
class _Bundle:
    """Samples that stay together."""

    indices: list[int] = field(default_factory=list[int])
    num_computed: int = 0
    cost: float = 0.0


def _bundles(samples: Sequence[TrainingSample], num_ranks: int, token_budget: int) -> list[_Bundle]:
    """Bundle samples of a group that share a beginning, up to the budget and to a rank's fair share of the cost."""
    fair_share = sum(_cost(s, s.num_tokens) for s in samples) / num_ranks
    bundles: list[_Bundle] = []
    last_of_group: dict[str, _Bundle] = {}
    for index, sample in enumerate(samples):
        bundle = last_of_group.get(sample.group_id, _Bundle())
        last = bundle.indices[-1:]
        shared = shared_tokens(sample.token_ids, samples[last[0]].token_ids) if last else 0
        own = sample.num_tokens - shared
        is_over = bundle.num_computed + own > token_budget or bundle.cost + _cost(sample, own) > fair_share
        if not shared or is_over:
            own = sample.num_tokens
            bundle = last_of_group[sample.group_id] = _Bundle()
            bundles.append(bundle)
        bundle.indices.append(index)
        bundle.num_computed += own
        bundle.cost += _cost(sample, own)
    return bundles


def _cost(sample: TrainingSample, num_computed: int) -> float:
    """Return the relative cost of training on the last tokens of one sample: linear layers and attention."""
    return num_computed * (1.0 + sample.num_tokens / ATTENTION_SCALE_TOKENS)


def _first_fit(bundles: Sequence[_Bundle], token_budget: int) -> list[list[int]]:
    """Put bundles, costliest first, each into the first bin with room; return the bins' samples, costliest first."""
    bins: list[_Bundle] = []
    for bundle in bundles:
        place = next((b for b in bins if b.num_computed + bundle.num_computed <= token_budget), None)
        if place is None:
            place = _Bundle()
            bins.append(place)
        place.indices.extend(bundle.indices)
        place.num_computed += bundle.num_computed
        place.cost += bundle.cost
    return [b.indices for b in sorted(bins, key=lambda b: (-b.cost, b.indices))]
