"""Packed attention against a naive loop."""

import math
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, MistralConfig, Qwen2Config

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.errors import ConfigError
from skyrl_nat.workers import attention
from skyrl_nat.workers.attention import PackedRows, check_supported, kernel_name, packed_attention

BORDERS = (0, 3, 4, 9)


def make_rows(query_borders: tuple[int, ...], key_borders: tuple[int, ...], source: list[int]) -> PackedRows:
    """Return the rows that `PackedRows.of` makes of a micro-batch with these borders."""
    empty = torch.zeros(0)
    batch = MicroBatch(
        token_ids=torch.zeros(key_borders[-1]),
        position_ids=empty,
        cu_seqlens=torch.tensor(key_borders, dtype=torch.int32),
        loss_mask=empty,
        advantages=empty,
        token_weights=empty,
        rollout_logprobs=empty,
        computed=torch.zeros(query_borders[-1]),
        source=torch.tensor(source),
        cu_computed=torch.tensor(query_borders, dtype=torch.int32),
        selected=empty,
    )
    return PackedRows.of(batch)


ROWS = make_rows(BORDERS, BORDERS, list(range(9)))


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = [(1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8)]
    query, key, value = (torch.randn(s, generator=generator) for s in shape)
    return query, key, value


def test_every_token_sees_its_own_sequence_up_to_itself() -> None:
    """Rows 48 and 49, with fewer key/value heads than query heads."""
    query, key, value = inputs()
    output, weights = packed_attention(nn.Identity(), query, key, value, None, rows=ROWS)
    assert weights is None
    for head in range(4):
        shared = head // 2
        for start, end in pairwise(BORDERS):
            for i in range(start, end):
                seen = slice(start, i + 1)
                scores = key[0, shared, seen] @ query[0, head, i] / math.sqrt(8)
                expected = scores.softmax(0) @ value[0, shared, seen]
                assert torch.allclose(output[0, i, head], expected, atol=1e-5)


def test_a_neighbour_changes_no_bit() -> None:
    """Row 49."""
    query, key, value = inputs()
    before, _ = packed_attention(nn.Identity(), query, key, value, None, rows=ROWS)
    key[:, :, :3] += 10
    value[:, :, :3] = float("nan")
    after, _ = packed_attention(nn.Identity(), query, key, value, None, rows=ROWS)
    assert torch.equal(before[:, 3:], after[:, 3:])


