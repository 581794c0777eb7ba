"""The comparison of policies, without training: random, rule and an untrained language model."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tiny_model import make_tiny_model

from skyrl_nat.environments.jira.catalogue import load_workflows
from skyrl_nat.environments.jira.env import ENVIRONMENT_IDS

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples/jira_workflow"


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("compare")


def test_rule_reaches_the_optimum_everywhere_and_random_does_not(compare: ModuleType) -> None:
    for environment_id, optimum in zip(ENVIRONMENT_IDS, (0.94, 0.95, 0.93), strict=True):
        rule = compare.play(environment_id, compare.RulePolicy(), range(3))
        chance = compare.play(environment_id, compare.RandomPolicy(), range(3))
        assert (rule["mean"], rule["min"], rule["optimum"]) == pytest.approx((optimum,) * 3)
        assert (rule["success"], chance["success"]) == (1.0, 0.0)
        assert chance["max"] < 0.5
        assert chance == compare.play(environment_id, compare.RandomPolicy(), range(3))


def test_language_model_plays_the_same_episodes(compare: ModuleType, tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    # Its tokenizer makes many tokens of a prompt.
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4096}), encoding="utf-8")
    policy = compare.LanguagePolicy(str(folder))
    row = compare.play(ENVIRONMENT_IDS[0], policy, range(1))
    assert (row["episodes"], row["optimum"]) == (1, pytest.approx(0.94))
    assert -2.0 < row["mean"] < 0.94
    assert 1 <= row["steps"] <= 12


def run(script: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_scripts_train_and_compare_and_write_table_numbers_and_plot(tmp_path: Path) -> None:
    environment_id = ENVIRONMENT_IDS[1]
    for algorithm in ("ppo", "dqn"):
        out = tmp_path / f"{algorithm}-JiraStatusUpdate-v0-3"
        arguments = ("--env", environment_id, "--timesteps", "300", "--seed", "3", "--out", str(out))
        told = json.loads(run(f"train_{algorithm}.py", tmp_path, *arguments))
        assert (told["seed"], told["steps"] >= 300) == (3, True)
        assert (out / "model.zip").is_file()
    compared = ("--env", environment_id, "--episodes", "2", "--runs", str(tmp_path), "--out", str(tmp_path))
    run("compare.py", tmp_path, *compared, "--run-seed", "3")
    rows = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert [row["policy"] for row in rows] == ["random", "rule", "ppo", "dqn"]
    assert all(row["min"] - 1e-9 <= row["mean"] <= row["optimum"] + 1e-9 for row in rows)
    table = (tmp_path / "comparison.md").read_text(encoding="utf-8").splitlines()
    assert "| JiraStatusUpdate-v0 | rule | 0.950 | 0.950 | 0.950 | 0.950 | 100% | 5.0 |" in table
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")
    assert f"left out: ppo on {environment_id}" in run("compare.py", tmp_path, *compared)


def test_careless_plans_spell_every_name_and_go_wrong_as_often_as_they_shall(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    careless = importlib.import_module("careless_plans")
    assert all(episode["is_success"] and episode["reward"] == 1 for episode in careless.careless_episodes(0.0, 1, 0))
    episodes = list(careless.careless_episodes(0.25, 1, 0))
    assert episodes == list(careless.careless_episodes(0.25, 1, 0))
    assert 0.15 < sum(episode["is_success"] for episode in episodes) / len(episodes) < 0.4
    said = {m["content"] for e in episodes for m in e["messages"] if m["role"] == "assistant"}
    assert said <= {name for workflow in load_workflows().values() for name in workflow.tool_names}
    output = subprocess.run(
        [sys.executable, str(FOLDER / "careless_plans.py"), str(tmp_path / "new" / "plans.jsonl"), "--each", "1"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert json.loads(output.stdout)["episodes"] == len(episodes) == 240
    lines = (tmp_path / "new" / "plans.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == episodes
