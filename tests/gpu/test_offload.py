"""On a GPU: memory that is given up is free for others, and comes back at the bus's speed with the same bits."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from layout_ranks import make_wide_model
from policy_ranks import RECOMPUTE, make_grid, make_samples, make_worker, train_steps

from skyrl_nat.batching.packing import build_micro_batch
from skyrl_nat.config.model import Offload
from skyrl_nat.workers import process_group

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("compute_dtype", ["float32", "bfloat16"])
def test_nearly_all_memory_is_free_while_away_and_training_goes_on_alike(tmp_path: Path, compute_dtype: str) -> None:
    """bfloat16 goes through FSDP2 on one rank, float32 does without."""
    size = make_wide_model(tmp_path)
    grid, constants = make_grid(make_samples(), budget=64)
    digests = []
    for is_away in (False, True):
        worker = make_worker(tmp_path, model={"compute_dtype": compute_dtype}, algorithm=RECOMPUTE, device="cuda")
        for _ in range(3):
            train_steps(worker, grid[0], constants, 1)
            if is_away:
                torch._C._cuda_clearCublasWorkspaces()  # some 64 MiB, which are nobody's tensors
                assert torch.cuda.memory_allocated() > 2.9 * size
                before = torch.cuda.memory_allocated()
                worker.offload(Offload.optimizer)
                assert torch.cuda.memory_allocated() < before - 1.9 * size
                worker.offload(Offload.all)
                assert torch.cuda.memory_allocated() < 0.2 * size  # a small model, beside workspaces of libraries
                assert torch.cuda.memory_reserved() < 0.5 * size
                back = worker.onload()
                assert back["bytes"] >= 3 * size
        if is_away:
            away = worker.offload(Offload.all)
            assert worker._host[Offload.all]._buffer.is_pinned()
            for moved in (away, back):
                rate = moved["bytes"] / moved["seconds"] / 2**30
                print(f"{moved['bytes'] / 2**30:.2f} GiB at {rate:.1f} GiB/s")
                assert rate > 5
        digests.append(worker.parameter_digest())
        worker.close()
        del worker
        gc.collect()  # FSDP2's modules name each other
    assert digests[0] == digests[1]
    process_group.destroy_group()


def test_activations_in_host_memory_leave_the_gpu_between_forward_and_backward(tmp_path: Path) -> None:
    make_wide_model(tmp_path)
    samples = [
        replace(sample, token_ids=sample.token_ids * 64, loss_mask=[False] + [True] * (64 * sample.num_tokens - 1))
        for sample in make_samples()[:1]
    ]
    batch = build_micro_batch(
        [
            replace(sample, rollout_logprobs=[-1.0] * sample.num_tokens, advantages=[1.0] * sample.num_tokens)
            for sample in samples
        ],
        [1.0],
    ).to(torch.device("cuda"))
    held, gradients = [], []
    for is_on in (False, True):
        worker = make_worker(
            tmp_path, model={"activation_checkpointing": True, "activation_offload": is_on}, device="cuda"
        )
        before = torch.cuda.memory_allocated()
        logprobs, _ = worker.module.score(batch)
        held.append(torch.cuda.memory_allocated() - before)
        logprobs.sum().backward()
        gradients.append([p.grad.clone() for p in worker.module.parameters()])
        worker.close()
    layer_inputs = 6 * batch.num_tokens * 512 * 4
    assert held[0] - held[1] > 0.9 * layer_inputs
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(*gradients, strict=True))
    process_group.destroy_group()