def test_a_shared_beginning_gives_outputs_and_gradients_of_two_whole_sequences() -> None:
    """Tokens 0 to 2 begin both sequences; the second has two of its own."""
    whole = [t[:, :, [0, 1, 2, 3, 0, 1, 2, 4, 5]] for t in inputs()]
    short = [t[:, :, :6].clone().requires_grad_() for t in inputs()]
    for t in whole:
        t.requires_grad_()
    expected, _ = packed_attention(nn.Identity(), *whole, None, rows=make_rows((0, 4, 9), (0, 4, 9), list(range(9))))
    rows = make_rows((0, 4, 6), (0, 4, 9), [0, 1, 2, 3, 0, 1, 2, 4, 5])
    found, _ = packed_attention(nn.Identity(), *short, None, rows=rows)
    assert torch.allclose(found, expected[:, [0, 1, 2, 3, 7, 8]], atol=1e-6)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1))
    (found * weights).sum().backward()
    (expected[:, [0, 1, 2, 3, 7, 8]] * weights).sum().backward()
    for mine, theirs in zip(short, whole, strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        both = theirs.grad[:, :, :3] + theirs.grad[:, :, 4:7]
        combined = torch.cat([both, theirs.grad[:, :, [3, 7, 8]]], dim=2)
        assert torch.allclose(mine.grad, combined, atol=1e-6)


def test_missing_borders_or_a_mask_are_refused() -> None:
    query, key, value = inputs()
    with pytest.raises(ConfigError, match="rows' borders"):
        packed_attention(nn.Identity(), query, key, value, None)
    with pytest.raises(ConfigError, match="without a mask"):
        packed_attention(nn.Identity(), query, key, value, torch.ones(1), rows=ROWS)


def test_models_with_windows_are_refused_and_plain_ones_are_not() -> None:
    check_supported(LlamaConfig())
    check_supported(Qwen2Config(use_sliding_window=False))
    with pytest.raises(ConfigError, match="full causal attention"):
        check_supported(MistralConfig(sliding_window=128))
    with pytest.raises(ConfigError, match="full causal attention"):
        check_supported(Qwen2Config(use_sliding_window=True, max_window_layers=1))


class FlashAttn(ModuleType):
    """Stands in for the package flash-attn: computes in a loop over borders what its kernel promises."""

    def __init__(self, version: str = "2.8.3") -> None:
        super().__init__("flash_attn")
        self.__version__ = version
        self.calls: list[dict[str, Any]] = []

    def flash_attn_varlen_func(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **given: Any) -> torch.Tensor:
        self.calls.append({"q": q, "k": k, "v": v, **given})
        scale = given["softmax_scale"] or q.shape[-1] ** -0.5
        outputs = []
        for (q0, q1), (k0, k1) in zip(
            pairwise(given["cu_seqlens_q"].tolist()), pairwise(given["cu_seqlens_k"].tolist()), strict=True
        ):
            for query in range(q0, q1):
                # Bottom right: the last query sees the last key.
                seen = slice(k0, k1 - (q1 - 1 - query))
                keys, values = (t[seen].repeat_interleave(q.shape[1] // t.shape[1], dim=1) for t in (k, v))
                scores = torch.einsum("hd,khd->hk", q[query], keys) * scale
                outputs.append(torch.einsum("hk,khd->hd", scores.softmax(-1), values))
        return torch.stack(outputs)


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[ModuleType | None], None]]:
    """Put a module in the place of flash-attn, or None for a machine without it."""

    def put(module: ModuleType | None) -> None:
        monkeypatch.setitem(sys.modules, "flash_attn", module)  # type: ignore[arg-type]  # None: it cannot be imported
        attention._flash_attn.cache_clear()

    yield put
    attention._flash_attn.cache_clear()


@pytest.mark.parametrize("scaling", [None, 0.3])
def test_flash_attn_gets_the_borders_of_all_sequences_and_gives_what_a_call_of_each_gives(
    install: Callable[[ModuleType | None], None], monkeypatch: pytest.MonkeyPatch, scaling: float | None
) -> None:
    """Two sequences with an equal beginning of 3 tokens; the second computes its last two alone."""
    flash = FlashAttn()
    install(flash)
    rows = make_rows((0, 4, 6), (0, 4, 9), [0, 1, 2, 3, 0, 1, 2, 4, 5])
    short = [t[:, :, :6].clone().requires_grad_() for t in inputs()]
    expected, _ = packed_attention(nn.Identity(), *short, None, rows=rows, scaling=scaling)
    expected_gradients = torch.autograd.grad(expected.square().sum(), short)
    assert flash.calls == []
    monkeypatch.setattr(attention, "_kernel", lambda device, dtype: attention._flash)
    found, _ = packed_attention(nn.Identity(), *short, None, rows=rows, scaling=scaling)
    (call,) = flash.calls
    assert [tuple(call[name].shape) for name in "qkv"] == [(6, 4, 8), (9, 2, 8), (9, 2, 8)]
    assert all(call[name].is_contiguous() for name in "qkv")
    assert call["cu_seqlens_q"].tolist() == [0, 4, 6]
    assert call["cu_seqlens_k"].tolist() == [0, 4, 9]
    assert (call["cu_seqlens_q"].dtype, call["cu_seqlens_k"].dtype) == (torch.int32, torch.int32)
    assert (call["max_seqlen_q"], call["max_seqlen_k"]) == (4, 5)
    assert call["causal"] is True
    assert call["softmax_scale"] == scaling
    assert torch.allclose(found, expected, atol=1e-5)
    for mine, theirs in zip(torch.autograd.grad(found.square().sum(), short), expected_gradients, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("device", "dtype", "module", "expected"),
    [
        ("cuda", torch.bfloat16, FlashAttn(), "flash-attn 2.8.3"),
        ("cuda", torch.float16, FlashAttn("2.10.0.post2"), "flash-attn 2.10.0.post2"),
        ("cuda", torch.bfloat16, FlashAttn("2.0.9"), "torch varlen"),
        ("cuda", torch.bfloat16, None, "torch varlen"),
        ("cuda", torch.float32, FlashAttn(), "sdpa"),
        ("cpu", torch.bfloat16, FlashAttn(), "sdpa"),
    ],
)
def test_flash_attn_is_used_where_it_is_installed_and_can_compute(
    install: Callable[[ModuleType | None], None],
    device: str,
    dtype: torch.dtype,
    module: ModuleType | None,
    expected: str,
) -> None:
    install(module)
    assert kernel_name(device, dtype) == expected
