"""Heads of Ray that are found again, and what is left of those that were killed or never noted; no Ray runs here."""

import json
import sys
from pathlib import Path

import psutil
import pytest

from skyrl_nat.service.runner import head as heads
from skyrl_nat.service.runner.head import NOTE, end_head, find_head, start_head


@pytest.fixture
def state_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a folder of a service, and a program in the place of Ray's that waits."""
    program = tmp_path / "python"
    program.write_text(f"#!{sys.executable}\nimport signal\n\nsignal.pause()\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(heads, "ray_folder", lambda name, _: tmp_path / name)
    found = tmp_path / "state"
    found.mkdir()
    return found


def folders_of(state_dir: Path) -> list[Path]:
    return sorted(state_dir.parent.glob("snt-*"))


def test_a_head_is_found_by_its_note_until_it_ends(state_dir: Path):
    head = start_head(state_dir)
    assert find_head(state_dir) == head
    assert folders_of(state_dir) == [Path(head.folder)]
    end_head(head, state_dir)
    assert not psutil.pid_exists(head.pid)
    assert find_head(state_dir) is None
    assert folders_of(state_dir) == []


def test_a_head_that_was_killed_leaves_no_folder_behind_the_next_one(state_dir: Path):
    first = start_head(state_dir)
    psutil.Process(first.pid).kill()
    psutil.Process(first.pid).wait()
    assert find_head(state_dir) is None
    second = start_head(state_dir)
    assert folders_of(state_dir) == [Path(second.folder)]
    end_head(second, state_dir)


def test_a_head_whose_service_was_killed_before_its_note_does_not_stay(
    state_dir: Path, monkeypatch: pytest.MonkeyPatch
):
    class KilledError(Exception):
        """In the place of the end of a process."""

    def is_killed(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(heads, "_write_private", is_killed)
        start_head(state_dir)
    (forgotten,) = folders_of(state_dir)
    option = f"--temp-dir={forgotten}"
    assert any(option in process.cmdline() for process in psutil.Process().children())
    head = start_head(state_dir)
    assert not any(option in process.cmdline() for process in psutil.Process().children())
    assert folders_of(state_dir) == [Path(head.folder)]
    end_head(head, state_dir)


def test_a_note_that_is_not_one_is_no_head(state_dir: Path):
    for text in ("", "{", "[]", json.dumps({"pid": 1})):
        (state_dir / NOTE).write_text(text)
        assert find_head(state_dir) is None
