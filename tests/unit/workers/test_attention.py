"""Packed attention against a naive loop."""

import math
from itertools import pairwise

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, MistralConfig, Qwen2Config

from skyrl_nat.errors import ConfigError
from skyrl_nat.workers.attention import check_supported, packed_attention

BORDERS = (0, 3, 4, 9)


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shape = [(1, 4, 9, 8), (1, 2, 9, 8), (1, 2, 9, 8)]
    query, key, value = (torch.randn(s, generator=generator) for s in shape)
    return query, key, value


def test_every_token_sees_its_own_sequence_up_to_itself() -> None:
    """Rows 48 and 49, with fewer key/value heads than query heads."""
    query, key, value = inputs()
    output, weights = packed_attention(nn.Identity(), query, key, value, None, borders=BORDERS)
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
    before, _ = packed_attention(nn.Identity(), query, key, value, None, borders=BORDERS)
    key[:, :, :3] += 10
    value[:, :, :3] = float("nan")
    after, _ = packed_attention(nn.Identity(), query, key, value, None, borders=BORDERS)
    assert torch.equal(before[:, 3:], after[:, 3:])


def test_missing_borders_or_a_mask_are_refused() -> None:
    query, key, value = inputs()
    with pytest.raises(ConfigError, match="sequence borders"):
        packed_attention(nn.Identity(), query, key, value, None)
    with pytest.raises(ConfigError, match="without a mask"):
        packed_attention(nn.Identity(), query, key, value, torch.ones(1), borders=BORDERS)


def test_models_with_windows_are_refused_and_plain_ones_are_not() -> None:
    check_supported(LlamaConfig())
    check_supported(Qwen2Config(use_sliding_window=False))
    with pytest.raises(ConfigError, match="full causal attention"):
        check_supported(MistralConfig(sliding_window=128))
    with pytest.raises(ConfigError, match="full causal attention"):
        check_supported(Qwen2Config(use_sliding_window=True, max_window_layers=1))
