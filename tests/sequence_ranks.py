"""Spawned policy ranks that share micro-batches, and the one rank that they must equal."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from policy_ranks import RECOMPUTE, free_port, make_grid, make_samples, make_worker, spawn_ranks

from skyrl_nat.batching.packing import attach_logprobs, build_micro_batch, unpack_per_sample
from skyrl_nat.config.algorithm import PolicyLoss
from skyrl_nat.config.model import ModelConfig
from skyrl_nat.workers import process_group
from skyrl_nat.workers.model import PackedCausalLM, build_packed_model, load_weights
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.sequence_parallel import ALONE, SequenceRanks

STEPS = 2
LONG_TOKENS = 480


@dataclass(frozen=True, kw_only=True)
class Case:
    """One objective on one layout."""

    algorithm: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)
    reduction: str = "token_mean"
    num_samples: int = 6
    """Of `make_samples`; with one sample, all data rows but one have nothing but a filler of two tokens."""
    budget: int = 64


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Ranks of one model."""

    model: Path
    num_ranks: int
    size: int
    """Ranks that share a micro-batch."""
    num_replicas: int = 1
    device: str = "cpu"


CASES = {
    "grpo": Case(),
    "one_micro_batch": Case(budget=200),
    "kl_and_entropy": Case(
        algorithm={"kl_coefficient": 0.3}, constants={"kl_coefficient": 0.3, "entropy_coefficient": 0.1}
    ),
    "gspo": Case(
        algorithm={"policy_loss": PolicyLoss.gspo, "reduction": "sequence_mean", "clip_low": 3e-4, "clip_high": 4e-4},
        reduction="sequence_mean",
        model={"activation_checkpointing": True},
    ),
    "filler": Case(num_samples=1),
}


def play(worker: PolicyWorker, case: Case, *, num_rows: int = 1, row: int = 0) -> dict[str, Any]:
    """Do two optimizer steps on a row of a case's grid; return all that must not depend on the layout."""
    samples = make_samples()[: case.num_samples]
    grid, constants = make_grid(samples, num_ranks=num_rows, budget=case.budget, name=case.reduction, **case.constants)
    mine = grid[row]
    logprobs = worker.compute_logprobs(mine)
    attach_logprobs(mine, logprobs, "old_logprobs")
    attach_logprobs(mine, [m.rollout_logprobs for m in mine], "ref_logprobs")
    metrics = [worker.train(mine, constants) for _ in range(STEPS)]
    return {
        "logprobs": unpack_per_sample(mine, logprobs),
        "metrics": metrics,
        "num_computed": [m.num_computed for m in mine],
        "num_tokens": [m.num_tokens for m in mine],
        "weights": dict(worker.named_full_tensors()),
    }


def make_rank(model: Path, case: Case, size: int, **place: Any) -> PolicyWorker:
    """Return a built worker of a case, one of `size` ranks that share micro-batches."""
    return make_worker(
        model,
        model={"sequence_parallel_size": size, **case.model},
        algorithm=RECOMPUTE | case.algorithm,
        **place,
    )


def saved_bytes(module: PackedCausalLM) -> int:
    """Return the bytes that the forward pass of one long sequence keeps for the backward pass, beside weights."""
    short = make_samples()[0]
    sample = replace(
        short,
        token_ids=[i % 300 for i in range(LONG_TOKENS)],
        loss_mask=[i % 16 == 1 for i in range(LONG_TOKENS)],
        rollout_logprobs=[-1.0] * LONG_TOKENS,
        advantages=[0.0] * LONG_TOKENS,
    )
    weights = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = module.score(build_micro_batch([sample], [1.0]))
    del result
    return sum(storage.nbytes() for storage in kept.values())


def _compare_memory(folder: Path, ranks: SequenceRanks) -> tuple[int, int]:
    """Return the saved bytes of a rank alone and of one that shares the sequence."""
    module = build_packed_model(folder, ModelConfig(), temperature=1.0, is_trainable=True)
    load_weights(module, folder, torch.device("cpu"))
    alone = saved_bytes(module)
    module.ranks = ranks
    return alone, saved_bytes(module)


def _rank_main(rank: int, world_size: int, port: int, layout: Layout, cases: dict[str, Case], out: str) -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    size, ranks = layout.size, ALONE
    place = {"rank": rank, "world_size": world_size, "port": port, "num_replicas": layout.num_replicas}
    for name, case in cases.items():
        worker = make_rank(layout.model, case, size, device=layout.device, **place)
        results[name] = play(worker, case, num_rows=world_size // size, row=rank // size)
        ranks = worker.module.ranks
    if layout.device == "cpu":
        results["saved_bytes"] = _compare_memory(layout.model, ranks)
    torch.save(results, Path(out) / f"rank{rank}.pt")
    process_group.destroy_group()


def run_sequence_ranks(layout: Layout, cases: dict[str, Case], out: Path) -> list[dict[str, Any]]:
    """Return what each of the spawned ranks found in `play`, by name of the case."""
    out.mkdir(exist_ok=True)
    spawn_ranks(_rank_main, layout.num_ranks, free_port(), layout, cases, str(out))
    return [torch.load(out / f"rank{rank}.pt", map_location="cpu") for rank in range(layout.num_ranks)]
