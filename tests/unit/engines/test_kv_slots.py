"""The KV rows against plain attention over whole sequences."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from skyrl_nat.engines.kv_slots import KvShape, KvSlots

SHAPE = KvShape(num_layers=1, num_kv_heads=2, head_dim=4, dtype=torch.float32, device="cpu")
ROW_BYTES = SHAPE.token_bytes * 128
NUM_HEADS = 6


def make_slots(max_rows: int = 4, max_bytes: int = 1 << 30) -> KvSlots:
    return KvSlots(SHAPE, max_rows, max_bytes)


def projections(tokens: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Made-up query, key and value of each token, a function of token and position."""
    t = torch.tensor(tokens, dtype=torch.float32)[:, None] + torch.arange(len(tokens))[:, None] / 7
    grid = torch.arange(NUM_HEADS * 4, dtype=torch.float32)
    query = torch.sin(t * 0.3 + grid).view(1, -1, NUM_HEADS, 4).transpose(1, 2)
    key = torch.cos(t * 0.7 + grid[:8]).view(1, -1, 2, 4).transpose(1, 2)
    value = torch.sin(t * 1.1 - grid[:8]).view(1, -1, 2, 4).transpose(1, 2)
    return query, key, value


def plain(tokens: list[int]) -> Tensor:
    query, key, value = projections(tokens)
    return F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)


def prefill(slots: KvSlots, row: int, start: int, tokens: list[int]) -> Tensor:
    query, key, value = (x[:, :, start:] for x in projections(tokens))
    slots.begin_prefill(row, start, tokens)
    return slots.attend(0, query, key, value, 0.5)


def decode(slots: KvSlots, sequences: list[list[int]]) -> Tensor:
    """Feed the last token of each sequence."""
    slots.begin_decode([tokens[-1] for tokens in sequences])
    parts = [[x[:, :, -1:] for x in projections(tokens)] for tokens in sequences]
    query, key, value = (torch.cat(list(column)) for column in zip(*parts, strict=True))
    return slots.attend(0, query, key, value, 0.5)


def admit(slots: KvSlots, tokens: list[int], max_tokens: int = 100) -> tuple[int, int]:
    row, start = slots.admit(tokens, max_tokens, may_reuse=True)
    prefill(slots, row, start, tokens)
    return row, start


def test_prefill_is_causal_attention_over_the_prompt() -> None:
    slots = make_slots()
    row, start = slots.admit([3, 1, 4, 1, 5], 100, may_reuse=True)
    assert (row, start) == (0, 0)
    torch.testing.assert_close(prefill(slots, 0, 0, [3, 1, 4, 1, 5]), plain([3, 1, 4, 1, 5]))


def test_rows_of_different_lengths_decode_like_each_alone() -> None:
    slots = make_slots()
    sequences = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3]]
    for tokens in sequences:
        admit(slots, tokens)
    for new in (7, 8):
        sequences = [[*tokens, new + i] for i, tokens in enumerate(sequences)]
        out = decode(slots, sequences)
        for row, tokens in enumerate(sequences):
            torch.testing.assert_close(out[row], plain(tokens)[0, :, -1:])


def test_memory_that_was_never_written_counts_nothing() -> None:
    torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN
    try:
        assert torch.empty(1).isnan()
        test_rows_of_different_lengths_decode_like_each_alone()
    finally:
        torch.use_deterministic_algorithms(False)


def test_the_last_row_moves_into_the_place_of_a_finished_one() -> None:
    slots = make_slots()
    for tokens in ([1, 2, 3], [4, 5], [6, 7, 8, 9]):
        admit(slots, tokens)
    slots.release(0)
    sequences = [[6, 7, 8, 9, 1], [4, 5, 2]]
    out = decode(slots, sequences)
    for row, tokens in enumerate(sequences):
        torch.testing.assert_close(out[row], plain(tokens)[0, :, -1:])


def test_the_next_turn_of_a_finished_sequence_reuses_its_kv() -> None:
    slots = make_slots()
    admit(slots, [1, 2, 3, 4])
    admit(slots, [9, 9])
    slots.release(0)
    row, start = slots.admit([1, 2, 3, 4, 5, 6], 100, may_reuse=True)
    assert (row, start) == (1, 4)
    out = prefill(slots, row, start, [1, 2, 3, 4, 5, 6])
    torch.testing.assert_close(out, plain([1, 2, 3, 4, 5, 6])[:, :, 4:])


def test_a_prefix_of_a_running_sequence_is_copied_and_both_go_on() -> None:
    slots = make_slots()
    admit(slots, [1, 2, 3, 4])
    row, start = admit(slots, [1, 2, 3, 8])
    assert (row, start) == (1, 3)
    out = decode(slots, [[1, 2, 3, 4, 5], [1, 2, 3, 8, 6]])
    torch.testing.assert_close(out[0], plain([1, 2, 3, 4, 5])[0, :, -1:])
    torch.testing.assert_close(out[1], plain([1, 2, 3, 8, 6])[0, :, -1:])


def test_an_equal_prompt_still_computes_its_last_token() -> None:
    slots = make_slots()
    admit(slots, [1, 2, 3])
    assert slots.admit([1, 2, 3], 100, may_reuse=True) == (1, 2)


def test_a_fork_has_its_own_copy() -> None:
    slots = make_slots()
    admit(slots, [1, 2, 3])
    assert slots.fork(0, 100) == 1
    out = decode(slots, [[1, 2, 3, 4], [1, 2, 3, 5]])
    torch.testing.assert_close(out[0], plain([1, 2, 3, 4])[0, :, -1:])
    torch.testing.assert_close(out[1], plain([1, 2, 3, 5])[0, :, -1:])


def test_growing_keeps_what_active_rows_hold() -> None:
    slots = make_slots()
    admit(slots, [1, 2, 3])
    admit(slots, [4, 5], max_tokens=1000)
    out = decode(slots, [[1, 2, 3, 7], [4, 5, 6]])
    torch.testing.assert_close(out[0], plain([1, 2, 3, 7])[0, :, -1:])


def test_memory_and_rows_limit_how_many_sequences_run() -> None:
    slots = make_slots(max_rows=4, max_bytes=2 * ROW_BYTES)
    assert slots.can_admit(5000)  # one always may
    admit(slots, [1, 2])
    assert slots.can_admit(128)
    assert not slots.can_admit(129)
    admit(slots, [3, 4])
    assert not slots.can_admit(10)

    roomy = make_slots(max_rows=2)
    for tokens in ([1, 2], [3, 4]):
        assert roomy.can_admit(10)
        admit(roomy, tokens)
    assert not roomy.can_admit(10)


def test_nothing_is_reused_after_clear() -> None:
    """Row 59."""
    slots = make_slots()
    admit(slots, [1, 2, 3])
    slots.clear()
    assert slots.num_active == 0
    assert slots.admit([1, 2, 3, 4], 100, may_reuse=True) == (0, 0)


@pytest.mark.parametrize("shared", [0, 1, 5, 31])
def test_the_longest_common_prefix_is_found(shared: int) -> None:
    slots = make_slots()
    held = list(range(100, 132))
    admit(slots, held)
    slots.release(0)
    _, start = slots.admit(held[:shared] + [1] * 10, 100, may_reuse=True)
    assert start == shared
