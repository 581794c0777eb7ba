"""A data set from nothing, as a user makes it: killed, resumed, reported, and the same again."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
FILES = ("train.parquet", "validation.parquet", "train_episodes.jsonl", "validation_episodes.jsonl", "report.json")


def start(folder: Path, *more: str) -> "subprocess.Popen[str]":
    command = [
        sys.executable,
        "-m",
        "skyrl_nat.cli",
        "prepare",
        str(folder),
        "--num-samples",
        "20",
        "--mix",
        "1:2,2:1,5:1",
    ]
    return subprocess.Popen([*command, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)


def finish(process: "subprocess.Popen[str]") -> dict:
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return json.loads(output)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "whole"
    report = finish(start(folder))
    assert report["split"] == {"train": 18, "validation": 2}
    return folder


def test_killed_run_goes_on_and_gives_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    made = tmp_path / "cut" / ".prepare" / "made.jsonl"
    process = start(tmp_path / "cut")
    deadline = time.monotonic() + 120
    while not made.exists() or made.read_bytes().count(b"\n") < 4:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = made.read_bytes().count(b"\n")
    assert before < 20
    finish(start(tmp_path / "cut"))
    for name in FILES:
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes(), name
    assert not made.parent.exists()


def test_report_finds_nothing_wrong(whole: Path) -> None:
    command = [sys.executable, "scripts/dataset_report.py", str(whole)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    report = json.loads(done.stdout)
    assert (done.returncode, report["faults"]) == (0, []), report["faults"]
    assert report["ran"]["solutions_with_1"] == report["ran"]["examined"] == 20
    assert report["ran"]["lowest_mutants_killed"] >= 0.8
    assert report["leaks"]["near_duplicates"] == report["leaks"]["same_code"] == 0
    assert set(report["families"]["train"]) & set(report["families"]["validation"]) == set()


def test_variants_and_families_are_held_out_at_once_and_leak_nothing(tmp_path: Path) -> None:
    report = finish(start(tmp_path / "both", "--hold-out", "both"))
    assert report["split"] == {"train": 18, "validation": 2, "other_families": 2}
    families = report["families"]
    assert set(families["validation"]) <= set(families["train"])
    assert not set(families["other_families"]) & set(families["train"])
    command = [sys.executable, "scripts/dataset_report.py", str(tmp_path / "both"), "--no-run"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert (done.returncode, json.loads(done.stdout)["faults"]) == (0, [])
    assert len((tmp_path / "both" / "other_families_episodes.jsonl").read_text().splitlines()) == 2


def test_folder_that_holds_a_data_set_or_another_beginning_is_refused(whole: Path, tmp_path: Path) -> None:
    process = start(whole)
    assert "must not hold a data set yet" in process.communicate(timeout=60)[1]
    assert process.returncode == 2
    (tmp_path / ".prepare").mkdir()
    (tmp_path / ".prepare" / "options.json").write_text('{"num_samples": 7}')
    process = start(tmp_path)
    assert "begun with others" in process.communicate(timeout=60)[1]
    assert process.returncode == 2
