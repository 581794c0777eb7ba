"""Evaluating the policy of a run on its held-out tasks."""

import json
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from skyrl_nat.evaluation.evaluator import EvaluationResult, play_tasks, summarize
from skyrl_nat.evaluation.folder import GREEDY, SAMPLED, EvaluationFolder
from skyrl_nat.json_lines import encode_line, replace_lines, whole_lines
from skyrl_nat.monitoring.metrics import with_prefix
from skyrl_nat.types import RolloutGroup

if TYPE_CHECKING:
    from skyrl_nat.controller.run import Run

EVALUATIONS = "evaluations.jsonl"
"""File of a run folder: one line per evaluation."""


async def evaluate(run: "Run", folder: EvaluationFolder | None = None) -> EvaluationResult:
    """Play the held-out tasks with the weights in the engines; record rollouts, metrics and a summary.

    Args:
        run: An open run.
        folder: Keeps each group, and has those that are not played again; None keeps nothing but the whole.
    """
    step = run.step
    run.account.interrupt()
    groups = await _play(run, folder, GREEDY, run.config.rollout.eval_temperature, 1)
    result = summarize(step, groups)
    run.recorder.write(step, groups, label="eval")
    run.tracker.log(step, with_prefix("eval", result.metrics))
    _record(run.folder / EVALUATIONS, result)
    run.evaluations = [found for found in run.evaluations if found.step < step] + [result]
    run.rewards |= known_rewards([result])
    return result


async def sample(run: "Run", folder: EvaluationFolder, num_rollouts: int) -> None:
    """Play every held-out task several times at the temperature of training, into a folder."""
    await _play(run, folder, SAMPLED, run.config.rollout.temperature, num_rollouts)


async def _play(
    run: "Run", folder: EvaluationFolder | None, label: str, temperature: float, num_rollouts: int
) -> list[RolloutGroup]:
    tasks = run.data.validation_tasks
    kept = {} if folder is None else folder.kept(label, num_rollouts)
    played = f", {len(kept)} of them were played before" if kept else ""
    run.console.status(f"evaluating {len(tasks)} held-out tasks at step {run.step} ({label}){played}")
    async with run.rollout_phase("evaluate"):
        groups = await play_tasks(
            run.runner,
            tasks,
            temperature=temperature,
            num_rollouts=num_rollouts,
            kept=kept,
            keep=None if folder is None else lambda group: folder.keep(label, group),
        )
    if folder is not None:
        folder.finish(label, groups)
    return groups


def is_evaluation_missing(run: "Run") -> bool:
    """Return whether held-out tasks must be played before training goes on.

    At the beginning of a run, and where a kill cut off the evaluation of the step that a resumed one goes on from.
    """
    if run.evaluations and run.evaluations[-1].step == run.step:
        return False
    return run.is_evaluation_due() or (run.config.evaluation.before_and_after and not run.evaluations)


def is_evaluated(folder: Path, step: int) -> bool:
    """Return whether the run in a folder has evaluated the policy of a step."""
    return any(found == step for found, *_ in _recorded(folder / EVALUATIONS))


def recorded_evaluations(folder: Path, last_step: int, num_tasks: int) -> list[EvaluationResult]:
    """Return the results in a run folder up to a step, oldest first; those of another number of tasks are left out."""
    found = [
        EvaluationResult.from_dict(json.loads(line))
        for step, number, line in _recorded(folder / EVALUATIONS)
        if step <= last_step and number == num_tasks
    ]
    return sorted(found, key=lambda result: result.step)


def known_rewards(results: Iterable[EvaluationResult]) -> dict[int, float]:
    """Return rewards by step; an evaluation without a verdict has none."""
    return {result.step: result.reward for result in results if math.isfinite(result.reward)}


def comparable_rewards(folder: Path) -> dict[int, float]:
    """Return rewards by step of the run in a folder, on the number of tasks that most of its evaluations share."""
    found = _recorded(folder / EVALUATIONS)
    counts = Counter(number for _, number, _ in found)
    most = max(counts, key=lambda number: (counts[number], number), default=0)
    return known_rewards(EvaluationResult.from_dict(json.loads(line)) for _, number, line in found if number == most)


def forget_later(folder: Path, step: int) -> None:
    """Drop the evaluations of later steps, which are trained anew."""
    found = _recorded(folder / EVALUATIONS)
    kept = [line for number, _, line in found if number <= step]
    if len(kept) < len(found):
        replace_lines(folder / EVALUATIONS, kept)


def _record(path: Path, result: EvaluationResult) -> None:
    """Add a result; one of the same tasks at the same step, from before a resume, gives way."""
    lines = [line for (*what, line) in _recorded(path) if what != [result.step, result.num_tasks]]
    replace_lines(path, [*lines, encode_line(result.to_dict()).rstrip(b"\n")])


def _recorded(path: Path) -> list[tuple[int, int, bytes]]:
    """Return step, number of tasks and line of every evaluation so far."""
    lines = whole_lines(path.read_bytes(), path) if path.exists() else []
    return [(entry["step"], entry["num_tasks"], line) for line in lines for entry in [json.loads(line)]]
