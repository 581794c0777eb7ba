"""Memory that is given up between steps: really free, and nothing learned differently."""

from pathlib import Path

import pytest
import torch
from layout_ranks import make_reference, storages, train_offloaded
from policy_ranks import free_port, make_grid, make_samples, make_worker, spawn_ranks
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from skyrl_nat.config.load import load_config
from skyrl_nat.config.model import Offload
from skyrl_nat.errors import ConfigError, WorkerError
from skyrl_nat.workers.offload import HostMemory

pytestmark = pytest.mark.usefixtures("leave_group")


def test_values_wait_in_one_buffer_and_come_back_to_every_view() -> None:
    whole = torch.arange(12.0)
    view, twin, odd = whole[2:8].view(2, 3), nn.Parameter(whole), torch.tensor([7], dtype=torch.int8)
    number = torch.tensor(3.0)
    memory = HostMemory(lambda: [view, twin, odd, number])
    assert not memory.is_away
    assert memory.offload() == 12 * 4 + 1
    assert (whole.untyped_storage().nbytes(), odd.untyped_storage().nbytes()) == (0, 0)
    assert number == 3.0
    assert memory.is_away
    assert memory.offload() == 0
    assert torch.equal(memory.value_of(view), torch.arange(2.0, 8.0).view(2, 3))
    assert torch.equal(memory.value_of(odd), torch.tensor([7], dtype=torch.int8))
    buffer = memory._buffer.data_ptr()
    assert memory.onload() == 12 * 4 + 1
    assert memory.onload() == 0
    assert torch.equal(view, torch.arange(2.0, 8.0).view(2, 3))
    assert torch.equal(whole, torch.arange(12.0))
    assert odd.item() == 7
    whole.add_(1.0)
    memory.offload()
    with memory.resident():
        assert torch.equal(twin, torch.arange(1.0, 13.0))
    assert memory.is_away
    assert memory._buffer.data_ptr() == buffer


@pytest.mark.parametrize(("world_size", "lora_rank"), [(1, 0), (2, 0), (3, 2)])
def test_training_with_everything_away_between_steps_is_bit_equal(
    folder: Path, tmp_path: Path, world_size: int, lora_rank: int
) -> None:
    spawn_ranks(train_offloaded, world_size, free_port(), str(folder), str(tmp_path), lora_rank)
    moved = 0.0
    for rank in range(world_size):
        found = torch.load(tmp_path / f"rank{rank}.pt")
        assert found["metrics1"] == found["metrics0"]
        assert found["digest1"] == found["digest0"] == found["digest_loaded"]
        assert found["checksums1"] == found["checksums0"]
        assert found["sizes"] == found["sizes_after"] == [0], "all memory is free while away, also after a save"
        moved += found["moved"]
    saved = []
    for number in (0, 1):
        assert FileSystemReader(tmp_path / f"checkpoint{number}").read_metadata().state_dict_metadata
        dcp_to_torch_save(tmp_path / f"checkpoint{number}", tmp_path / f"{number}.pt")
        saved.append(torch.load(tmp_path / f"{number}.pt"))
    assert saved[0].keys() == saved[1].keys()
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in saved[0])
    trained = sum(4 * saved[0][name].numel() for name in saved[0] if name.startswith("model."))
    assert moved >= 3 * trained


def test_the_optimizer_alone_goes_first_and_training_without_it_is_refused(folder: Path, tmp_path: Path) -> None:
    worker = make_worker(folder)
    (row,), constants = make_grid(make_samples())
    expected = worker.compute_logprobs(row)
    size = sum(p.numel() * 4 for p in worker.module.parameters())
    assert worker.offload(Offload.none)["bytes"] == 0
    assert worker.offload(Offload.optimizer)["bytes"] == 2 * size
    found = worker.compute_logprobs(row)
    assert worker.offload(Offload.all)["bytes"] == size, "the optimizer is away already"
    assert {storage.nbytes() for storage in storages(worker)} == {0}
    with pytest.raises(WorkerError, match="Call onload"):
        worker.train(row, constants)
    found += worker.compute_logprobs(row)
    assert all(torch.equal(a, b) for a, b in zip(expected + expected, found, strict=True))
    assert {storage.nbytes() for storage in storages(worker)} == {0}
    worker.export_hf(tmp_path)
    assert make_worker(tmp_path).parameter_digest() == worker.parameter_digest()
    assert worker.onload()["bytes"] == 3 * size
    assert worker.train(row, constants)["loss/skipped"] == 0


def test_a_reference_gives_up_its_weights_too(folder: Path) -> None:
    worker = make_reference(folder, 0, 1, free_port())
    (row,), _ = make_grid(make_samples())
    expected = worker.compute_logprobs(row)
    assert worker.offload(Offload.optimizer)["bytes"] == 0
    assert worker.offload(Offload.all)["bytes"] > 0
    worker.onload()
    assert all(torch.equal(a, b) for a, b in zip(expected, worker.compute_logprobs(row), strict=True))


def test_offload_is_for_shared_devices() -> None:
    with pytest.raises(ConfigError, match=r"model\.offload must be none with cluster\.placement=disaggregated"):
        load_config(["model.offload=all", "cluster.placement=disaggregated"])
