"""Stable-Baselines3 learns a Jira environment to its optimum, and leaves what the example promises."""

import importlib
import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "examples/jira_workflow"


@pytest.mark.parametrize(
    ("algorithm", "name", "optimum"),
    [
        ("ppo", "JiraIssueResolution-v0", 0.94),
        ("ppo", "JiraStatusUpdate-v0", 0.95),
        ("ppo", "JiraCommentManagement-v0", 0.93),
        ("dqn", "JiraIssueResolution-v0", 0.94),
    ],
)
def test_the_optimal_return_is_reached_in_five_minutes(
    algorithm: str, name: str, optimum: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    sb3 = importlib.import_module("sb3")
    environment_id = f"skyrl_nat/{name}"
    told = sb3.train(algorithm, environment_id, timesteps=60_000, seed=0, out=tmp_path)
    assert told["reward_min"] == pytest.approx(optimum)
    assert told["is_optimal"]
    assert told["steps"] <= 60_000
    assert told["seconds"] < 300
    assert json.loads((tmp_path / "metadata.json").read_text(encoding="utf-8")) == told
    assert {"seed", "date", "versions", "reward_mean", "reward_max", "steps"} <= told.keys()
    for name in ("model.zip", "best_model.zip", "evaluations.npz"):
        assert (tmp_path / name).is_file()
    assert list((tmp_path / "tensorboard").rglob("events.*"))
    assert len(list((tmp_path / "checkpoints").glob("*.zip"))) == told["steps"] // 20_000
    judges = sb3.make_environments(environment_id, 1, 99)
    assert sb3.returns_of(sb3.load(tmp_path), judges) == pytest.approx([optimum] * sb3.NUM_EPISODES)
