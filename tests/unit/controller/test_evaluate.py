"""When held-out tasks are played at the start of a process: once, and not again after a resume."""

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.config.outputs import EvaluationConfig
from skyrl_nat.controller.evaluate import (
    EVALUATIONS,
    comparable_rewards,
    forget_later,
    is_evaluation_missing,
    known_rewards,
    recorded_evaluations,
)
from skyrl_nat.controller.run import Run
from skyrl_nat.evaluation.evaluator import EvaluationResult


def result(step: int, num_tasks: int = 3, reward: float = 0.5) -> EvaluationResult:
    return EvaluationResult(
        step=step,
        num_tasks=num_tasks,
        num_without_verdict=0,
        success=0.25,
        reward=reward,
        parts={"share": reward},
        success_by_difficulty={1: 0.25},
        metrics={"reward/mean": reward},
    )


def run_at(step: int, evaluated: list[int], **evaluation: Any) -> Run:
    run = object.__new__(Run)
    run.config = SimpleNamespace(evaluation=EvaluationConfig(**evaluation))  # type: ignore[assignment]
    run.step, run.total_steps, run.evaluations = step, 8, [result(number) for number in evaluated]
    return run


@pytest.mark.parametrize(
    ("step", "evaluated", "expected"),
    [
        (0, [], True),
        (0, [0], False),  # killed in the first step
        (3, [0], False),  # nothing is due, and there is something to compare with
        (3, [0, 2], False),
        (3, [], True),  # switched on by the resume
        (4, [0, 2], True),  # cut off
        (4, [0, 2, 4], False),
        (8, [0, 2, 4, 6], True),  # the last one was cut off
        (8, [0, 2, 4, 6, 8], False),
    ],
)
def test_evaluations_before_between_and_after(step: int, evaluated: list[int], expected: bool):
    assert is_evaluation_missing(run_at(step, evaluated, before_and_after=True, every_steps=2)) is expected


@pytest.mark.parametrize(
    ("step", "evaluated", "expected"),
    [(0, [], False), (3, [], False), (4, [2], True), (4, [2, 4], False), (8, [2, 4, 6], False)],
)
def test_evaluations_between_alone(step: int, evaluated: list[int], expected: bool):
    assert is_evaluation_missing(run_at(step, evaluated, before_and_after=False, every_steps=2)) is expected


def test_a_run_without_evaluations_misses_none():
    assert not is_evaluation_missing(run_at(4, [], before_and_after=False, every_steps=0))


def test_results_of_earlier_processes_are_those_of_the_same_tasks_up_to_the_step(tmp_path: Path):
    """Step 6 is trained anew, step 4 was evaluated on 2 tasks by hand, and step 2 again after step 6."""
    lines = [result(0), result(4, num_tasks=2), result(6), result(2, reward=0.75)]
    (tmp_path / EVALUATIONS).write_text("".join(json.dumps(line.to_dict()) + "\n" for line in lines))
    assert recorded_evaluations(tmp_path, 4, 3) == [result(0), result(2, reward=0.75)]
    assert recorded_evaluations(tmp_path / "none", 4, 3) == []


def test_rewards_are_compared_on_one_number_of_tasks(tmp_path: Path):
    """Step 8 was evaluated by hand, on 2 tasks alone; of as many evaluations those of more tasks count."""
    assert comparable_rewards(tmp_path) == {}
    lines = [result(4, reward=0.25), result(8, num_tasks=2, reward=1.0)]
    for kept, expected in ((lines, {4: 0.25}), ([*lines, result(6)], {4: 0.25, 6: 0.5})):
        (tmp_path / EVALUATIONS).write_text("".join(json.dumps(line.to_dict()) + "\n" for line in kept))
        assert comparable_rewards(tmp_path) == expected


def test_evaluations_of_steps_that_are_trained_anew_are_forgotten(tmp_path: Path):
    forget_later(tmp_path, 4)
    assert not (tmp_path / EVALUATIONS).exists()
    lines = [result(0), result(6), result(4)]
    (tmp_path / EVALUATIONS).write_text("".join(json.dumps(line.to_dict()) + "\n" for line in lines))
    forget_later(tmp_path, 4)
    assert recorded_evaluations(tmp_path, 99, 3) == [result(0), result(4)]


def test_an_evaluation_without_a_verdict_says_nothing_of_which_checkpoint_is_best():
    assert known_rewards([result(1), result(3, reward=math.nan), result(4, reward=0.25)]) == {1: 0.5, 4: 0.25}
