"""On a GPU: variable-length flash attention against one fused call per sequence, equal beginnings included."""

import pytest
import torch
from torch import nn

from skyrl_nat.batching.packing import build_micro_batch
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.attention import PackedRows, packed_attention

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def rows_of_two_groups() -> PackedRows:
    samples = []
    for group, (prompt, own) in enumerate([(40, (30, 7, 90)), (25, (64, 1))]):
        for number, length in enumerate(own):
            tokens = [group] * prompt + [10 + number] * length
            samples.append(
                TrainingSample(
                    sample_id=f"{group}{number}",
                    rollout_id=f"{group}{number}",
                    group_id=str(group),
                    token_ids=tokens,
                    loss_mask=[i >= prompt for i in range(len(tokens))],
                    rollout_logprobs=[-1.0] * len(tokens),
                    advantages=[float(i >= prompt) for i in range(len(tokens))],
                    oldest_version=0,
                )
            )
    batch = build_micro_batch(samples, [1.0] * len(samples)).to(torch.device("cuda"))
    assert batch.num_computed < batch.num_tokens
    return PackedRows.of(batch)


def test_flash_attention_in_half_precision_equals_full_precision_per_sequence() -> None:
    rows = rows_of_two_groups()
    generator = torch.Generator("cuda").manual_seed(0)
    total = rows.query_borders[-1]
    shapes = [(1, 8, total, 64), (1, 2, total, 64), (1, 2, total, 64)]
    exact = [torch.randn(s, generator=generator, device="cuda").bfloat16().float() for s in shapes]
    half = [t.bfloat16().requires_grad_() for t in exact]
    for t in exact:
        t.requires_grad_()
    expected, _ = packed_attention(nn.Identity(), *exact, None, rows=rows)
    found, _ = packed_attention(nn.Identity(), *half, None, rows=rows)
    weights = torch.randn(expected.shape, generator=generator, device="cuda")
    (expected * weights).sum().backward()
    (found * weights).sum().backward()
    assert (found.float() - expected).abs().max() < 0.03
    for mine, theirs in zip(half, exact, strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        error = (mine.grad.float() - theirs.grad).norm() / theirs.grad.norm()
        assert error < 0.01
