"""Policy workers for tests: one rank in this process, or several in spawned ones."""

import math
import multiprocessing
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import Tensor

from skyrl_nat.algorithms.reduction import REDUCTIONS
from skyrl_nat.batching.micro_batch import MicroBatch
from skyrl_nat.batching.packing import attach_logprobs, pack
from skyrl_nat.config.algorithm import AlgorithmConfig
from skyrl_nat.config.model import LoraConfig, ModelConfig, OptimizerConfig
from skyrl_nat.types import TrainingSample
from skyrl_nat.workers.objective import StepConstants
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.process_group import full_tensor

VOCABULARY = 300
RECOMPUTE = {"old_logprobs": "recompute"}
PRELOADED = [
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint",
    "torch.multiprocessing",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
]
ADVANTAGES = [1.0, -0.5, 0.25, -1.5, 0.75, 2.0]
PROMPTS_AND_LENGTHS = [(5, 20), (10, 31), (3, 7), (1, 12), (4, 40), (2, 3)]


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def make_samples(seed: int = 0) -> list[TrainingSample]:
    """Return six samples of three groups with very different lengths; the first two begin alike."""
    generator = torch.Generator().manual_seed(seed)
    samples = []
    for index, (prompt, length) in enumerate(PROMPTS_AND_LENGTHS):
        mask = [i >= prompt for i in range(length)]
        if length > 25:
            # An observation of the environment in the middle of the rollout.
            mask[15:20] = [False] * 5
        samples.append(
            TrainingSample(
                sample_id=f"r{index}",
                rollout_id=f"r{index}",
                group_id=f"g{index // 2}",
                token_ids=torch.randint(0, VOCABULARY, (length,), generator=generator).tolist(),
                loss_mask=mask,
                rollout_logprobs=(-5 - torch.rand(length, generator=generator)).tolist(),
                advantages=[ADVANTAGES[index] if is_sampled else 0.0 for is_sampled in mask],
                oldest_version=0,
            )
        )
    samples[1].token_ids[:18] = samples[0].token_ids[:18]
    return samples


def with_gaps(samples: list[TrainingSample]) -> list[TrainingSample]:
    """Return samples in which NaN stands where the engine has given no log-prob: for whatever it has not sampled."""
    return [
        replace(
            sample,
            rollout_logprobs=[
                value if is_sampled else math.nan
                for value, is_sampled in zip(sample.rollout_logprobs, sample.loss_mask, strict=True)
            ],
        )
        for sample in samples
    ]


def make_grid(
    samples: list[TrainingSample],
    *,
    num_ranks: int = 1,
    budget: int = 64,
    name: str = "token_mean",
    **constants: float,
) -> tuple[list[list[MicroBatch]], StepConstants]:
    """Return the grid and the constants of one step."""
    weights = REDUCTIONS[name](
        [s.num_loss_tokens for s in samples],
        [s.rollout_id for s in samples],
        [s.group_id for s in samples],
        max_tokens_divisor=32,
    )
    grid = pack(samples, weights.token_weights, num_ranks=num_ranks, token_budget=budget)
    return grid, StepConstants(denominator=weights.denominator, **constants)


def make_worker(
    folder: Path,
    *,
    model: dict[str, Any] | None = None,
    optimizer: dict[str, Any] | None = None,
    algorithm: dict[str, Any] | None = None,
    temperature: float = 1.0,
    rank: int = 0,
    world_size: int = 1,
    port: int | None = None,
    device: str = "cpu",
    num_replicas: int = 1,
    kind: type[PolicyWorker] = PolicyWorker,
) -> PolicyWorker:
    """Return a built policy worker of a tiny model."""
    worker = kind(
        model_path=str(folder),
        model=ModelConfig(**({"logprob_chunk_tokens": 7} | (model or {}))),
        optimizer=OptimizerConfig(**({"lr": 1e-3, "max_grad_norm": 0.0} | (optimizer or {}))),
        algorithm=AlgorithmConfig(**(algorithm or {})),
        device=device,
        temperature=temperature,
        total_steps=10,
        num_threads=1,
        seed=0,
        num_replicas=num_replicas,
    )
    worker.init_process_group(rank, world_size, "127.0.0.1", port or free_port(), 60)
    worker.build()
    return worker


def train_steps(
    worker: PolicyWorker, row: list[MicroBatch], constants: StepConstants, steps: int
) -> list[dict[str, float]]:
    """Recompute old log-probs once, then do several optimizer steps on them."""
    attach_logprobs(row, worker.compute_logprobs(row), "old_logprobs")
    return [worker.train(row, constants) for _ in range(steps)]


def optimizer_tensors(worker: PolicyWorker) -> dict[str, Tensor]:
    """Return copies of the local optimizer state by parameter index and key."""
    return {
        f"{index}.{key}": value.to_local().clone() if hasattr(value, "to_local") else value.clone()
        for index, state in enumerate(worker.optimizer.state.values())
        for key, value in state.items()
    }


def gradients(worker: PolicyWorker) -> dict[str, Tensor]:
    """Return the gradients of the first step, which AdamW's first moment holds times 1 - beta1."""
    scale = 1.0 - worker.optimizer_config.beta1
    names = [spec.name for spec in worker.weight_manifest()]
    moments = dict(
        zip(
            (id(p) for p in worker.module.parameters()),
            names,
            strict=True,
        )
    )
    return {moments[id(p)]: full_tensor(state["exp_avg"]) / scale for p, state in worker.optimizer.state.items()}


def _rank_main(rank: int, world_size: int, port: int, model: str, out: str, device: str, lora_rank: int) -> None:
    """One spawned rank: two steps, metrics, weights and a checkpoint into a folder."""
    torch.set_num_threads(1)
    worker = make_worker(
        Path(model),
        model={"lora": LoraConfig(rank=lora_rank)},
        rank=rank,
        world_size=world_size,
        port=port,
        device=device,
        algorithm=RECOMPUTE,
    )
    grid, constants = make_grid(with_gaps(make_samples()), num_ranks=world_size, budget=40)
    metrics = train_steps(worker, grid[rank], constants, 2)
    worker.save(Path(out) / "checkpoint")
    result = {
        "metrics": metrics,
        "weights": worker.export_weights(),
        "digest": worker.parameter_digest(),
        "num_micro_batches": len(grid[rank]),
        "num_known": int(sum(batch.loss_mask.sum() for batch in grid[rank])),
    }
    # One sample on two ranks: the other rank has nothing but a filler.
    grid, constants = make_grid(make_samples()[:1], num_ranks=world_size)
    attach_logprobs(grid[rank], worker.compute_logprobs(grid[rank]), "old_logprobs")
    result["filler_metrics"] = worker.train(grid[rank], constants)
    result["final_weights"] = worker.export_weights()
    torch.save(result, Path(out) / f"rank{rank}.pt")
    worker.close()


def run_ranks(
    world_size: int, model: Path, out: Path, device: str = "cpu", *, lora_rank: int = 0
) -> list[dict[str, Any]]:
    """Run `_rank_main` in spawned processes and return what each rank saved."""
    spawn_ranks(_rank_main, world_size, free_port(), str(model), str(out), device, lora_rank)
    return [torch.load(out / f"rank{rank}.pt") for rank in range(world_size)]


def spawn_ranks(main: Callable[..., None], world_size: int, *arguments: Any) -> None:
    """Run `main(rank, world_size, *arguments)` in a process for each rank; the first failure is raised."""
    # One server imports the slow packages once and forks clean ranks.
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    mp.start_processes(main, (world_size, *arguments), nprocs=world_size, start_method="forkserver")
