"""Stable-Baselines3 learns a Jira environment to its optimum, and leaves what the example promises."""

import importlib
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "examples/jira_workflow"


def test_ppo_reaches_the_optimal_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    sb3 = importlib.import_module("sb3")
    environment_id = "skyrl_nat/JiraIssueResolution-v0"
    told = sb3.train("ppo", environment_id, timesteps=60_000, seed=0, out=tmp_path)
    assert told["reward_min"] == pytest.approx(0.94)
    assert told["is_optimal"]
    assert told["steps"] <= 60_000
    assert json.loads((tmp_path / "metadata.json").read_text(encoding="utf-8")) == told
    assert {"seed", "date", "versions", "reward_mean", "reward_max", "steps"} <= told.keys()
    for name in ("model.zip", "best_model.zip", "evaluations.npz"):
        assert (tmp_path / name).is_file()
    assert list((tmp_path / "tensorboard").rglob("events.*"))
    judges = sb3.make_environments(environment_id, 1, 99)
    assert sb3.returns_of(sb3.load(tmp_path), judges) == pytest.approx([0.94] * sb3.NUM_EPISODES)
