"""Ranks that share micro-batches train like one rank that has them to itself."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_ranks import make_worker
from sequence_ranks import CASES, Layout, make_rank, play, run_sequence_ranks
from tiny_model import make_tiny_model

from skyrl_nat.batching.packing import build_micro_batch, filler_micro_batch
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.attention import PackedRows
from skyrl_nat.workers.sequence_parallel import SequenceRanks

pytestmark = pytest.mark.usefixtures("leave_group")
Found = dict[str, Any]


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return the model with a number of query heads and two key/value heads."""
    root = tmp_path_factory.mktemp("models")
    return cache(lambda heads: make_tiny_model(root / str(heads), hidden_size=8 * heads, num_heads=heads))


@pytest.fixture(scope="module")
def one_rank(model_of: Callable[[int], Path]) -> Callable[[int], Found]:
    """Return what one rank finds on that model."""
    return cache(lambda heads: {n: play(make_rank(model_of(heads), case, 1), case) for n, case in CASES.items()})


@pytest.mark.parametrize(
    ("num_ranks", "size", "heads", "num_replicas"),
    [(2, 2, 4, 1), (4, 2, 4, 2), (4, 4, 4, 1), (3, 3, 6, 1)],
    ids=["all", "two_rows_and_two_copies", "more_ranks_than_key_heads", "key_heads_that_do_not_divide"],
)
def test_ranks_that_share_micro_batches_train_like_one(
    num_ranks: int,
    size: int,
    heads: int,
    num_replicas: int,
    model_of: Callable[[int], Path],
    one_rank: Callable[[int], Found],
    tmp_path: Path,
) -> None:
    """Row 2: log-probs, loss, gradient norm, every metric of two steps, the weights after them, and what it saves."""
    layout = Layout(model=model_of(heads), num_ranks=num_ranks, size=size, num_replicas=num_replicas)
    ranks = run_sequence_ranks(layout, CASES, tmp_path)
    for name, expected in one_rank(heads).items():
        logprobs: dict[str, torch.Tensor] = {}
        for found in (rank[name] for rank in ranks):
            assert found["metrics"] == ranks[0][name]["metrics"], name
            for metrics, alone in zip(found["metrics"], expected["metrics"], strict=True):
                assert metrics == pytest.approx(alone, rel=1e-5, abs=1e-6), name
            for key, tensor in expected["weights"].items():
                # AdamW divides gradients by their own size, so that where they are nearly 0 the order of sums is seen:
                # 1.4e-5 on one processor, less on another.
                assert (found["weights"][key] - tensor).abs().max() < 3e-5 * tensor.abs().max(), (name, key)
            logprobs |= found["logprobs"]
        assert logprobs.keys() == expected["logprobs"].keys()
        for key, values in expected["logprobs"].items():
            assert (logprobs[key] - values).abs().max() < 1e-5, (name, key)
    for rank in ranks:
        alone, shared = rank["saved_bytes"]
        assert 0.9 / size < shared / alone < 1.3 / size, (alone, shared)


def test_the_cases_hold_what_is_hard(one_rank: Callable[[int], Found]) -> None:
    """Equal beginnings, lengths that no number of ranks divides, and clipped sequences."""
    found = one_rank(4)
    assert sum(found["grpo"]["num_computed"]) < sum(found["grpo"]["num_tokens"])
    for size in (2, 3, 4):
        assert any(number % size for case in found.values() for number in case["num_computed"])
    assert found["gspo"]["metrics"][1]["loss/clip_fraction"] > 0
    assert found["kl_and_entropy"]["metrics"][0]["loss/kl"] > 0


def test_slices_are_all_tokens_in_order_and_the_rest_is_a_row_of_its_own() -> None:
    """Eighteen computed tokens of 34 on four ranks: two more fill the last slice."""
    samples = [
        TrainingSample(
            sample_id=str(own),
            rollout_id=str(own),
            group_id="0",
            token_ids=[*range(16), own],
            loss_mask=[False] * 16 + [True],
            rollout_logprobs=[0.0] * 17,
            advantages=[0.0] * 17,
            oldest_version=0,
        )
        for own in (20, 21)
    ]
    batch = build_micro_batch(samples, [1.0, 1.0])
    ranks = [SequenceRanks(size=4, rank=rank) for rank in range(4)]
    assert [r.slice_of(batch.computed).tolist() for r in ranks] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
        [10, 11, 12, 13, 14],
        [15, 16, 33, 0, 0],
    ]
    rows = PackedRows.of(batch, ranks[0])
    assert (rows.query_borders, rows.key_borders) == ((0, 17, 18, 20), (0, 17, 34, 36))
    assert rows.source is not None
    assert rows.source.tolist() == [*range(17), *range(16), 17, 18, 19]
    filler = filler_micro_batch()
    assert [r.slice_of(filler.computed).tolist() for r in ranks] == [[0], [1], [0], [0]]
    assert PackedRows.of(filler, ranks[0]).cu_keys.tolist() == [0, 2, 4]


def test_query_heads_that_do_not_split_evenly_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"sequence_parallel_size must divide the 4 query heads .* got 3\."):
        make_worker(folder, model={"sequence_parallel_size": 3})
