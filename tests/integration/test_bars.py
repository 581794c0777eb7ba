"""The scripts behind the bars run on a CPU, in a small form."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_model import make_tiny_model

pytestmark = pytest.mark.long
ROOT = Path(__file__).parents[2]
SMALL = ("engine=hf", "weight_sync=host")


def measure(folder, script, *arguments, hidden_size=64, overrides=SMALL, result="result.json"):
    model, output = make_tiny_model(folder / "model", hidden_size=hidden_size), folder / "result.json"
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(ROOT / "benchmarks" / script), str(model), "--output", str(output)]
    subprocess.run([*command, *arguments, *overrides], check=True, env={**os.environ, "PYTHONPATH": path}, timeout=240)
    return json.loads((folder / result).read_text())


def test_steps_ahead_train_the_rollouts_that_were_planned(tmp_path):
    small = ("--tasks", "2", "--rollouts", "4", "--mean", "16", "--steps", "4", "--variants", "s0", "s1")
    result = measure(tmp_path, "async_vs_sync.py", *small)
    variants = result["raw"]["variants"]
    assert result["value"] == variants["s0"]["step_mean_s"] / variants["s1"]["step_mean_s"]
    assert all(row["plan"]["seconds"]["step"] > 0 for row in variants.values())
    assert [variants[name]["staleness_max"] for name in ("s0", "s1")] == [0.0, 1.0]
    assert all(0.7 < row["trained_over_planned"] <= 1 and not row["error"] for row in variants.values())
    assert abs(variants["s1"]["trained_over_planned"] - variants["s0"]["trained_over_planned"]) < 0.05


def test_pushes_are_timed_and_their_checksums_equal(tmp_path):
    result = measure(tmp_path, "weight_push.py", "--pushes", "2", "--variants", "colocated")
    found = result["raw"]["colocated"]
    assert found["checksums_equal"] and result["value"] == found["median_s"] > 0
    assert len(found["pushes_s"]) == 3


def test_a_gap_is_that_of_rounding_in_fp32(tmp_path):
    result = measure(tmp_path, "logprob_gap.py", "--tasks", "2", "--rollouts", "4", "--tokens", "12")
    for name in ("bf16", "head", "residual", "head_and_residual"):
        found = result["raw"][name]
        assert found["rollouts"] == 8
        assert 0 <= found["mean"] <= found["quantiles"]["0.99"] <= found["max"] < 1e-3


def test_a_run_is_held_against_its_plan(tmp_path):
    small = ("--tasks", "1", "--rollouts", "2", "--tokens", "8", "--steps", "1", "--bar", "I1")
    raw = measure(tmp_path, "large_model.py", *small)["raw"]
    assert (raw["error"], raw["num_steps"]) == ("", 1)
    assert raw["plan"]["peak_gib"] > 0
    assert raw["plan"]["seconds"].keys() >= {"rollout", "train", "push", "step"}


def test_scaling_gives_every_card_the_same_work(tmp_path):
    small = ("--cards", "1", "2", "--tasks", "1", "--rollouts", "2", "--tokens", "8", "--steps", "1")
    result = measure(tmp_path, "scaling.py", *small)
    runs, found = result["raw"]["runs"], result["raw"]["efficiencies"]
    assert [f"trainer.tasks_per_step={number}" in runs[number]["overrides"] for number in ("1", "2")] == [True, True]
    assert found["1"] == {"train": 1, "rollout": 1}
    assert result["value"] == min(found["2"]["train"] / 0.9, found["2"]["rollout"] / 0.95) > 0


def test_presets_are_run_and_a_bad_end_is_counted(tmp_path):
    small = ("--steps", "1", "--presets", "grpo", "--forms", "full", "--streams", "1")
    result = measure(tmp_path, "preset_runs.py", *small, "optimizer.max_skipped_steps=0")
    assert (result["value"], result["met"]) == (1.0, False)
    assert "optimizer.max_skipped_steps" in result["raw"]["runs"][0]["error"]


def test_rollouts_and_steps_are_timed_beside_peers(tmp_path):
    # Attention kernels of vLLM on CPU want a head size of at least 32.
    small = ("--tasks", "2", "--rollouts", "2", "--tokens", "8", "--steps", "2", "--engines", "1", "--peers", "raw")
    raw = measure(tmp_path, "against_peers.py", *small, hidden_size=128, overrides=(), result="result-P1.json")["raw"]
    assert raw["ours"]["1"]["ratio"] == raw["ours"]["1"]["tokens_per_s"] / raw["raw"]["tokens_per_s"] > 0


def test_start_of_an_engine_is_taken_apart(tmp_path):
    # Attention kernels of vLLM on CPU want a head size of at least 32.
    room = ("rollout.max_new_tokens=32", "rollout.max_total_tokens=128")
    result = measure(tmp_path, "engine_start.py", "--starts", "1", hidden_size=128, overrides=room)
    (found,) = result["raw"]["starts"]
    assert found["python_and_torch"] + found["import_vllm"] + found["start"] < found["total"] == result["value"]
    assert any("weights took" in line for line in found["log"])
