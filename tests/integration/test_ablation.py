"""An ablation as a user starts it: real runs of a tiny model, their table, and a second call that trains nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import small_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def ablate(folder: Path) -> subprocess.CompletedProcess[str]:
    own = [word for word in small_run.arguments(folder) if not word.startswith("root_dir=")]
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "skyrl_nat.cli",
            "ablate",
            str(folder / "out"),
            "--vary",
            "algorithm=grpo,dr_grpo",
            *own,
        ],
        env=small_run.environment(),
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_two_variants_are_trained_once_and_compared(tmp_path):
    first = ablate(tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    out = tmp_path / "out"
    data = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    names = ["algorithm=grpo", "algorithm=dr_grpo"]
    assert [variant["name"] for variant in data["variants"]] == names
    for variant in data["variants"]:
        assert variant["num_tasks"] == 2
        assert variant["success"]["value"] is not None and variant["reward"]["value"] > 0
        assert [point["rollouts"] for point in variant["curve"]] == [0, 16]
        assert variant["train_s"] > 0 and variant["gpu_s"] > 0
    assert data["against"][names[1]]["verdict"]["decision"] in ("no_difference", "cannot_tell")
    assert "| algorithm=dr\\_grpo | 1/1 | 2 |" in (out / "ablation.md").read_text()
    metrics = {path: path.read_bytes() for path in out.glob("*/metrics.jsonl")}
    logs = {path: path.read_bytes() for path in out.glob("*.log")}
    assert len(metrics) == len(logs) == 2
    results = (out / "results.json").read_bytes()
    second = ablate(tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr
    assert second.stderr.count("was trained before") == 2
    assert {path: path.read_bytes() for path in metrics} == metrics
    assert {path: path.read_bytes() for path in logs} == logs
    assert (out / "results.json").read_bytes() == results
