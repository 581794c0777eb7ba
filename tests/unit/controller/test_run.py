"""When a run is over, and what it saves before that."""

import asyncio
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.config.outputs import CheckpointConfig, EvaluationConfig
from skyrl_nat.config.run import TrainerConfig
from skyrl_nat.controller import run as runs
from skyrl_nat.controller.run import Run


def run_at(step: int, rewards: list[float], patience: int, **checkpoint: Any) -> Any:
    evaluation = EvaluationConfig(patience=patience, every_steps=2)
    run = SimpleNamespace(step=step, total_steps=20, evaluations=[SimpleNamespace(reward=r) for r in rewards])
    run.config = SimpleNamespace(evaluation=evaluation, checkpoint=CheckpointConfig(**checkpoint))
    run.is_evaluation_due = lambda: Run.is_evaluation_due(run)  # type: ignore[arg-type]
    return run


@pytest.mark.parametrize(
    ("rewards", "patience", "is_over"),
    [
        ([], 1, False),
        ([0.1, 0.2], 1, False),
        ([0.1, 0.2, 0.2], 1, True),
        ([0.1, 0.3, 0.2, 0.25], 2, True),
        ([0.1, 0.3, 0.2, 0.31], 2, False),
        ([0.5, 0.4, 0.3, 0.2], 0, False),
        ([math.nan, 0.1, math.nan], 2, False),
        ([0.2, math.nan, math.nan], 2, True),
    ],
)
def test_training_ends_once_so_many_evaluations_brought_nothing_more(
    rewards: list[float], patience: int, is_over: bool
) -> None:
    """An evaluation without any verdict brings nothing."""
    assert Run.is_over(run_at(8, rewards, patience)) is is_over
    assert Run.is_over(run_at(20, rewards, patience)) is True


@pytest.mark.parametrize(("step", "patience", "is_due"), [(4, 1, True), (5, 1, False), (4, 0, False)])
def test_with_patience_every_evaluated_step_is_saved(step: int, patience: int, is_due: bool) -> None:
    """Otherwise the best one could not be kept."""
    assert Run.is_checkpoint_due(run_at(step, [0.1], patience)) is is_due


@pytest.mark.parametrize(
    ("max_minutes", "passed", "total_steps"), [(0.0, 99.0, 20), (5.0, 4.9, 20), (5.0, 5.1, 9), (5.0, 0.0, 20)]
)
def test_the_step_that_begins_when_the_time_is_over_is_the_last(
    max_minutes: float, passed: float, total_steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> None:
        begun.append(True)

    monkeypatch.setattr(runs, "minutes_of_process", lambda: passed)
    begun: list[bool] = []
    run = run_at(8, [], 0)
    run.config.trainer = TrainerConfig(max_minutes=max_minutes)
    run.account = SimpleNamespace(begin=begin)
    asyncio.run(Run.begin_step(run))
    assert (run.total_steps, begun) == (total_steps, [True])
    run.step += 1
    assert Run.is_over(run) is Run.is_evaluation_due(run) is Run.is_checkpoint_due(run) is (total_steps == 9)


def test_minutes_are_those_of_the_whole_process() -> None:
    script = (
        "import time; time.sleep(1.5); from skyrl_nat.controller.run import minutes_of_process as m; print(m() * 60)"
    )
    begun = time.monotonic()
    printed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert 1.5 <= float(printed) <= time.monotonic() - begun + 0.05


def test_a_disk_that_takes_no_topology_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "describe", lambda topology: {"lost_nodes": topology})
    said: list[str] = []
    run: Any = SimpleNamespace(folder=tmp_path, topology=["a"], console=SimpleNamespace(warn=said.append))
    Run.write_topology(run)
    (tmp_path / "topology.json.part").mkdir()
    run.topology = ["a", "b"]
    Run.write_topology(run)
    assert json.loads((tmp_path / "topology.json").read_text()) == {"lost_nodes": ["a"]}
    (text,) = said
    assert text.startswith(f"{tmp_path}/topology.json could not be written and says who was where before: ")
