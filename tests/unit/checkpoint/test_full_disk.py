"""CK-04 on a disk that really is too small: a tmpfs where it may be mounted, else a limit on the size of files."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.checkpoint.sharded import save_sharded
from skyrl_nat.errors import CheckpointError

MIB = 2**20


@contextmanager
def small_disk(folder: Path, num_mib: int) -> Iterator[None]:
    """Let a folder take so many MiB in all, or each file in it, where nothing can be mounted."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={num_mib}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode == 0:
        try:
            yield
        finally:
            subprocess.run(["umount", str(folder)], check=True)
        return
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_mib * MIB, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


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
