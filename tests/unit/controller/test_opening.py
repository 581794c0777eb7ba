"""Whether a run has anything left to do, by what its folder holds."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.config.load import load_config
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller import evaluate as evaluating
from skyrl_nat.controller import opening
from skyrl_nat.controller.evaluate import EVALUATIONS, is_evaluated
from skyrl_nat.controller.opening import finished_step
from skyrl_nat.evaluation.evaluator import summarize


def config_of(folder: Path, *overrides: str) -> RunConfig:
    return load_config([f"root_dir={folder}", "name=run", "resume=latest", "trainer.tasks_per_step=5", *overrides])


def save(folder: Path, step: int) -> None:
    manager = CheckpointManager(folder / "run" / "checkpoints")
    manager.commit(manager.begin(step), {"step": step})


@pytest.mark.parametrize(
    ("step", "overrides", "expected"),
    [
        (4, ("trainer.steps=6",), None),
        (6, ("trainer.steps=6",), 6),
        (6, ("trainer.steps=4",), 6),
        (6, ("trainer.steps=7",), None),
        (4, ("trainer.steps=0", "trainer.epochs=3"), None),
        (6, ("trainer.steps=0", "trainer.epochs=3"), 6),
        (6, ("trainer.steps=6", "evaluation.before_and_after=true"), None),
    ],
)
def test_a_run_is_finished_with_its_last_step_and_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, overrides: tuple[str, ...], expected: int | None
) -> None:
    """CK-05: 10 rows, batches of 5, 3 epochs are 6 steps; what is left after 6 is at most the evaluation."""
    monkeypatch.setattr(opening, "load_data", lambda config: SimpleNamespace(train_tasks=range(10)))
    save(tmp_path, step)
    assert finished_step(config_of(tmp_path, "evaluation.before_and_after=false", *overrides)) == expected


def test_once_evaluated_it_is_finished(tmp_path: Path) -> None:
    config = config_of(tmp_path, "trainer.steps=6", "evaluation.before_and_after=true")
    assert finished_step(config) is None, "nothing is saved"
    save(tmp_path, 6)
    path = config.run_dir / EVALUATIONS
    path.write_text(json.dumps({"step": 0, "num_tasks": 2}) + "\n")
    assert finished_step(config) is None
    path.write_text(path.read_text() + json.dumps({"step": 6, "num_tasks": 2}) + "\n")
    assert finished_step(config) == 6


def test_an_evaluation_done_again_replaces_its_line_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / EVALUATIONS
    assert not is_evaluated(tmp_path, 0)
    for step in (0, 2, 4, 2):
        evaluating._record(path, summarize(step, []))
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [0, 4, 2]
    assert is_evaluated(tmp_path, 2)
    assert not is_evaluated(tmp_path, 3)
