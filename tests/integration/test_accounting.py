"""Complete runs whose metrics say where all seconds of all devices went."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sleepy_family
import small_run
from letter_family import write_letter_tasks

pytestmark = pytest.mark.slow

PARTS = ("train", "push", "offload", "rollout", "idle")
PART_SHARE = rf"^gpu/(\d+/)?(?:{'|'.join(PARTS)})/share"
Metrics = list[dict[str, Any]]
PLAIN = ("trainer.steps=4", "evaluation.before_and_after=false")
ACCOUNT = ("gpu/", "throughput/", "pack/", "push/", "train/", "step/", "rollout/bandwidth", "batch/signal")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("accounting")


@pytest.fixture(scope="module")
def turns(folder: Path) -> Metrics:
    """Steps of a colocated run on two ranks with two engines."""
    small_run.run(folder, "name=turns", "cluster.num_policy_ranks=2", "cluster.num_engines=2", *PLAIN)
    return small_run.metrics(folder, "turns")


def check_sums(entry: dict[str, Any], num_devices: int) -> None:
    assert entry["gpu/count"] == num_devices
    for prefix in ("gpu", *(f"gpu/{number}" for number in range(num_devices))):
        shares = [entry[f"{prefix}/{part}/share"] for part in PARTS]
        assert sum(shares) == pytest.approx(1.0, abs=1e-6)
        assert min(shares) >= 0.0
    assert entry["gpu/idle_s/mean"] == pytest.approx(entry["gpu/idle/share"] * entry["time/step_s"], abs=1e-6)
    assert entry["gpu/contended/share"] == 0.0, "a device does one thing at a time"
    for part in ("train", "push", "rollout"):
        assert entry[f"gpu/{part}/share"] > 0.0
    phases = sum(entry[f"time/{phase}_s"] for phase in ("rollout", "train", "push"))
    assert phases <= entry["time/step_s"] + 1e-3


def test_colocated_ranks_and_engines_take_turns_and_every_token_is_counted(folder: Path, turns: Metrics) -> None:
    for entry in turns:
        check_sums(entry, num_devices=2)
        assert entry["gpu/train/share"] * 2 * entry["time/step_s"] <= 2 * entry["time/train_s"] + 1e-3
    counted = sum(e["throughput/engine_tokens_per_gpu_s"] * e["gpu/count"] * e["time/step_s"] for e in turns)
    files = (folder / "runs" / "turns" / "rollouts").glob("train_*.jsonl")
    played = [turn for file in files for line in file.open() for turn in json.loads(line)["turns"]]
    assert counted == pytest.approx(sum(t["num_prompt_tokens"] + t["num_completion_tokens"] for t in played))


@pytest.mark.long
def test_overlapped_processes_are_devices_of_their_own(folder: Path) -> None:
    small_run.run(folder, "name=ahead", "trainer.staleness=1", "cluster.num_policy_ranks=2", *PLAIN)
    for entry in small_run.metrics(folder, "ahead"):
        assert entry["gpu/2/train/share"] == entry["gpu/0/rollout/share"] == entry["gpu/1/rollout/share"] == 0.0
        assert entry["gpu/0/train/share"] > 0.0
        assert entry["gpu/contended/share"] == 0.0
        for prefix in ("gpu", "gpu/0", "gpu/1", "gpu/2"):
            assert sum(entry[f"{prefix}/{part}/share"] for part in PARTS) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.long
def test_engines_on_one_device_are_busy_together_not_twice(folder: Path) -> None:
    shared = ("cluster.num_engines=2", "cluster.num_engines_per_gpu=2")
    small_run.run(folder, "name=shared", *shared, *PLAIN)
    for entry in small_run.metrics(folder, "shared"):
        check_sums(entry, num_devices=1)


@pytest.mark.long
def test_an_environment_that_sleeps_is_idle_time(folder: Path) -> None:
    tasks = folder / "sleepy"
    tasks.mkdir()
    output = small_run.run(
        folder, "name=sleepy", *PLAIN, *write_letter_tasks(tasks, sleepy_family.NAME), "trainer.steps=2"
    )
    for entry in small_run.metrics(folder, "sleepy"):
        check_sums(entry, num_devices=1)
        assert entry["gpu/idle_s/mean"] >= sleepy_family.SLEEP_S
        assert entry["gpu/idle/share"] >= sleepy_family.SLEEP_S / entry["time/step_s"]
    shown = re.findall(r"GPUs rollout (\d+)%, train (\d+)%, push (\d+)%, offload (\d+)%, idle (\d+)%", output)
    order = ("rollout", "train", "push", "offload", "idle")
    steps = small_run.metrics(folder, "sleepy")
    assert shown == [tuple(f"{entry[f'gpu/{part}/share']:.0%}"[:-1] for part in order) for entry in steps]


def test_every_metric_of_the_account_is_in_the_docs(turns: Metrics) -> None:
    page = (Path(__file__).parents[2] / "docs" / "accounting.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([a-z_]+/[A-Za-z_/<>]+)`", page))
    found = {name for entry in turns for name in entry if name.startswith(ACCOUNT)}
    assert len(found) > 20
    assert {re.sub(PART_SHARE, _as_listed, name) for name in found} - listed == set()


def _as_listed(match: re.Match[str]) -> str:
    return "gpu/<number>/<part>/share" if match[1] else "gpu/<part>/share"
