"""On one GPU: DeepSpeed ZeRO-3 in bfloat16 trains what FSDP2 does, and goes on from a checkpoint."""

import importlib.util
from pathlib import Path

import pytest
import torch
import zero3_ranks
from policy_ranks import free_port, spawn_ranks
from tiny_model import make_tiny_model

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed"),
]


def test_bfloat16_steps_are_those_of_fsdp2_and_a_checkpoint_is_exact(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", hidden_size=64)
    arguments = (free_port(), str(folder), str(tmp_path), ["bfloat16"], "", "cuda")
    spawn_ranks(zero3_ranks.rank_main, 1, *arguments)
    result = torch.load(tmp_path / "rank0.pt")
    expected, found = result["bfloat16 fsdp2"], result["bfloat16 deepspeed"]
    for ours, theirs in zip(found["logprobs"], expected["logprobs"], strict=True):
        assert (ours - theirs).abs().max() < 0.05
    for ours, theirs in zip(found["metrics"], expected["metrics"], strict=True):
        assert ours["loss/grad_norm"] == pytest.approx(theirs["loss/grad_norm"], rel=0.02)
    for name, start in expected["first weights"].items():
        assert torch.equal(found["first weights"][name], start), "master weights are not rounded"
        way = (expected["weights"][name] - start).abs().mean()
        assert (found["weights"][name] - expected["weights"][name]).abs().mean() < 0.1 * way, name
    assert found["skipped"]["loss/skipped"] == 1.0
    assert found["is_unchanged"]
    assert found["digest loaded"] == found["digest"]
    assert found["digest of resumed"] == found["digest of going on"]
