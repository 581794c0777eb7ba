"""CK-04 on a disk that really is too small: a tmpfs where it may be mounted, else a limit on the size of files."""

from pathlib import Path

import pytest
import torch
from small_disk import MIB, small_disk

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.checkpoint.sharded import save_sharded
from skyrl_nat.errors import CheckpointError


def save(manager: CheckpointManager, step: int, num_mib: int) -> Path:
    """Save tensors of some size; what is begun and fails is removed."""
    part = manager.begin(step)
    try:
        tensors = {"w": torch.full((num_mib * MIB // 4,), float(step))}
        save_sharded(part / "policy", tensors, {}, lambda tensor: tensor)
        return manager.commit(part, {"step": step})
    except BaseException:
        manager.discard(part)
        raise


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one_and_nothing_half(tmp_path: Path):
    """CK-02, CK-04: a disk of 20 MiB, keep 1."""
    with small_disk(tmp_path, 20):
        manager = CheckpointManager(tmp_path, keep_last=1)
        first = save(manager, 1, 8)
        with pytest.raises(CheckpointError, match=r"No space left on device|File too large"):
            save(manager, 2, 32)
        assert [path.name for path in tmp_path.iterdir()] == [first.name]
        assert manager.latest(is_thorough=True) == first
        second = save(manager, 3, 9)
        assert [path.name for path in tmp_path.iterdir()] == [second.name]
        assert manager.latest(is_thorough=True) == second
