"""The same work under FSDP2 and under DeepSpeed, in ranks of their own: DeepSpeed changes its process for good."""

import math
from pathlib import Path
from typing import Any

import torch
from policy_ranks import RECOMPUTE, free_port, make_grid, make_samples, make_worker
from torch import Tensor

from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import attach_logprobs
from skyrl_nat.config.model import Dtype, LoraConfig, ModelConfig
from skyrl_nat.workers.objective import StepConstants
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.zero3_workers import Zero3PolicyWorker, Zero3ReferenceWorker

KINDS = {"fsdp2": PolicyWorker, "deepspeed": Zero3PolicyWorker}
OPTIMIZER = {
    "lr": 1e-3,
    "max_grad_norm": 0.5,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "warmup_steps": 2,
    "max_skipped_steps": 9,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "full": {},
    "checkpointed": {"activation_checkpointing": True},
    "lora": {"lora": LoraConfig(rank=3, alpha=6.0)},
    "bfloat16": {"compute_dtype": Dtype.bfloat16},
}


def rank_main(
    rank: int,
    world_size: int,
    port: int,
    model: str,
    out: str,
    variants: list[str],
    other: str = "",
    device: str = "cpu",
) -> None:
    """One spawned rank: every variant under both strategies, and what came of it into a file.

    `other` is a checkpoint of another number of ranks, for the last worker.
    """
    torch.set_num_threads(1)
    place: Any = {"rank": rank, "world_size": world_size, "port": port, "device": device}
    result: dict[str, Any] = {}
    for variant in variants:
        for name, kind in KINDS.items():
            settings: Any = {"model": VARIANTS[variant], "optimizer": OPTIMIZER, "algorithm": RECOMPUTE, "kind": kind}
            worker = make_worker(Path(model), **settings, **place)
            result[f"{variant} {name}"] = _work(worker, rank, world_size, Path(out) / f"{variant}-{name}")
    if other:
        worker.load(other)
        result["digest of other"] = worker.parameter_digest()
    result["reference"] = _reference(Path(model), rank, world_size, device)
    torch.save(result, Path(out) / f"rank{rank}.pt")
    worker.close()


def rows(rank: int, world_size: int) -> tuple[list[MicroBatch], StepConstants]:
    """Return a rank's row of the usual grid."""
    grid, constants = make_grid(make_samples(), num_ranks=world_size, budget=40)
    return grid[rank], constants


def optimizer_parts(worker: PolicyWorker) -> dict[str, Tensor]:
    """Return copies of this rank's part of weights and moments."""
    state = worker._state_tensors()
    return {
        name: (value.to_local() if hasattr(value, "to_local") else value).clone()  # type: ignore[attr-defined]
        for name, value in state.items()
    }


def _work(worker: PolicyWorker, rank: int, world_size: int, folder: Path) -> dict[str, Any]:
    row, constants = rows(rank, world_size)
    found: dict[str, Any] = {
        "first weights": worker.export_weights("float32"),
        "manifest": [(s.name, s.shape, s.dtype) for s in worker.weight_manifest()],
    }
    found["logprobs"] = worker.compute_logprobs(row)
    attach_logprobs(row, found["logprobs"], "old_logprobs")
    found["metrics"] = [worker.train(row, constants) for _ in range(3)]
    found["weights"] = worker.export_weights("float32")
    found["activities"] = [str(activity) for activity, _, _ in worker.usage().intervals]
    found["base logprobs"] = worker.compute_base_logprobs(row)
    found["digest"], before = worker.parameter_digest(), optimizer_parts(worker)
    found["trained"] = sorted(name for name in before if name.startswith("model."))
    poisoned = [m.to(torch.device("cpu")) for m in row]
    if rank == world_size - 1:
        poisoned[-1].advantages = torch.full_like(poisoned[-1].advantages, math.nan)
    found["skipped"] = worker.train(poisoned, constants)
    empty, nothing = make_grid([], num_ranks=world_size)
    found["empty"] = worker.train(empty[rank], nothing)
    after = optimizer_parts(worker)
    found["is_unchanged"] = all(torch.equal(after[name], value) for name, value in before.items())
    found["digest after skips"] = worker.parameter_digest()
    worker.save(folder)
    found["logprobs saved"] = worker.compute_logprobs(row)
    found["straight"] = worker.train(row, constants)
    found["digest of going on"] = worker.parameter_digest()
    worker.load(folder)
    found["digest loaded"] = worker.parameter_digest()
    found["logprobs loaded"] = worker.compute_logprobs(row)
    found["resumed"] = worker.train(row, constants)
    found["digest of resumed"] = worker.parameter_digest()
    return found


def _reference(model: Path, rank: int, world_size: int, device: str) -> list[Tensor]:
    reference = Zero3ReferenceWorker(
        model_path=str(model),
        model=ModelConfig(logprob_chunk_tokens=7),
        device=device,
        temperature=1.0,
        num_threads=1,
        seed=1,
    )
    reference.init_process_group(rank, world_size, "127.0.0.1", free_port(), 60)
    reference.build()
    return reference.compute_logprobs(rows(rank, world_size)[0])
