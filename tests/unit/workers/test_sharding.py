"""Copies and shards: whatever the layout, one step is one step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from layout_ranks import train_replicated
from policy_ranks import RECOMPUTE, free_port, make_grid, make_samples, make_worker, spawn_ranks, train_steps

from skyrl_nat.config.load import load_config
from skyrl_nat.config.model import LoraConfig
from skyrl_nat.errors import ConfigError

pytestmark = pytest.mark.usefixtures("leave_group")


def run(world_size: int, folder: Path, out: Path, checkpoint: str = "", **changes: Any) -> list[dict[str, Any]]:
    out.mkdir()
    changes = {"num_replicas": 1, **changes}
    spawn_ranks(train_replicated, world_size, free_port(), str(folder), str(out), changes, checkpoint)
    return [torch.load(out / f"rank{rank}.pt") for rank in range(world_size)]


@pytest.mark.parametrize(
    ("world_size", "changes"),
    [
        (4, {"num_replicas": 2}),
        (4, {"num_replicas": 2, "lora": LoraConfig(rank=3)}),
        (2, {"num_replicas": 2}),
        (2, {"reshard_after_forward": False}),
        (2, {"reshard_after_forward": False, "activation_checkpointing": True}),
    ],
)
def test_every_layout_trains_like_one_rank(
    folder: Path, tmp_path: Path, world_size: int, changes: dict[str, Any]
) -> None:
    """Metrics, gradient norm (clipped here) and weights after two steps; gradients are summed over both dimensions."""
    model = {name: value for name, value in changes.items() if name != "num_replicas"}
    alone = make_worker(folder, model=model, optimizer={"max_grad_norm": 0.5}, algorithm=RECOMPUTE)
    (row,), constants = make_grid(make_samples(), budget=40)
    expected = train_steps(alone, row, constants, 2)
    assert expected[0]["loss/grad_norm"] > 0.5
    alone.save(tmp_path / "alone")
    ranks = run(world_size, folder, tmp_path / "ranks", str(tmp_path / "alone"), **changes)
    for rank in ranks:
        assert rank["digest_loaded"] == alone.parameter_digest(), "a checkpoint of one rank loads in any layout"
        for found, wanted in zip(rank["metrics"], expected, strict=True):
            assert found == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    for name, tensor in alone.export_weights().items():
        assert (ranks[0]["weights"][name] - tensor).abs().max() < 1e-5 * tensor.abs().max(), name
    alone.load(tmp_path / "ranks" / "checkpoint")
    for name, tensor in alone.export_weights().items():
        assert torch.equal(ranks[0]["weights"][name], tensor), "and the other way round"
    shards = world_size // changes.get("num_replicas", 1)
    whole = 300 * 32 * 4
    assert {rank["embedding_bytes"] for rank in ranks} == {whole // shards}
    assert {rank["is_gathered"] for rank in ranks} == {not changes.get("reshard_after_forward", True)}
    if world_size == 4:
        assert ranks[0]["mesh"] == [[0, 1], [2, 3]], "GPUs of a node are neighbours: a copy in each"


def test_copies_must_divide_the_ranks() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.num_replicas must divide cluster\.num_policy_ranks \(4\), got 3"):
        load_config(["cluster.num_policy_ranks=4", "cluster.num_replicas=3"])
