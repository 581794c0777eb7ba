"""CK-04 on a disk that really is too small: a tmpfs where it may be mounted, else a limit on the size of files."""

import re
from pathlib import Path

import torch
from fakes import LocalCalls
from saved_run import Rank, Run
from small_disk import MIB, small_disk

from skyrl_nat.checkpoint.sharded import save_sharded


class BigRank(Rank):
    """A rank whose checkpoints are so many MiB of its one number."""

    num_mib = 15

    def save(self, folder: str) -> None:
        tensors = {"w": torch.full((self.num_mib * MIB // 4,), float(self.weights))}
        save_sharded(Path(folder), tensors, {}, lambda tensor: tensor)


def test_a_checkpoint_that_fits_only_if_the_old_one_goes_leaves_the_old_one(tmp_path: Path) -> None:
    """CK-02, CK-04: a disk of 20 MiB, checkpoints of 15, keep 1. Training goes on, and tries again when it is due."""
    with small_disk(tmp_path, 20):
        run, rank = Run(tmp_path, keep_last=1), BigRank()
        run.rank, run.policy = rank, LocalCalls([rank])
        run.train_and_save(1)
        rank.num_mib = 15 if tmp_path.is_mount() else 32
        run.train_and_save(2)
        assert [path.name for path in tmp_path.iterdir()] == ["step_000001"], "nothing half is left"
        first = run.checkpoints.latest(is_thorough=True)
        assert first is not None
        [said] = run.said
        assert re.match(r"step 2 could not be saved \(1 in a row\): .*(No space left on device|File too large)", said)
        assert re.search(r"step_000001, which is kept, takes 15\.\d MiB; [\d,]+\.\d MiB are free in ", said)
        assert (run.step, rank.weights, run.saver.saved_step) == (2, 2, 1)
        rank.num_mib = 4
        run.train_and_save(3)
        assert [path.name for path in tmp_path.iterdir()] == ["step_000003"]
        rank.num_mib = 15
        run.train_and_save(4)
        assert [path.name for path in tmp_path.iterdir()] == ["step_000004"]
        assert run.checkpoints.latest(is_thorough=True) is not None
        assert len(run.said) == 1
