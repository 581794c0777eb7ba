"""What ranks of tests on checkpoints do: each function is one rank of `policy_ranks.spawn_ranks`."""

import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from policy_ranks import RECOMPUTE, make_grid, make_samples, make_worker, train_steps

from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.process_group import full_tensor

OPTIMIZER = {"lr": 1e-3, "schedule": "cosine", "warmup_steps": 2, "max_grad_norm": 0.5}


def make_rank(model: str, rank: int, world_size: int, port: int, kind: type[PolicyWorker] = PolicyWorker) -> Any:
    """Return a built worker whose learning rate depends on the step."""
    settings: Any = {"optimizer": OPTIMIZER, "algorithm": RECOMPUTE, "kind": kind}
    return make_worker(Path(model), **settings, rank=rank, world_size=world_size, port=port)


def train(worker: PolicyWorker, rank: int, world_size: int, steps: int = 1) -> list[dict[str, float]]:
    """Train on the usual samples."""
    grid, constants = make_grid(make_samples(), num_ranks=world_size, budget=40)
    return train_steps(worker, grid[rank], constants, steps)


def whole_state(worker: PolicyWorker) -> dict[str, torch.Tensor]:
    """Return weights and moments in full, by name."""
    return {name: full_tensor(tensor).clone() for name, tensor in worker._state_tensors().items()}


def draw() -> list[float]:
    """Return numbers that the state of every generator decides."""
    return [
        float(torch.rand(())),
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.randn()),
    ]


def save_beside(
    rank: int, world_size: int, port: int, model: str, out: str, kind: type[PolicyWorker] = PolicyWorker
) -> None:
    """Save at once, and the same state again in the background while training goes on; then go on from it."""
    worker = make_rank(model, rank, world_size, port, kind)
    train(worker, rank, world_size, 2)
    worker.save(Path(out) / "at_once")
    digest = worker.parameter_digest()
    worker.snapshot()
    writing = threading.Thread(target=worker.write, args=(Path(out) / "beside",))
    writing.start()
    straight = train(worker, rank, world_size, 3)
    writing.join()
    moved, steps = worker.parameter_digest(), worker.num_steps
    worker.load(Path(out) / "beside")
    result = {"digests": [digest, moved, worker.parameter_digest()], "steps": [steps, worker.num_steps]}
    result["straight"] = straight
    result["resumed"] = train(worker, rank, world_size, 3)
    worker.snapshot()
    worker.write(Path(out) / "again")
    torch.save(result, Path(out) / f"rank{rank}.pt")
    worker.close()


def train_on(rank: int, world_size: int, port: int, model: str, out: str, checkpoint: str) -> None:
    """Go on from a checkpoint if there is one, train two steps, and save all that is to be compared."""
    worker = make_rank(model, rank, world_size, port)
    result: dict[str, Any] = {}
    if checkpoint:
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        worker.load(checkpoint)
        result["drawn"] = draw()
        worker.load(checkpoint)
    result["loaded"] = whole_state(worker)
    result["metrics"] = train(worker, rank, world_size, 2)
    result["saved"] = whole_state(worker)
    random.seed(rank)
    np.random.seed(rank)
    torch.manual_seed(rank)
    draw()
    worker.save(Path(out) / "checkpoint")
    result["next drawn"] = draw()
    torch.save(result, Path(out) / f"rank{rank}.pt")
    worker.close()
