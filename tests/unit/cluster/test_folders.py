"""Folders of a node: short enough for sockets, and nobody else's."""

import os
import socket
from pathlib import Path

import pytest

from skyrl_nat.cluster import folders
from skyrl_nat.cluster.folders import CACHES, LONGEST_RAY_FOLDER, cache_environment, ray_folder

LONGEST_BELOW = "session_2026-11-29_09-43-08_416155_4194304/sockets/plasma_store.1000"
"""What Ray makes below its folder, with the largest process id there is."""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, "/tmp/ray"),
        ({"TMPDIR": "/local"}, "/local/ray"),
        ({"TMPDIR": "/local", "RAY_TMPDIR": "/scratch"}, "/scratch/ray"),
        ({"TMPDIR": "/scratch/" + 120 * "a"}, "/tmp/ray"),
    ],
)
def test_ray_gets_the_first_folder_that_is_short_enough(environment: dict[str, str], expected: str) -> None:
    """RY-02."""
    assert ray_folder("ray", environment) == Path(expected)


def test_longest_folder_still_holds_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RY-02. Linux takes 107 bytes."""
    folder = ray_folder(60 * "n", {})
    assert len(str(folder)) == LONGEST_RAY_FOLDER
    path = f"{folder}/{LONGEST_BELOW}"
    assert len(path) <= 107
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as probe:
        probe.bind((len(path) * "x")[:107])


def test_caches_lie_in_a_folder_of_the_user_alone_and_his_own_choice_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path))
    found = cache_environment({"TRITON_CACHE_DIR": "/mine"})
    root = tmp_path / f"skyrl-nat-cache-{os.getuid()}"
    assert found["VLLM_CACHE_ROOT"] == str(root / "vllm")
    assert set(found) == set(CACHES) - {"TRITON_CACHE_DIR"}
    assert root.stat().st_mode & 0o777 == 0o700


def test_caches_stay_away_from_a_folder_that_others_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders.tempfile, "gettempdir", lambda: str(tmp_path))
    root = tmp_path / f"skyrl-nat-cache-{os.getuid()}"
    root.mkdir()
    root.chmod(0o777)
    assert cache_environment({}) == {}
    root.rmdir()
    (tmp_path / "elsewhere").mkdir()
    root.symlink_to(tmp_path / "elsewhere")
    assert cache_environment({}) == {}
