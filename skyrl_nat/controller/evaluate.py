"""Evaluating the policy of a run on its held-out tasks."""

import json
import math
from pathlib import Path

from skyrl_nat.controller.run import Run
from skyrl_nat.evaluation.evaluator import EvaluationResult, play_tasks, summarize
from skyrl_nat.json_lines import encode_line, replace_lines, whole_lines
from skyrl_nat.monitoring.metrics import with_prefix

EVALUATIONS = "evaluations.jsonl"
"""File of a run folder: one line per evaluation."""


async def evaluate(run: Run) -> EvaluationResult:
    """Play the held-out tasks with the weights in the engines; record rollouts, metrics and a summary."""
    step = run.step
    run.console.status(f"evaluating {len(run.data.validation_tasks)} held-out tasks at step {step}")
    run.account.interrupt()
    async with run.rollout_phase("evaluate"):
        groups = await play_tasks(
            run.runner, run.data.validation_tasks, temperature=run.config.rollout.eval_temperature
        )
    result = summarize(step, groups)
    run.recorder.write(step, groups, label="eval")
    run.tracker.log(step, with_prefix("eval", result.metrics))
    _record(run.folder / EVALUATIONS, result)
    run.evaluations.append(result)
    if math.isfinite(result.reward):
        run.rewards[step] = result.reward
    return result


def is_evaluated(folder: Path, step: int) -> bool:
    """Return whether the run in a folder has evaluated the policy of a step."""
    return any(found == step for found, *_ in _recorded(folder / EVALUATIONS))


def recorded_rewards(folder: Path, num_tasks: int) -> dict[int, float]:
    """Return the reward of every evaluation in a run folder that was of so many tasks, by step."""
    entries = [json.loads(line) for _, number, line in _recorded(folder / EVALUATIONS) if number == num_tasks]
    return {entry["step"]: entry["reward"] for entry in entries if entry["reward"] is not None}


def _record(path: Path, result: EvaluationResult) -> None:
    """Add a result; one of the same tasks at the same step, from before a resume, gives way."""
    lines = [line for (*what, line) in _recorded(path) if what != [result.step, result.num_tasks]]
    replace_lines(path, [*lines, encode_line(result.to_dict()).rstrip(b"\n")])


def _recorded(path: Path) -> list[tuple[int, int, bytes]]:
    """Return step, number of tasks and line of every evaluation so far."""
    lines = whole_lines(path.read_bytes(), path) if path.exists() else []
    return [(entry["step"], entry["num_tasks"], line) for line in lines for entry in [json.loads(line)]]
