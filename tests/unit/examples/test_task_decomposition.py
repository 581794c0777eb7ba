"""Careless plans: whole answers of the protocol, wrong as often as they shall be, and held-out requests beside them."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.task_dag.generate import is_near
from skyrl_nat.environments.task_dag.payload import parse_request

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "examples/task_decomposition/careless_plans.py"


@pytest.fixture(scope="module")
def careless() -> ModuleType:
    spec = importlib.util.spec_from_file_location("careless_task_plans", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_plans_keep_to_the_protocol_and_go_wrong_as_often_as_they_shall(careless: ModuleType) -> None:
    tasks = load_tasks(["builtin:task_dag/train"], max_difficulty=2)
    faultless = list(careless.careless_episodes(tasks[:20], 0.0, 1, 0))
    assert all(episode["is_success"] and episode["reward"] == 1 for episode in faultless)
    # Answers that broke it, or plans with a fault, would raise.
    episodes = list(careless.careless_episodes(tasks, 0.1, 1, 0))
    assert episodes == list(careless.careless_episodes(tasks, 0.1, 1, 0))
    assert 0.3 < sum(episode["is_success"] for episode in episodes) / len(episodes) < 0.5


def test_plans_of_all_sizes_with_many_faults_keep_to_the_protocol(careless: ModuleType) -> None:
    episodes = list(careless.careless_episodes(load_tasks(["builtin:task_dag/train"]), 0.5, 1, 0))
    assert sum(episode["is_success"] for episode in episodes) / len(episodes) < 0.1


def test_the_files_hold_plans_and_requests_that_were_not_trained_on(careless: ModuleType, tmp_path: Path) -> None:
    plans, held_out = tmp_path / "new" / "plans.jsonl", tmp_path / "new" / "held_out.parquet"
    output = subprocess.run(
        [sys.executable, str(SCRIPT), str(plans), str(held_out), "--requests", "480", "--each", "1"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    trained = [parse_request(t.payload) for t in load_tasks(["builtin:task_dag/train"])]
    asked = load_tasks([str(held_out)], family="task_dag", max_difficulty=2)
    found = json.loads(output.stdout)
    assert (found["episodes"], found["held_out"]) == (len(plans.read_text().splitlines()), len(asked)) == (192, 96)
    assert not any(is_near(parse_request(task.payload), other) for task in asked for other in trained)
    words = " ".join(need for request in trained for need in request.needs).split()
    assert {word for task in asked for need in parse_request(task.payload).needs for word in need.split()} <= {*words}
