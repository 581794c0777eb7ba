"""A checkpoint is complete or does not count; which are found, kept and deleted."""

import contextlib
import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager, held, read_state
from skyrl_nat.checkpoint.manifest import check_sizes
from skyrl_nat.errors import CheckpointError


def save(manager: CheckpointManager, step: int, text: str = "weights", rewards: dict[int, float] | None = None) -> Path:
    part = manager.begin(step)
    (part / "policy").mkdir()
    (part / "policy" / "data.bin").write_text(text)
    return manager.commit(part, {"step": step, "position": 3 * step}, rewards)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextlib.contextmanager
def reader_of(checkpoint: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process hold a checkpoint until the block ends."""
    program = (
        "import sys; from pathlib import Path; from skyrl_nat.checkpoint.manager import held\n"
        "with held(Path(sys.argv[1])): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(checkpoint)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process


def test_state_comes_back_as_it_was_saved(tmp_path: Path):
    manager = CheckpointManager(tmp_path)
    final = save(manager, 4)
    assert read_state(final, is_thorough=True) == {"step": 4, "position": 12}
    assert manager.latest() == final


def test_killed_save_leaves_the_earlier_checkpoint_and_is_reported_and_cleaned_up(tmp_path: Path):
    """CK-01."""
    first = save(CheckpointManager(tmp_path), 1)
    half = CheckpointManager(tmp_path).begin(2)
    (half / "data.bin").write_text("half")
    said: list[str] = []
    manager = CheckpointManager(tmp_path, warn=said.append)
    assert manager.latest() == first
    with pytest.raises(CheckpointError, match=r"must hold a readable manifest\.json"):
        read_state(half)
    save(manager, 3)
    assert said == [f"{half} is a save that was cut off: it is removed"]
    assert names(tmp_path) == ["step_000001", "step_000003"]


def test_a_save_killed_before_its_last_rename_is_brought_to_its_end(tmp_path: Path):
    """CK-01, CK-02: between the two renames of a step saved again, both are there under other names."""
    final = save(CheckpointManager(tmp_path), 5, "new")
    final.rename(tmp_path / "step_000005.part")
    (tmp_path / "step_000005.old.part").mkdir()
    manager = CheckpointManager(tmp_path, warn=lambda text: pytest.fail(text))
    manager.recover()
    assert names(tmp_path) == ["step_000005"]
    assert manager.latest(is_thorough=True) == final


def test_steps_are_ordered_as_numbers(tmp_path: Path):
    """CK-01, CK-10: the text `step_10` comes before `step_9`."""
    manager = CheckpointManager(tmp_path)
    for step in (9, 10, 1_000_000):
        save(manager, step)
    (tmp_path / "step_000009").rename(tmp_path / "step_9")
    (tmp_path / "step_000010").rename(tmp_path / "step_10")
    assert [path.name for path in manager.all()] == ["step_9", "step_10", "step_1000000"]
    (tmp_path / "step_1000000").rename(tmp_path / "away")
    assert manager.latest() == tmp_path / "step_10"


def test_damaged_ones_are_named_in_one_line_each_and_the_next_older_one_is_taken(tmp_path: Path):
    """CK-01."""
    said: list[str] = []
    manager = CheckpointManager(tmp_path, warn=said.append)
    good, changed, cut, lost = (save(manager, step) for step in (1, 2, 3, 4))
    (changed / "policy" / "data.bin").write_text("weightz")
    (cut / "policy" / "data.bin").write_text("w")
    (lost / "manifest.json").unlink()
    assert manager.latest() == changed, "sizes alone do not show it"
    assert [line.split(" is ")[0] for line in said] == ["checkpoint step_000004", "checkpoint step_000003"]
    said.clear()
    assert manager.latest(is_thorough=True) == good
    assert [line.split(" is ")[0] for line in said] == [f"checkpoint step_00000{step}" for step in (4, 3, 2)]
    assert all("\n" not in line for line in said)
    assert "missing or changed: policy/data.bin" in said[2]


def test_when_all_are_damaged_nothing_begins_anew_in_silence(tmp_path: Path):
    manager = CheckpointManager(tmp_path, warn=lambda text: None)
    assert manager.latest() is None
    (save(manager, 1) / "policy" / "data.bin").unlink()
    with pytest.raises(CheckpointError, match="got 1 damaged ones"):
        manager.latest()


def test_a_renamed_folder_is_no_checkpoint_of_its_new_step(tmp_path: Path):
    said: list[str] = []
    manager = CheckpointManager(tmp_path, warn=said.append)
    save(manager, 1)
    save(manager, 2).rename(tmp_path / "step_000007")
    assert manager.latest() == tmp_path / "step_000001"
    assert "its manifest.json says 2" in said[0]


def test_rotation_keeps_the_newest_and_the_best_and_touches_nothing_else(tmp_path: Path):
    """CK-10: keep 2, saves at 2, 10 and 100 whose text order differs, the best one at 2."""
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    manager = CheckpointManager(folder, keep_last=2, keep_best=1)
    elsewhere.mkdir()
    for name in ("notes", "step_two", "step_000003.backup"):
        (folder / name).mkdir(parents=True)
    (folder / "step_000001").symlink_to(save(CheckpointManager(elsewhere), 1))
    rewards = {2: 0.9, 4: 0.1, 6: 0.5, 10: 0.3}
    for step in (2, 4, 6, 10, 100):
        save(manager, step, rewards={done: reward for done, reward in rewards.items() if done < step})
    others = ["notes", "step_000001", "step_000003.backup", "step_two"]
    assert names(folder) == sorted([*others, "step_000002", "step_000010", "step_000100"])
    assert check_sizes(elsewhere / "step_000001").step == 1
    assert [path.name for path in manager.all()] == ["step_000002", "step_000010", "step_000100"]


@pytest.mark.parametrize("is_killed", [False, True])
def test_one_that_another_process_reads_goes_with_a_save_after_that(tmp_path: Path, is_killed: bool):
    """CK-10: keep 1; two readers of step 1, of which the second ends in order or is killed."""
    manager = CheckpointManager(tmp_path, keep_last=1)
    read = save(manager, 1)
    with reader_of(read) as second:
        with reader_of(read):
            save(manager, 2)
        save(manager, 3)
        assert names(tmp_path) == ["step_000001", "step_000003"]
        assert read_state(read, is_thorough=True)["step"] == 1
        if is_killed:
            second.kill()
    save(manager, 4)
    assert names(tmp_path) == ["step_000004"]


def test_one_that_is_gone_or_going_is_not_read(tmp_path: Path):
    manager = CheckpointManager(tmp_path)
    first = save(manager, 1)
    with (
        (first / "manifest.json").open("rb") as deleting,
        pytest.raises(CheckpointError, match=r"step_000001 must stay, but its run has just deleted it"),
    ):
        fcntl.flock(deleting, fcntl.LOCK_EX)
        with held(first):
            pytest.fail("it is being deleted")
    with held(first), held(None):
        pass
    first.rename(tmp_path / "gone")
    with pytest.raises(CheckpointError, match=r"step_000001 must hold a readable manifest\.json"), held(first):
        pytest.fail("it is gone")


def test_a_disk_without_locks_keeps_no_checkpoint_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    manager = CheckpointManager(tmp_path, keep_last=1)
    with held(save(manager, 1)):
        save(manager, 2)
    assert names(tmp_path) == ["step_000002"]


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "rewards", "expected"),
    [
        (1, 1, {}, {4}),
        (1, 1, {1: 0.5, 2: 0.5, 3: 0.4}, {2, 4}),
        (1, 2, {1: 0.5, 2: 0.5, 3: 0.4}, {1, 2, 4}),
        (1, 0, {1: 0.5}, {4}),
        (1, 1, {9: 1.0, 1: -3.0}, {1, 4}),
        (2, 9, {1: 0.5}, {1, 3, 4}),
        (0, 0, {}, {1, 2, 3, 4}),
    ],
)
def test_what_is_kept_of_four_steps(tmp_path: Path, keep_last: int, keep_best: int, rewards, expected: set[int]):
    manager = CheckpointManager(tmp_path, keep_last=keep_last, keep_best=keep_best)
    assert manager.kept([4, 1, 3, 2], rewards) == expected


def test_nothing_is_deleted_before_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """CK-02: keep 1, and the disk refuses the manifest of the new one."""
    manager = CheckpointManager(tmp_path, keep_last=1)
    first = save(manager, 1)

    def full(descriptor: int) -> None:
        assert check_sizes(first).step == 1
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            save(manager, 2)
    assert manager.latest(is_thorough=True) == first
    second = save(manager, 3)
    assert names(tmp_path) == [second.name]


def test_saving_a_step_again_replaces_it(tmp_path: Path):
    manager = CheckpointManager(tmp_path)
    save(manager, 5, "old")
    final = save(manager, 5, "new")
    assert (final / "policy" / "data.bin").read_text() == "new"
    assert names(tmp_path) == ["step_000005"]


def test_going_on_from_an_older_one_leaves_the_newer_ones_behind(tmp_path: Path):
    said: list[str] = []
    manager = CheckpointManager(tmp_path / "run", keep_last=9, warn=said.append)
    older = save(manager, 2)
    for step in (4, 10):
        save(manager, step, "abandoned")
    assert manager.set_aside(older) == [4, 10]
    assert manager.latest() == older
    assert len(said) == 1
    assert "step_000004, step_000010" in said[0]
    save(manager, 4, "anew")
    assert manager.set_aside(older) == [4]
    assert (tmp_path / "run" / "step_000004.abandoned" / "policy" / "data.bin").read_text() == "anew"
    assert names(tmp_path / "run") == ["step_000002", "step_000004.abandoned", "step_000010.abandoned"]


def test_going_on_from_another_run_leaves_all_behind_and_from_the_newest_none(tmp_path: Path):
    manager = CheckpointManager(tmp_path / "run", warn=lambda text: None)
    other = save(CheckpointManager(tmp_path / "other"), 50)
    newest = [save(manager, step) for step in (1, 60)][-1]
    assert manager.set_aside(newest) == []
    assert manager.set_aside(other) == [1, 60]
    assert manager.latest() is None
