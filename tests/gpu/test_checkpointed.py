"""On a GPU: what is written beside training is what would be written at once, from page-locked memory."""

import threading
from pathlib import Path

import pytest
import torch
from layout_ranks import make_wide_model
from policy_ranks import RECOMPUTE, make_grid, make_samples, make_worker, train_steps

from skyrl_nat.config.model import Offload

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("is_away", [False, True])
def test_written_beside_training_it_is_byte_for_byte_what_is_written_at_once(tmp_path: Path, is_away: bool) -> None:
    """Also where weights and optimizer state wait in host memory."""
    make_wide_model(tmp_path / "model")
    grid, constants = make_grid(make_samples(), budget=64)
    worker = make_worker(tmp_path / "model", algorithm=RECOMPUTE, device="cuda")
    train_steps(worker, grid[0], constants, 2)
    if is_away:
        worker.offload(Offload.all)
    worker.save(tmp_path / "at_once")
    worker.snapshot()
    assert worker._snapshot is not None
    assert worker._snapshot._buffer.is_pinned()
    writing = threading.Thread(target=worker.write, args=(tmp_path / "beside",))
    writing.start()
    worker.onload()
    train_steps(worker, grid[0], constants, 2)
    writing.join()
    name = "__0_0.distcp"
    assert (tmp_path / "beside" / name).read_bytes() == (tmp_path / "at_once" / name).read_bytes()
    digest = worker.parameter_digest()
    worker.load(tmp_path / "beside")
    assert worker.parameter_digest() != digest
    worker.close()
