"""What makes a checkpoint complete, and what of it is noticed before anything is loaded."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from skyrl_nat.checkpoint.manifest import MANIFEST, check_contents, check_sizes, read_manifest, write_manifest
from skyrl_nat.errors import CheckpointError


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "data.bin").write_bytes(b"weights")
    (tmp_path / "groups.jsonl").write_bytes(b"")
    write_manifest(tmp_path, {"step": 7, "position": 21})
    return tmp_path


def test_it_lists_format_step_and_every_file_with_size_and_checksum(checkpoint: Path):
    data = json.loads((checkpoint / MANIFEST).read_text())
    assert (data["format"], data["step"], data["state"]) == (2, 7, {"step": 7, "position": 21})
    assert data["files"] == {
        "groups.jsonl": {"size": 0, "sha256": hashlib.sha256(b"").hexdigest()},
        "policy/data.bin": {"size": 7, "sha256": hashlib.sha256(b"weights").hexdigest()},
    }
    assert check_contents(checkpoint).num_bytes == 7


def test_it_is_written_last_and_appears_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """CK-01: every other file is on the disk first; until the rename there is no manifest."""
    (tmp_path / "data.bin").write_bytes(b"weights")
    synced: list[str] = []
    sync, rename = os.fsync, Path.rename

    def note(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def note_rename(path: Path, target: Path) -> Path:
        synced.append(f"-> {target.name}")
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "rename", note_rename)
    write_manifest(tmp_path, {"step": 1})
    folder = tmp_path.name
    assert synced == ["data.bin", folder, f"{MANIFEST}.part", f"-> {MANIFEST}", folder]


@pytest.mark.parametrize("fault", ["cut", "lost", "a folder now"])
def test_a_cut_or_lost_file_is_noticed_by_its_size(checkpoint: Path, fault: str):
    data = checkpoint / "policy" / "data.bin"
    data.unlink()
    if fault == "cut":
        data.write_bytes(b"weight")
    elif fault == "a folder now":
        data.mkdir()
    with pytest.raises(CheckpointError, match=r"missing or cut: policy/data\.bin\."):
        check_sizes(checkpoint)


def test_one_changed_bit_is_noticed_by_its_checksum(checkpoint: Path):
    (checkpoint / "policy" / "data.bin").write_bytes(b"weightr")
    check_sizes(checkpoint)
    with pytest.raises(CheckpointError, match=r"missing or changed: policy/data\.bin\."):
        check_contents(checkpoint)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data | {"format": 1}, "it has format 1, this version reads 2"),
        (lambda data: {"state": {"step": 7}, "files": {}}, "it lacks a part"),
        (lambda data: data | {"files": {"data.bin": 7}}, "it lacks a part"),
        (lambda data: data | {"files": ["data.bin"]}, "it lacks a part"),
        (lambda data: [], "it lacks a part"),
        (lambda data: data | {"files": {"../x": {"size": 1, "sha256": ""}}}, "names '../x', which is not below"),
        (lambda data: data | {"files": {"/etc/x": {"size": 1, "sha256": ""}}}, "names '/etc/x', which is not below"),
    ],
)
def test_a_manifest_that_is_none_is_refused_in_one_sentence(checkpoint: Path, change, words: str):
    path = checkpoint / MANIFEST
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(CheckpointError, match="Resume from another checkpoint") as caught:
        read_manifest(checkpoint)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_manifest_or_none_is_refused(checkpoint: Path):
    path = checkpoint / MANIFEST
    path.write_text(path.read_text()[:40])
    with pytest.raises(CheckpointError, match="must hold a readable manifest"):
        check_sizes(checkpoint)
    path.unlink()
    with pytest.raises(CheckpointError, match="must hold a readable manifest"):
        check_sizes(checkpoint)
