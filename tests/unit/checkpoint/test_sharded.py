"""Sharded checkpoints without a process group."""

import errno
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystem

from skyrl_nat.checkpoint.sharded import load_sharded, save_sharded, state_tensors
from skyrl_nat.config.model import OptimizerConfig
from skyrl_nat.errors import CheckpointError
from skyrl_nat.workers.optimizer import build_optimizer


def make(value: float) -> tuple[list[tuple[str, nn.Parameter]], torch.optim.AdamW]:
    parameter = nn.Parameter(torch.full((2, 2), value))
    optimizer = build_optimizer([("w", parameter)], OptimizerConfig(lr=0.1))
    parameter.grad = torch.ones(2, 2)
    optimizer.step()
    return [("w", parameter)], optimizer


def test_model_optimizer_and_counters_come_back_in_place(tmp_path: Path) -> None:
    """Row 68."""
    parameters, optimizer = make(3.0)
    optimizer.step()
    save_sharded(tmp_path / "ck", state_tensors(parameters, optimizer), {"num_steps": 2}, lambda tensor: tensor)
    others, other_optimizer = make(9.0)
    assert load_sharded(tmp_path / "ck", state_tensors(others, other_optimizer), ["num_steps"]) == {"num_steps": 2}
    assert torch.equal(others[0][1], parameters[0][1])
    state = other_optimizer.state[others[0][1]]
    for key, value in optimizer.state[parameters[0][1]].items():
        assert torch.equal(state[key], value), key
    assert state["step"] == 2


def test_an_incomplete_or_foreign_checkpoint_is_refused(tmp_path: Path) -> None:
    parameters, optimizer = make(3.0)
    with pytest.raises(CheckpointError, match=r"no \.metadata file"):
        load_sharded(tmp_path, state_tensors(parameters, optimizer), [])
    save_sharded(tmp_path / "ck", state_tensors(parameters, optimizer), {}, lambda tensor: tensor)
    with pytest.raises(CheckpointError, match="must fit the model"):
        load_sharded(tmp_path / "ck", state_tensors([("v", parameters[0][1])], optimizer), [])


def test_a_full_disk_is_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch raises holds a traceback of every rank; the error holds the first rank's cause alone."""
    parameters, optimizer = make(3.0)

    def full(*arguments: object, **keywords: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(FileSystem, "create_stream", full)
    with pytest.raises(CheckpointError, match=r"got: OSError: \[Errno 28\] No space left on device") as caught:
        save_sharded(tmp_path / "ck", state_tensors(parameters, optimizer), {}, lambda tensor: tensor)
    assert len(str(caught.value).splitlines()) == 1
