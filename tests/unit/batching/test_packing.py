"""Packing: nothing is lost, nothing depends on it, ranks stay in lock step."""

import random

import pytest
import torch

from skyrl_nat.batching.packing import (
    attach_logprobs,
    build_micro_batch,
    pack,
    split_updates,
    unpack_per_sample,
)
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.types import TrainingSample


def make_sample(name: str, length: int, prompt: int = 1, group: str = "g") -> TrainingSample:
    """Return a sample whose token ids are unique to it."""
    start = int(name) * 1000
    return TrainingSample(
        sample_id=name,
        rollout_id=name,
        group_id=group,
        token_ids=list(range(start, start + length)),
        loss_mask=[i >= prompt for i in range(length)],
        rollout_logprobs=[-1.0 - i for i in range(length)],
        advantages=[float(name) + 0.5 if i >= prompt else 0.0 for i in range(length)],
        oldest_version=0,
    )


def random_samples(seed: int, count: int) -> list[TrainingSample]:
    generator = random.Random(seed)
    return [make_sample(str(i), generator.randint(2, 60)) for i in range(count)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_every_sample_is_packed_once_within_budget_and_ranks_get_equal_counts(num_ranks: int, seed: int) -> None:
    """Row 9, row 65: equal numbers of micro-batches, every sample exactly once."""
    samples = random_samples(seed, 23)
    grid = pack(samples, [1.0] * 23, num_ranks=num_ranks, token_budget=64)
    assert len(grid) == num_ranks
    assert len({len(row) for row in grid}) == 1
    micro_batches = [m for row in grid for m in row]
    ids = sorted((i for m in micro_batches for i in m.sample_ids), key=int)
    assert ids == [s.sample_id for s in samples]
    assert max(m.num_tokens for m in micro_batches) <= 64
    assert sum(m.num_loss_tokens for m in micro_batches) == sum(s.num_loss_tokens for s in samples)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 5, 6, 16])
