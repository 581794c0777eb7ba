"""A checkpoint is complete or does not exist."""

import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.errors import CheckpointError


def save(manager: CheckpointManager, step: int, text: str = "weights"):
    part = manager.begin(step)
    (part / "policy").mkdir()
    (part / "policy" / "data.bin").write_text(text)
    return manager.commit(part, {"step": step, "position": 3 * step})


def test_state_comes_back_as_it_was_saved(tmp_path):
    manager = CheckpointManager(tmp_path)
    final = save(manager, 4)
    assert read_state(final) == {"step": 4, "position": 12}
    assert manager.latest() == final


def test_killed_save_leaves_the_earlier_checkpoint_and_is_cleaned_up(tmp_path):
    manager = CheckpointManager(tmp_path)
    first = save(manager, 1)
    half = manager.begin(2)
    (half / "data.bin").write_text("half")
    assert CheckpointManager(tmp_path).latest() == first
    save(manager, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000001", "step_000003"]


def test_only_the_newest_are_kept(tmp_path):
    manager = CheckpointManager(tmp_path, keep_last=2)
    for step in (1, 2, 10, 11):
        save(manager, step)
    assert [path.name for path in manager.all()] == ["step_000010", "step_000011"]


def test_saving_a_step_again_replaces_it(tmp_path):
    manager = CheckpointManager(tmp_path)
    save(manager, 5, "old")
    final = save(manager, 5, "new")
    assert (final / "policy" / "data.bin").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["step_000005"]


@pytest.mark.parametrize("fault", ["cut", "lost", "manifest"])
def test_damage_is_noticed_before_anything_is_loaded(tmp_path, fault: str):
    final = save(CheckpointManager(tmp_path), 2)
    data = final / "policy" / "data.bin"
    if fault == "cut":
        data.write_text("w")
    elif fault == "lost":
        data.unlink()
    else:
        (final / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="manifest" if fault == "manifest" else r"policy/data\.bin"):
        read_state(final)


def test_folder_without_checkpoints_has_no_latest(tmp_path):
    assert CheckpointManager(tmp_path / "nothing").latest() is None
