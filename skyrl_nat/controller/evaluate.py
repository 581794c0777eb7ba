"""Evaluating the policy of a run on its held-out tasks."""

import json

from skyrl_nat.controller.run import Run
from skyrl_nat.evaluation.evaluator import EvaluationResult, play_tasks, summarize
from skyrl_nat.monitoring.metrics import with_prefix


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
    with (run.folder / "evaluations.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(result.to_dict()) + "\n")
    run.evaluations.append(result)
    return result
