"""Folders as the runs of examples/family_training leave them."""

import json
from collections.abc import Callable
from pathlib import Path

from evaluated import group

from skyrl_nat.config.load import load_config, save_config
from skyrl_nat.rollouts.recorder import write_groups
from skyrl_nat.types import RolloutGroup


def run_folder(
    out: Path,
    name: str,
    rewards: dict[int, list[float]],
    trained: dict[int, list[float]],
    *,
    seed: int = 4,
    make: Callable[[int, list[float]], RolloutGroup] = group,
) -> None:
    """Write what a run leaves: held-out rewards by step, and rewards of one group a task of trained steps."""
    run = out / name
    (run / "rollouts").mkdir(parents=True)
    save_config(load_config(["experiment=task_dag_h100x1", f"name={name}", f"seed={seed}"]), run / "config.yaml")
    (run / "versions.json").write_text('{"python": "3.12"}')
    lines = []
    for step, values in rewards.items():
        write_groups(run / "rollouts" / f"eval_{step:06d}.jsonl", [make(i, [r]) for i, r in enumerate(values)])
        lines.append({"step": step, "eval/rollout/reward/mean": sum(values) / len(values)})
    for step, values in trained.items():
        write_groups(run / "rollouts" / f"train_{step:06d}.jsonl", [group(i, [r, r]) for i, r in enumerate(values)])
        mean = sum(values) / len(values)
        means = {"rollout/reward/mean": mean, "rollout/success/mean": mean}
        lines.append({"step": step, **means, "loss/policy": 0.0, "time/step_s": 2.0})
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (run / "evaluations.jsonl").write_text("".join(json.dumps({"step": step}) + "\n" for step in rewards))
