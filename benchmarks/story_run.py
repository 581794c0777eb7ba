"""Run the trainer on the story family as a user would, and read its own metrics."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from bars import GRACE_S, RUNS
from story_family import NAME, SUBJECTS

from skyrl_nat.data.specs import write_tasks
from skyrl_nat.types import Task

PARTS = ("rollout", "reward", "train", "push", "step")
HERE = Path(__file__).resolve().parent


@dataclass
class TrainedRun:
    """What a run left."""

    steps: list[dict[str, Any]]
    """Its metrics, one entry per trained step."""
    error: str
    """Empty where it ended by itself with 0, else how it ended and the end of its output."""
    alarms: list[str]


def layout(*, num_gpus: int, is_apart: bool = False, num_policy_ranks: int = 0, gpus_per_engine: int = 1) -> list[str]:
    """Return overrides for bf16 with vLLM on the first GPUs of this machine, or for one CPU where it has none.

    Args:
        num_gpus: In all. Each has a policy rank and a part of an engine; with `is_apart` one of the two.
        is_apart: Engines on cards of their own.
        num_policy_ranks: With `is_apart`; the other cards are the engines'. 0 takes half.
        gpus_per_engine: Over which an engine is spread (tensor parallel).
    """
    if not torch.cuda.is_available():
        placement = "disaggregated" if is_apart else "colocated"
        return ["engine=vllm", "cluster=cpu", "weight_sync=gloo", f"cluster.placement={placement}"]
    ranks = (num_policy_ranks or num_gpus // 2) if is_apart else num_gpus
    return [
        "engine=vllm_gpu",
        "cluster=h100x1",
        "model.compute_dtype=bfloat16",
        f"cluster.num_gpus_per_node={num_gpus}",
        f"cluster.num_policy_ranks={ranks}",
        f"cluster.num_engines={(num_gpus - ranks if is_apart else num_gpus) // gpus_per_engine}",
        f"cluster.num_gpus_per_engine={gpus_per_engine}",
        *(
            ["weight_sync=nccl", "cluster.placement=disaggregated", "engine.gpu_memory_fraction=0.85"]
            if is_apart
            else ["weight_sync=ipc"]
        ),
    ]


def work_overrides(options: Any, *, budget: int = 32768) -> list[str]:
    """Return what makes a step the one that the options ask for (`bars.add_work`).

    Args:
        options: With model, tasks, rollouts and tokens.
        budget: Tokens of a micro-batch; more where a rollout needs it.
    """
    longest = options.tokens + 256
    return [
        f"model.path={options.model}",
        f"trainer.tasks_per_step={options.tasks}",
        f"trainer.rollouts_per_task={options.rollouts}",
        f"trainer.micro_batch_tokens={max(budget, longest)}",
        f"rollout.max_new_tokens={options.tokens}",
        f"rollout.max_total_tokens={longest}",
    ]


def story_overrides(name: str, folder: Path, num_steps: int, num_tasks: int = 0) -> list[str]:
    """Write the tasks and return what makes a run play them.

    Args:
        name: Of the run, a folder below `folder`.
        folder: Takes tasks and run.
        num_steps: Of the run.
        num_tasks: Training tasks; more than there are subjects give numbered parts. 0 takes every subject but one.
    """
    numbered = [(SUBJECTS[n % len(SUBJECTS)], n) for n in range(num_tasks)]
    subjects = [f"{subject}, part {n}" for subject, n in numbered] or list(SUBJECTS[:-1])
    for split, chosen in (("train", subjects), ("validation", SUBJECTS[-1:])):
        tasks = [Task(task_id=subject, family=NAME, payload={"subject": subject}) for subject in chosen]
        write_tasks(tasks, folder / f"{split}.parquet")
    return [
        f"name={name}",
        f"root_dir={folder}",
        f"environment.family='{NAME}'",
        f"environment.train_files=[{folder / 'train.parquet'}]",
        f"environment.validation_files=[{folder / 'validation.parquet'}]",
        f"trainer.steps={num_steps}",
        "rollout.max_turns=1",
        *QUIET,
    ]


ACCOUNT = ("time/", "gpu/", "throughput/", "push/", "train/mfu", "step/mfu", "rollout/bandwidth_share")
QUIET = ("evaluation.before_and_after=false", "checkpoint.save_final=false", "tracking.backends=[jsonl]")


def train(folder: Path, overrides: Sequence[str], timeout_s: float) -> TrainedRun:
    """Run `skyrl-nat train` to its end, or for so long, and return what it left either way.

    Args:
        folder: The run's own; its output goes there, to `output.log`.
        overrides: All of them.
        timeout_s: Afterwards the run is told to end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))
    log, metrics = folder / "output.log", folder / "metrics.jsonl"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "skyrl_nat.cli", "train", *overrides],
            env={**os.environ, "PYTHONPATH": path},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        RUNS.add(process)
        error = _wait(process, metrics, timeout_s)
        RUNS.discard(process)
    printed = log.read_text(errors="replace")
    lines = [json.loads(line) for line in metrics.open()] if metrics.exists() else []
    return TrainedRun(
        steps=[line for line in lines if "loss/policy" in line],
        error=f"{error}; its output ends with: {printed[-1500:]}" if error else "",
        alarms=[line for line in printed.splitlines() if "ALARM" in line],
    )


def _wait(process: subprocess.Popen[bytes], metrics: Path, timeout_s: float) -> str:
    """Wait for the end of a run, print how far it is, and end what is left of it; return what was wrong."""
    deadline = time.monotonic() + timeout_s
    shown = 0
    try:
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(1.0)
                return f"exit code {code}" if code else ""
            lines = metrics.read_text().rpartition("\n")[0].splitlines() if metrics.exists() else []
            for step in map(json.loads, lines[shown:]):
                print(f"{metrics.parent.name}: step {step['step']} in {step.get('time/step_s', 0):.1f} s", flush=True)
            shown = len(lines)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return f"not over after {timeout_s:.0f} s"


def measure(name: str, steps: int, folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Train `steps + 1` steps and return the medians of all but the first, seconds by part.

    Args:
        name: Of the run, a folder below `folder`.
        steps: Measured steps.
        folder: Takes tasks and run.
        overrides: What differs from the defaults.

    Raises:
        RuntimeError: The run failed.
    """
    run = train(folder / name, [*overrides, *story_overrides(name, folder, steps + 1)], timeout_s=3600)
    if run.error:
        raise RuntimeError(run.error)
    lines = run.steps[1:]
    for line in lines:
        # Environments and verdicts follow the last completion here: all groups end together.
        line["reward"] = line["rollout/environment_s/mean"] + line["rollout/score_s/max"]
        line |= {part: line[f"time/{part}_s"] for part in ("train", "push", "step")}
        # Engines begin as soon as they have the weights, before the step's record is written.
        line["rollout"] = line["step"] - line["train"] - line["push"] - line["reward"]
    result: dict[str, Any] = {part: statistics.median(line[part] for line in lines) for part in PARTS}
    result["completion_tokens"] = statistics.mean(line["rollout/completion_tokens/mean"] for line in lines)
    result["steps_s"] = [line["step"] for line in lines]
    result["logprob_difference"] = statistics.mean(line["loss/rollout_logprob_diff"] for line in lines)
    result["account"] = account(lines)
    return result


def account(steps: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the medians of what a run says of its own time: where the seconds of every GPU went."""
    names = sorted(name for name in steps[-1] if name.startswith(ACCOUNT))
    return {name: statistics.median(step[name] for step in steps if name in step) for name in names}
