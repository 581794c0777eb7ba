"""Run the trainer on the story family as a user would, and read its own metrics."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from story_family import NAME, SUBJECTS

from skyrl_nat.data.specs import write_tasks
from skyrl_nat.types import Task

PARTS = ("rollout", "reward", "train", "push", "step")


def measure(name: str, steps: int, folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Train `steps + 1` steps and return the medians of all but the first, seconds by part.

    Args:
        name: Of the run, a folder below `folder`.
        steps: Measured steps.
        folder: Takes tasks and run.
        overrides: What differs from the defaults.
    """
    tasks = [Task(task_id=subject, family=NAME, payload={"subject": subject}) for subject in SUBJECTS]
    write_tasks(tasks[:-1], folder / "train.parquet")
    write_tasks(tasks[-1:], folder / "validation.parquet")
    common = [
        f"name={name}",
        f"root_dir={folder}",
        f"environment.family='{NAME}'",
        f"environment.train_files=[{folder / 'train.parquet'}]",
        f"environment.validation_files=[{folder / 'validation.parquet'}]",
        f"trainer.steps={steps + 1}",
        "rollout.max_turns=1",
        "evaluation.before_and_after=false",
        "checkpoint.save_final=false",
        "tracking.backends=[jsonl]",
    ]
    here = str(Path(__file__).resolve().parent)
    path = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", "skyrl_nat.cli", "train", *overrides, *common]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": path})
    lines = [json.loads(line) for line in (folder / name / "metrics.jsonl").open()][1:]
    for line in lines:
        # Environments and verdicts follow the last completion here: all groups end together.
        line["reward"] = line["rollout/environment_s/mean"] + line["rollout/score_s/max"]
        line["rollout"] = line["time/rollout_s"] - line["reward"]
        line |= {part: line[f"time/{part}_s"] for part in ("train", "push", "step")}
    result: dict[str, Any] = {part: statistics.median(line[part] for line in lines) for part in PARTS}
    result["completion_tokens"] = statistics.mean(line["rollout/completion_tokens/mean"] for line in lines)
    result["steps_s"] = [line["step"] for line in lines]
    result["logprob_difference"] = statistics.mean(line["loss/rollout_logprob_diff"] for line in lines)
    return result
