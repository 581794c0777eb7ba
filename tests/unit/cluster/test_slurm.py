"""What a Slurm job tells its trainer and its Ray nodes."""

from pathlib import Path

import pytest
from signs import signs_of

from skyrl_nat.cluster.allocation import Allocation, Share
from skyrl_nat.cluster.node_starter import own_folders, start_command
from skyrl_nat.cluster.slurm import complete_overrides
from skyrl_nat.errors import ConfigError

SHARE = Share(num_cpus=4, num_gpus=2, memory_bytes=1000)


def job(**changes) -> Allocation:
    return Allocation(**{"job_id": "1001", "num_nodes": 1, "num_restarts": 0, **changes})


def test_job_has_a_name_of_its_own_and_all_its_nodes() -> None:
    assert complete_overrides([], job()) == ["name=slurm-1001"]
    assert complete_overrides([], job(num_nodes=2)) == ["name=slurm-1001", "cluster.num_nodes=2"]
    given = ["name=mine", "cluster.num_nodes=3"]
    assert complete_overrides(given, job(num_nodes=4)) == given


def test_job_that_is_back_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    root, back = f"root_dir={tmp_path}", job(num_restarts=1)
    assert complete_overrides([root, "resume=never"], back) == [root, "name=slurm-1001", "resume=latest"]
    first = f"resume={tmp_path / 'other'}"
    assert complete_overrides([root, first], back) == [root, first, "name=slurm-1001"], (
        "nothing of its own is saved yet"
    )
    checkpoint = tmp_path / "slurm-1001" / "checkpoints" / "step_000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    assert complete_overrides([root, first], back) == [root, "name=slurm-1001", "resume=latest"]
    assert first in complete_overrides([root, first], job())


def test_bad_override_is_refused_before_ray_starts() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.stepps must be a declared key"):
        complete_overrides(["trainer.stepps=3"], job())


def test_signs_are_passed_on_as_they_are_and_refused_with_the_quoted_form_where_they_mean_something_else() -> None:
    """CF-01."""
    word = signs_of("tracking.wandb_project")
    assert complete_overrides([word], job(num_restarts=1)) == [word, "name=slurm-1001", "resume=latest"]
    with pytest.raises(ConfigError, match=r"Write 'tracking\.wandb_project=\"a#b\"'"):
        complete_overrides(["tracking.wandb_project=a#b"], job())


def test_jobs_starts_and_nodes_share_no_folder() -> None:
    """RY-10."""
    places = [
        {"SLURM_JOB_ID": number, "SLURM_RESTART_COUNT": restarts, "SLURMD_NODENAME": node}
        for number in ("1001", "1002")
        for restarts in ("0", "1")
        for node in ("gpu-node-a.example", "gpu-node-b.example")
    ]
    folders = {own_folders(place)[-1] for place in places}
    assert len(folders) == len(places)
    assert all(len(str(folder)) <= 36 for folder in folders)
    assert own_folders(places[2])[:1] == own_folders(places[0]), "a start knows what the ones before it left"


def test_node_offers_its_share_on_ports_that_are_free() -> None:
    """RY-10, RY-11."""
    head = start_command(SHARE, Path("/tmp/x"), "a", "")
    other = start_command(SHARE, Path("/tmp/x"), "a", "10.0.0.1:4711")
    for command in (head, other):
        assert {"--num-cpus=4", "--num-gpus=2", "--memory=1000", "--object-store-memory=300"} <= set(command)
        assert {"--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"} <= set(command)
    assert {"--head", "--port=0"} <= set(head)
    assert "--address=10.0.0.1:4711" in other
    assert "--head" not in other
