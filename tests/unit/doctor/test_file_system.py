"""A run root that takes everything, one that takes nothing, and disks that lie."""

import fcntl
import os
from pathlib import Path

from doctor_parts import config, gpu_config, verdicts

from skyrl_nat.doctor import file_system
from skyrl_nat.doctor.file_system import check_folder, check_free_disk, kept_checkpoints, nearest

GIB = 2**30


def test_a_good_folder_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    assert set(verdicts(check_folder(tmp_path / "runs")).values()) == {"ok"}
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_no_folder_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = verdicts(check_folder(tmp_path / "file"))
    assert found["root_dir can be written"] == "WRONG"
    assert set(list(found.values())[1:]) == {"skipped"}


def test_an_unwritable_folder_is_found() -> None:
    assert verdicts(check_folder(Path("/proc/self")))["root_dir can be written"] == "WRONG"


def test_a_disk_whose_locks_do_not_hold_is_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(fcntl, "flock", lambda *_: None)
    assert verdicts(check_folder(tmp_path))["locks of files"] == "WRONG"


def test_a_disk_that_refuses_fsync_is_found(tmp_path: Path, monkeypatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "fsync", refuse)
    assert verdicts(check_folder(tmp_path))["fsync of files and folders"] == "WRONG"


def test_a_rename_that_copies_is_found(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(Path, "rename", lambda self, target: target.touch())
    assert verdicts(check_folder(tmp_path))["rename over what is there"] == "WRONG"


def test_the_nearest_folder_that_exists_is_tried(tmp_path: Path) -> None:
    assert nearest(tmp_path / "a" / "b") == tmp_path


def test_checkpoints_at_the_same_time() -> None:
    assert kept_checkpoints(config(), 100) == 1, "only the last step is saved"
    assert kept_checkpoints(config("checkpoint.save_final=false"), 100) == 0
    every = ("checkpoint.every_steps=10", "checkpoint.keep_last=3", "checkpoint.keep_best=1")
    assert kept_checkpoints(config(*every), 1000) == 5
    assert kept_checkpoints(config(*every), 20) == 3
    assert kept_checkpoints(config("checkpoint.every_steps=10", "checkpoint.keep_last=0"), 1000) == 101


def test_a_disk_that_is_too_small_is_found() -> None:
    full = config("checkpoint.every_steps=1", "trainer.steps=100")
    # 135M parameters, two moments: 12 bytes each.
    assert 1.4 * GIB < file_system.checkpoint_bytes(full) < 1.6 * GIB
    assert check_free_disk(full, 100, free=7 * GIB).verdict == "WRONG"
    assert check_free_disk(full, 100, free=8 * GIB).verdict == "ok"


def test_adapters_alone_are_saved_and_unknown_models_skipped() -> None:
    assert file_system.checkpoint_bytes(gpu_config()) < 5 * GIB
    assert check_free_disk(config("model.path=owner/unheard-of"), 1).verdict == "skipped"