def test_rows_that_ranks_do_not_divide_are_filled_up_never_left_out(num_ranks: int) -> None:
    """CF-07: two prompts of four samples on 2, 3 or more ranks train all 8 rows, in as many micro-batches each."""
    samples = [make_sample(str(i), 20, group=str(i // 4)) for i in range(8)]
    grid = pack(samples, [1.0] * 8, num_ranks=num_ranks, token_budget=40)
    assert sorted(int(i) for row in grid for m in row for i in m.sample_ids) == list(range(8))
    assert len({len(row) for row in grid}) == 1
    assert all(row for row in grid)
    assert sum(m.num_loss_tokens for row in grid for m in row) == 8 * 19


@pytest.mark.parametrize("seed", range(4))
def test_unpacking_gives_every_sample_its_own_values_back(seed: int) -> None:
    """Row 16: order and identity survive balancing."""
    samples = random_samples(seed, 17)
    weights = [1.0 / (i + 1) for i in range(17)]
    grid = pack(samples, weights, num_ranks=3, token_budget=80)
    for sample, weight in zip(samples, weights, strict=True):
        for row in grid:
            cut = unpack_per_sample(row, [m.token_ids for m in row])
            if sample.sample_id in cut:
                assert cut[sample.sample_id].tolist() == sample.token_ids
                advantages = unpack_per_sample(row, [m.advantages for m in row])
                assert advantages[sample.sample_id].tolist() == sample.advantages
                token_weights = unpack_per_sample(row, [m.token_weights for m in row])
                expected = [weight if kept else 0.0 for kept in sample.loss_mask]
                assert token_weights[sample.sample_id].tolist() == pytest.approx(expected)


def test_a_micro_batch_is_the_concatenation_of_its_samples() -> None:
    """Rows 48 and 51: positions restart, and everything is aligned with its own token."""
    batch = build_micro_batch([make_sample("1", 3), make_sample("2", 2)], [1.0, 0.5])
    assert batch.token_ids.tolist() == [1000, 1001, 1002, 2000, 2001]
    assert batch.position_ids.tolist() == [0, 1, 2, 0, 1]
    assert batch.cu_seqlens.tolist() == [0, 3, 5]
    assert batch.cu_seqlens.dtype is torch.int32
    assert batch.loss_mask.tolist() == [False, True, True, False, True]
    assert batch.token_weights.tolist() == [0.0, 1.0, 1.0, 0.0, 0.5]
    assert batch.rollout_logprobs.tolist() == [0.0, -2.0, -3.0, 0.0, -2.0]
    assert batch.rollout_logprobs.dtype is torch.float32


def test_fillers_have_no_loss_tokens_and_no_samples() -> None:
    """Row 9."""
    grid = pack([make_sample("0", 10)], [1.0], num_ranks=2, token_budget=16)
    (filler,) = grid[1]
    assert filler.sample_ids == ()
    assert filler.num_loss_tokens == 0
    assert float(filler.token_weights.abs().sum()) == 0.0


def test_no_samples_at_all_give_one_filler_per_rank() -> None:
    grid = pack([], [], num_ranks=2, token_budget=16)
    assert [[m.num_loss_tokens for m in row] for row in grid] == [[0], [0]]


def test_packing_is_deterministic_and_balanced() -> None:
    samples = random_samples(7, 40)
    first = pack(samples, [1.0] * 40, num_ranks=4, token_budget=128)
    second = pack(samples, [1.0] * 40, num_ranks=4, token_budget=128)
    assert [[m.sample_ids for m in r] for r in first] == [[m.sample_ids for m in r] for r in second]
    loads = [sum(m.num_tokens for m in row) for row in first]
    assert max(loads) - min(loads) <= max(s.num_tokens for s in samples)


def make_group(group: str, count: int, prompt: int = 40, length: int = 50) -> list[TrainingSample]:
    """Return samples that begin with the same prompt."""
    samples = [make_sample(f"{group}{i}", length, prompt=prompt, group=group) for i in range(count)]
    for sample in samples:
        sample.token_ids[:prompt] = range(int(group) * 10**6, int(group) * 10**6 + prompt)
    return samples


def test_a_group_stays_together_and_its_prompt_counts_once() -> None:
    samples = [s for trio in zip(*(make_group(g, 4) for g in "123"), strict=True) for s in trio]
    (row,) = pack(samples, [1.0] * 12, num_ranks=1, token_budget=80)
    assert [[name[0] for name in m.sample_ids] for m in row] == [["1"] * 4, ["2"] * 4, ["3"] * 4]
    assert [(m.num_tokens, m.num_computed) for m in row] == [(200, 80)] * 3


def test_a_group_is_split_where_the_budget_or_another_rank_asks_for_it() -> None:
    samples = make_group("1", 4)
    (row,) = pack(samples, [1.0] * 4, num_ranks=1, token_budget=60)
    assert [m.num_computed for m in row] == [60, 60]
    grid = pack(samples, [1.0] * 4, num_ranks=4, token_budget=1000)
    assert [len(m.sample_ids) for r in grid for m in r] == [1, 1, 1, 1]


def test_a_sample_over_the_budget_is_refused_with_its_id() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.micro_batch_tokens.*33 tokens, 4"):
        pack([make_sample("4", 33)], [1.0], num_ranks=1, token_budget=32)


def test_a_wrong_number_of_weights_is_refused() -> None:
    with pytest.raises(DataError, match="one entry per sample"):
        pack([make_sample("0", 4)], [], num_ranks=1, token_budget=32)


def test_logprobs_are_attached_only_to_the_grid_they_belong_to() -> None:
    (row,) = pack([make_sample("0", 5), make_sample("1", 4)], [1, 1], num_ranks=1, token_budget=5)
    values = [torch.zeros(5), torch.ones(4)]
    attach_logprobs(row, values, "old_logprobs")
    assert row[1].old_logprobs is values[1]
    assert row[1].ref_logprobs is None
    with pytest.raises(DataError, match="ref_logprobs"):
        attach_logprobs(row, [torch.zeros(5), torch.ones(3)], "ref_logprobs")


def test_updates_keep_groups_whole_and_lose_nothing() -> None:
    """Row 16: a group is never split between optimizer steps."""
    samples = [make_sample(str(i), 3, group=f"g{i % 5}") for i in range(20)]
    updates = split_updates(samples, 2)
    assert [sorted({s.group_id for s in u}) for u in updates] == [["g0", "g1"], ["g2", "g3", "g4"]]
    assert sorted(int(s.sample_id) for u in updates for s in u) == list(range(20))
    assert len(split_updates(samples, 9)) == 5
    assert split_updates([], 3) == []


def test_rollout_logprobs_keep_their_fp32_value() -> None:
    """Row 37: in bf16 -12.34 would become -12.3125, a ratio of 1.028."""
    sample = make_sample("1", 2)
    sample.rollout_logprobs[1] = -12.34
    batch = build_micro_batch([sample], [1.0])
    assert float(batch.rollout_logprobs[1]) == pytest.approx(-12.34, abs=1e-6)


def test_the_loss_mask_is_the_samples_own_and_not_where_attention_is() -> None:
    """Row 50: a prompt of three tokens and an observation between two turns stay outside."""
    sample = make_sample("1", 8, prompt=3)
    sample.loss_mask[5] = False
    batch = build_micro_batch([make_sample("2", 3), sample], [0.5, 2.0])
    assert [int(bit) for bit in batch.loss_mask] == [0, 1, 1, 0, 0, 0, 1, 1, 0, 1, 1]
    assert batch.token_weights.tolist() == [0, 0.5, 0.5, 0, 0, 0, 2, 2, 0, 2, 2]
    assert batch.num_loss_tokens == 6
