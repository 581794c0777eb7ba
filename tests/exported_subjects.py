"""Subjects of exports, and policy ranks in this process in the place of those on Ray."""

import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fakes import LocalCalls
from groups import make_group
from policy_ranks import free_port
from recorded_run import RecordedRun

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.workers import process_group
from skyrl_nat.workers.policy import PolicyWorker

SETTINGS = (
    "rollout.max_total_tokens=300",
    "rollout.max_new_tokens=32",
    "trainer.micro_batch_tokens=400",
    "cluster=cpu",
)
STEP = 3


def open_worker(config: RunConfig, source: Path) -> PolicyWorker:
    """Return the one rank of a policy."""
    worker = PolicyWorker(
        model_path=str(source),
        model=config.model,
        optimizer=config.optimizer,
        algorithm=config.algorithm,
        device="cpu",
        temperature=config.rollout.temperature,
        total_steps=1,
        num_threads=1,
        seed=0,
    )
    worker.init_process_group(0, 1, "127.0.0.1", free_port(), 60)
    worker.build()
    return worker


@contextlib.asynccontextmanager
async def local_topology(config: RunConfig, source: Path, *_: Any, is_playing: bool) -> AsyncIterator[Any]:
    """Do what `start_topology` does for an export, with the same worker class in this process."""
    assert not is_playing
    worker = open_worker(config, source)
    try:
        yield SimpleNamespace(policy=LocalCalls([worker]))
    finally:
        worker.close()
        process_group.destroy_group()


def make_run(folder: Path, model: Path, *overrides: str, move: Callable[[str], bool] = lambda name: True) -> Path:
    """Write a run with a checkpoint of moved weights, recorded rollouts and an evaluation of its step.

    Args:
        folder: The run's.
        model: Where it began.
        overrides: Of the config.
        move: Whether a parameter moves, by its name.
    """
    config = load_config([f"model.path={model}", *SETTINGS, *overrides])
    folder.mkdir(parents=True)
    save_config(config, folder / "config.yaml")
    worker = open_worker(config, model)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in worker.module.named_parameters():
            if parameter.requires_grad and move(name):
                parameter.add_(0.1 * torch.randn_like(parameter))
    manager = CheckpointManager(folder / "checkpoints")
    part = manager.begin(STEP)
    worker.save(part / "policy")
    manager.commit(part, {"step": STEP})
    worker.close()
    process_group.destroy_group()
    record = RecordedRun(folder)
    prompt = ChatCodec.from_folder(model).prompt_tokens([{"role": "user", "content": "add 1 and 2"}])
    changes = {
        "token_ids": [*prompt, 5, 6],
        "loss_mask": [False] * len(prompt) + [True] * 2,
        "rollout_logprobs": [0.0] * len(prompt) + [-1.0] * 2,
        "token_versions": [-1] * len(prompt) + [0] * 2,
    }
    group = make_group(0, [0.5], **changes)
    record.evaluate(STEP, [group])
    return folder
