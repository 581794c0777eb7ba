"""Run folders made by hand, with the files that a trained run has."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from evaluated import group
from groups import make_group, make_rollout

from skyrl_nat.evaluation.analysis.analyze import analyze
from skyrl_nat.evaluation.analysis.findings import Finding
from skyrl_nat.evaluation.evaluator import summarize
from skyrl_nat.json_lines import append_lines, encode_line, open_lines
from skyrl_nat.monitoring.metrics import group_metrics, with_prefix
from skyrl_nat.rollouts.recorder import RolloutRecorder
from skyrl_nat.types import FinishReason, RewardResult, Rollout, RolloutGroup, StageReport, Task, Turn

SOUND = {"loss/policy": 0.0, "loss/token_entropy": 1.0, "loss/token_kl": 0.01, "loss/clip_fraction": 0.01}
"""Metrics of training that no rule objects to."""


def judged(name: str, total: float, *, text: str = "answer", num_tokens: int = 8, **reward: Any) -> Rollout:
    """Return a rollout with a verdict."""
    turn = Turn(
        completion_text=text,
        observations=[],
        num_prompt_tokens=2,
        num_completion_tokens=num_tokens,
        finish_reason=FinishReason.STOP,
        generate_s=0.5,
        environment_s=0.1,
    )
    values = {"parts": {}, "is_success": total >= 1.0} | reward
    rollout = make_rollout(name, total, num_sampled=num_tokens, turns=[turn])
    return replace(rollout, reward=RewardResult(total=total, **values))


def group_of(index: int, rollouts: Sequence[Rollout], task_id: str = "", *, family: str = "f") -> RolloutGroup:
    """Return a group of a task of its own."""
    task = Task(task_id=task_id or f"task {index}", family=family, payload={})
    members = [replace(rollout, task=replace(rollout.task, family=family)) for rollout in rollouts]
    return RolloutGroup(task=task, index=index, rollouts=members)


def stages(**passed: bool | None) -> list[StageReport]:
    """Return reports of stages: whether each passed, None where it was not reached."""
    return [
        StageReport(
            name=name, is_ok=bool(ok), seconds=0.1, evidence="not reached" if ok is None else "" if ok else "wrong"
        )
        for name, ok in passed.items()
    ]


class RecordedRun:
    """Writes a run step by step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.recorder = RolloutRecorder(folder / "rollouts")

    def train(self, step: int, groups: Sequence[RolloutGroup], **metrics: float) -> None:
        """Write a trained step; `loss__policy=1.0` stands for `loss/policy`."""
        self.recorder.write(step, groups)
        named = {name.replace("__", "/"): value for name, value in metrics.items()}
        self._log("metrics.jsonl", {"step": step, **group_metrics(groups), **SOUND, **named})

    def evaluate(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        """Write an evaluation."""
        self.recorder.write(step, groups, label="eval")
        result = summarize(step, groups)
        self._log("metrics.jsonl", {"step": step, **with_prefix("eval", result.metrics)})
        self._log("evaluations.jsonl", result.to_dict())

    def _log(self, name: str, record: dict[str, Any]) -> None:
        with open_lines(self.folder / name) as file:
            append_lines(file, encode_line(record))


def train_run(
    folder: Path,
    play: Callable[[int, np.random.Generator], Rollout],
    *,
    num_steps: int = 30,
    family: str = "f",
    **metrics: Any,
) -> RecordedRun:
    """Write a run of 4 groups of 4 rollouts a step.

    Args:
        folder: To make.
        play: Returns a rollout of a step.
        num_steps: To train.
        family: Of the tasks.
        metrics: As for `RecordedRun.train`, or functions of the step.
    """
    run, rng = RecordedRun(folder), np.random.default_rng(0)
    for step in range(1, num_steps + 1):
        groups = [group_of(4 * step + i, [play(step, rng) for _ in range(4)], family=family) for i in range(4)]
        values = {name: value(step) if callable(value) else value for name, value in metrics.items()}
        run.train(step, groups, **values)
    return run


def evaluated_run(folder: Path, *evaluations: Sequence[Any]) -> Path:
    """Write a run of 2 groups of 4 rollouts, 10 s and 2 GPUs a step; return its folder.

    Args:
        folder: To make.
        evaluations: Rewards by task (or what `evaluated.group` takes in the place of one) at steps 0, 1, 2, ...
    """
    run = RecordedRun(folder)
    for step, rewards in enumerate(evaluations):
        if step:
            groups = [make_group(2 * step + i, [0.0, 0.0, 1.0, 1.0]) for i in range(2)]
            run.train(step, groups, time__step_s=10.0, gpu__count=2.0)
        run.evaluate(step, [group(index, [reward]) for index, reward in enumerate(rewards)])
    return folder


def findings_in(folder: Path, rule: str) -> list[Finding]:
    """Return what a rule finds in a run."""
    return [finding for finding in analyze(folder).findings if finding.rule == rule]
