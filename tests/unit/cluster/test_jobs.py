"""What travels with a job, and what must not be left behind."""

import zipfile
from pathlib import Path

import pytest

from skyrl_nat.cluster import jobs
from skyrl_nat.cluster.jobs import require_shared_paths, submit, upload_bytes
from skyrl_nat.config.load import load_config
from skyrl_nat.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("skyrl_nat/cli.py", "conf/train.yaml", "runs/a/model.bin", "data/train.parquet", ".git/HEAD",
                 ".venv/bin/python", "mine.py", "big/weights.safetensors", "secret/notes.txt"):  # fmt: skip
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / ".rayignore").write_text("/secret\n")
    return tmp_path


def test_code_travels_and_data_runs_environments_and_what_the_user_names_stay(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    create = jobs.create_package

    def create_and_look(folder: str, target: Path, **options) -> None:
        create(folder, target, **options)
        names.extend(zipfile.ZipFile(target).namelist())

    monkeypatch.setattr(jobs, "create_package", create_and_look)
    assert 0 < upload_bytes(project) < 2000
    assert sorted(name for name in names if not name.endswith("/")) == [
        "conf/train.yaml",
        "mine.py",
        "skyrl_nat/cli.py",
    ]


def test_folder_that_is_too_large_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(jobs, "MAX_MIB", 0.0001)
    with pytest.raises(ConfigError, match=r"must be at most 0.0001 MiB packed, .* Name what the job does not need"):
        submit("http://127.0.0.1:1", ["root_dir=/shared/runs"])


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ("root_dir=runs", "root_dir"),
        ("environment.train_files=[data/train.parquet]", "environment.train_files"),
        ("resume=runs/a/checkpoints/step_000001", "resume"),
        ("checkpoint.mirror=copies", "checkpoint.mirror"),
        ("environment.train_files=[s3://bucket/train.parquet]", "environment.train_files"),
    ],
)
def test_path_that_only_this_folder_has_is_refused(override: str, key: str) -> None:
    overrides = ["root_dir=/shared/runs"]
    require_shared_paths(load_config(overrides))
    with pytest.raises(ConfigError, match=f"^{key} must be an absolute path that all nodes see"):
        require_shared_paths(load_config([*overrides, override][-1:] if key == "root_dir" else [*overrides, override]))


def test_urls_of_checkpoints_are_seen_from_everywhere() -> None:
    copies = ["checkpoint.mirror=s3://bucket/runs", "resume=s3://bucket/runs/mine/step_000010"]
    require_shared_paths(load_config(["root_dir=/shared/runs", *copies]))
