"""Copies of checkpoints under URLs: what counts as one, what comes back, what is left of one that failed."""

from pathlib import Path
from typing import Any

import fsspec
import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.checkpoint.mirror import Mirror, mirror_of
from skyrl_nat.errors import CheckpointError, ConfigError


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}/run" if request.param == "memory" else f"file://{tmp_path}/mirror/run"


@pytest.fixture
def own(tmp_path: Path) -> CheckpointManager:
    return CheckpointManager(tmp_path / "own")


@pytest.fixture
def fetched(tmp_path: Path) -> CheckpointManager:
    return CheckpointManager(tmp_path / "fetched", warn=SAID.append)


SAID: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_said() -> None:
    SAID.clear()


def save(manager: CheckpointManager, step: int) -> Path:
    part = manager.begin(step)
    (part / "policy").mkdir()
    (part / "policy" / "data.bin").write_text(f"weights of {step}")
    (part / "groups.jsonl").write_text("")
    return manager.commit(part, {"step": step})


def files(url: str) -> list[str]:
    system, root = fsspec.core.url_to_fs(url)
    return sorted(path[len(root) :] for path in system.find(root))


def write(url: str, text: str) -> None:
    with fsspec.open(url, "w") as file:
        file.write(text)


def test_a_copy_comes_back_as_it_was(url: str, own: CheckpointManager, fetched: CheckpointManager):
    mirror = Mirror(url)
    assert mirror.steps() == []
    assert mirror.fetch_latest(fetched) is None
    for step in (9, 10):
        mirror.push(save(own, step))
    assert mirror.steps() == [9, 10]
    found = mirror.fetch_latest(fetched)
    assert found == fetched.folder / "step_000010"
    assert found == fetched.latest(is_thorough=True)
    assert {path.relative_to(found): path.read_bytes() for path in found.rglob("*") if path.is_file()} == {
        path.relative_to(own.folder / found.name): path.read_bytes()
        for path in (own.folder / found.name).rglob("*")
        if path.is_file()
    }
    assert [path.name for path in fetched.folder.iterdir()] == ["step_000010"]


def test_the_manifest_comes_last_and_a_copy_that_fails_leaves_nothing(
    url: str, own: CheckpointManager, monkeypatch: pytest.MonkeyPatch
):
    mirror, sent = Mirror(url), []
    put = mirror._files.put_file

    def note(source: str, target: str) -> None:
        sent.append(target.rpartition("/")[2])
        put(source, target)
        if len(sent) == 2:
            raise OSError("the line is broken")

    monkeypatch.setattr(mirror._files, "put_file", note)
    with pytest.raises(OSError, match="line is broken"):
        mirror.push(save(own, 3))
    assert files(url) == []
    mirror.push(own.folder / "step_000003")
    assert sent == ["groups.jsonl", "data.bin", "groups.jsonl", "data.bin", "manifest.json.part"]
    assert files(url) == [f"/step_000003/{name}" for name in ("groups.jsonl", "manifest.json", "policy/data.bin")]


def test_a_file_that_arrives_cut_is_no_copy(url: str, own: CheckpointManager, monkeypatch: pytest.MonkeyPatch):
    mirror = Mirror(url)
    monkeypatch.setattr(mirror._files, "put_file", lambda source, target: mirror._files.pipe_file(target, b"w"))
    with pytest.raises(OSError, match="must have 0 bytes, got 1"):
        mirror.push(save(own, 3))
    assert mirror.steps() == []


def test_half_copies_do_not_count_and_damaged_ones_are_skipped_aloud(
    url: str, own: CheckpointManager, fetched: CheckpointManager
):
    mirror = Mirror(url)
    for step in (1, 2, 3):
        mirror.push(save(own, step))
    write(f"{url}/step_000004/policy/data.bin", "half")
    write(f"{url}/step_000003/policy/data.bin", "changed")
    assert mirror.steps() == [1, 2, 3]
    found = mirror.fetch_latest(fetched)
    assert found is not None
    assert read_state(found)["step"] == 2
    assert [line.split(" in ")[0] for line in SAID] == ["the copy of step 3"]
    for step in (1, 2):
        write(f"{url}/step_00000{step}/policy/data.bin", "changed")
    with pytest.raises(CheckpointError, match="got 3 damaged ones"):
        mirror.fetch_latest(fetched)


def test_a_copy_that_would_write_elsewhere_is_refused(url: str, own: CheckpointManager, fetched: CheckpointManager):
    mirror = Mirror(url)
    mirror.push(save(own, 1))
    manifest = (own.folder / "step_000001" / "manifest.json").read_text()
    write(f"{url}/step_000001/manifest.json", manifest.replace("groups.jsonl", "../../away"))
    with pytest.raises(CheckpointError, match=r"names '\.\./\.\./away', which is not below"):
        mirror.fetch(1, fetched)
    assert list(fetched.folder.iterdir()) == []


def test_what_is_not_kept_is_deleted_and_nothing_else(url: str, own: CheckpointManager):
    """CK-10."""
    mirror = Mirror(url)
    for step in (1, 2, 3):
        mirror.push(save(own, step))
    write(f"{url}/notes/mine.txt", "notes")
    mirror.keep({1, 3})
    assert mirror.steps() == [1, 3]
    assert {path.split("/")[1] for path in files(url)} == {"notes", "step_000001", "step_000003"}


def test_copies_of_another_branch_count_no_more_but_are_there(url: str, own: CheckpointManager):
    mirror = Mirror(url)
    for step in (2, 4, 10):
        mirror.push(save(own, step))
    assert mirror.set_aside(2) == [4, 10]
    assert mirror.steps() == [2]
    assert "/step_000010/policy/data.bin" in files(url)
    mirror.push(save(own, 4))
    assert mirror.steps() == [2, 4]


def test_a_mirror_that_does_not_answer_does_not_look_empty(fetched: CheckpointManager, monkeypatch: pytest.MonkeyPatch):
    mirror = Mirror("memory://away")

    def fail(*arguments: Any, **options: Any) -> None:
        raise PermissionError("no key")

    monkeypatch.setattr(mirror._files, "ls", fail)
    with pytest.raises(CheckpointError, match=r"must answer.*no key"):
        mirror.fetch_latest(fetched)


def test_a_url_that_nobody_can_open_is_refused():
    with pytest.raises(ConfigError, match="must be URLs that fsspec can open, got nowhere://x"):
        Mirror("nowhere://x")


def test_runs_share_a_url():
    assert mirror_of(None, "run") is None
    mirror = mirror_of("memory://all/", "run")
    assert mirror is not None
    assert mirror.url == "memory://all/run"
