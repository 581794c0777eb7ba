"""Checkpoints of real ranks: in the background, for another number of ranks, with everybody's random numbers."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_ranks import OPTIMIZER, save_beside, train_on
from policy_ranks import free_port, spawn_ranks
from tiny_model import make_tiny_model

from skyrl_nat.config.model import OptimizerConfig
from skyrl_nat.workers.optimizer import lr_at
from skyrl_nat.workers.policy import PolicyWorker
from skyrl_nat.workers.zero3_workers import Zero3PolicyWorker

NEEDS_DEEPSPEED = pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="needs deepspeed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def results(out: Path, world_size: int) -> list[dict[str, Any]]:
    return [torch.load(out / f"rank{rank}.pt") for rank in range(world_size)]


@pytest.mark.parametrize(
    ("world_size", "kind"),
    [(1, PolicyWorker), (2, PolicyWorker), pytest.param(2, Zero3PolicyWorker, marks=NEEDS_DEEPSPEED)],
)
def test_written_beside_training_it_is_byte_for_byte_what_is_written_at_once(
    model: Path, tmp_path: Path, world_size: int, kind: type[PolicyWorker]
) -> None:
    """Three more steps are trained meanwhile; going on from it gives the numbers of going straight on."""
    spawn_ranks(save_beside, world_size, free_port(), str(model), str(tmp_path), kind)
    for found in results(tmp_path, world_size):
        before, moved, loaded = found["digests"]
        assert before == loaded != moved
        assert found["steps"] == [5, 2]
        assert found["resumed"] == found["straight"]
    names = sorted(path.name for path in (tmp_path / "at_once").glob("*.distcp"))
    assert names == [f"__{rank}_0.distcp" for rank in range(world_size)]
    for name in names:
        assert (tmp_path / "beside" / name).read_bytes() == (tmp_path / "at_once" / name).read_bytes()
        assert (tmp_path / "again" / name).read_bytes() != (tmp_path / "at_once" / name).read_bytes()


def test_two_ranks_become_one_or_three_and_three_become_one_and_lose_nothing(model: Path, tmp_path: Path) -> None:
    """CK-08: weights and moments are equal in full after each change, learning rate and batches go on.

    Ranks know no position in the data: it counts rows, and is the controller's (tests/unit/controller/test_saving.py).
    """
    found: list[list[dict[str, Any]]] = []
    config = OptimizerConfig(**OPTIMIZER)
    for number, (world_size, before) in enumerate(((2, None), (1, 0), (3, 0), (1, 2))):
        out = tmp_path / str(number)
        out.mkdir()
        checkpoint = "" if before is None else str(tmp_path / str(before) / "checkpoint")
        spawn_ranks(train_on, world_size, free_port(), str(model), str(out), checkpoint)
        found.append(results(out, world_size))
        if before is not None:
            saved = found[before][0]["saved"]
            for rank in found[-1]:
                assert rank["loaded"].keys() == saved.keys()
                for name, value in saved.items():
                    assert torch.equal(rank["loaded"][name], value), name
    rates = [[metrics["loss/lr"] for metrics in ranks[0]["metrics"]] for ranks in found]
    assert rates == [[lr_at(step, config, 10) for step in steps] for steps in ((0, 1), (2, 3), (2, 3), (4, 5))]
    for one, three in zip(found[1][0]["metrics"], found[2][0]["metrics"], strict=True):
        assert three["loss/policy"] == pytest.approx(one["loss/policy"], rel=1e-5), "the batch is that of one rank"
        assert three["loss/grad_norm"] == pytest.approx(one["loss/grad_norm"], rel=1e-5)
        assert three["loss/num_tokens"] == one["loss/num_tokens"]


def test_every_rank_gets_its_own_random_numbers_back(model: Path, tmp_path: Path) -> None:
    """Those of torch, Python and NumPy, with the spare Gaussian that two of them keep; new ones for another number."""
    spawn_ranks(train_on, 2, free_port(), str(model), str(tmp_path), "")
    saved = [rank["next drawn"] for rank in results(tmp_path, 2)]
    drawn: dict[int, list[list[float]]] = {}
    for world_size in (2, 1, 1, 3):
        out = tmp_path / str(len(drawn))
        out.mkdir(exist_ok=True)
        spawn_ranks(train_on, world_size, free_port(), str(model), str(out), str(tmp_path / "checkpoint"))
        again = [rank["drawn"] for rank in results(out, world_size)]
        assert drawn.setdefault(world_size, again) == again, "new ones are the same each time"
    assert drawn[2] == saved
    assert saved[0] != saved[1]
    new = [*drawn[1], *drawn[3]]
    assert new[0] == new[1], "rank 0 of any new number: from seed, step and rank"
    assert len({tuple(numbers) for numbers in [*saved, *new]}) == 2 + 3
