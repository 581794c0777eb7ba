"""What the runs of `stages.py` say: figures of every policy, paired comparisons, the learning curve.

usage: results.py OUT    (writes OUT/results.json and OUT/learning_curve.png again)
"""

import csv
import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import yaml
from scipy import stats

from skyrl_nat.evaluation.comparison import compare
from skyrl_nat.evaluation.comparison_report import write_comparison
from skyrl_nat.evaluation.figures import figures
from skyrl_nat.evaluation.folder import write_json
from skyrl_nat.evaluation.measures import Measure
from skyrl_nat.evaluation.sources import Source, read_source
from skyrl_nat.json_lines import with_reasons
from skyrl_nat.rollouts.recorded import read_groups

mpl.use("Agg")
from matplotlib import pyplot

SECONDS = "seconds.tsv"
"""Stage and wall-clock seconds, one line for each start of a stage."""
RESULTS, CURVE = "results.json", "learning_curve.png"
NUM_STEPS = 3
"""Of the beginning and of the end, whose rewards in training are compared."""
PRINTED = ("comparisons", "train_reward", "seconds", "gpu_minutes")
SHOWN = ("success", "reward", "outcomes", "num_tasks", "num_without_verdict", "by_difficulty")
SETTINGS = {
    "trainer": ("steps", "epochs", "tasks_per_step", "rollouts_per_task", "micro_batch_tokens"),
    "optimizer": ("lr", "warmup_steps", "schedule"),
    "rollout": ("temperature", "eval_temperature", "max_turns", "max_new_tokens"),
    "environment": ("max_difficulty",),
    "engine": ("kind", "dtype", "sleep", "gpu_memory_fraction"),
}
"""Section of the config -> keys that are told."""
Curve = list[tuple[int, float]]
"""Step and value."""


def write_results(out: Path) -> dict[str, Any]:
    """Write results and curve, print what matters, and return the results as JSON data.

    Args:
        out: Folder of `stages.py`; what was imitated is there where there is a run `sft`.

    Raises:
        DataError: An evaluation is missing.
    """
    policies = policies_of(out)
    lines = [json.loads(line) for line in (out / "grpo" / "metrics.jsonl").open(encoding="utf-8")]
    train = [(line["step"], line["rollout/reward/mean"]) for line in lines if "loss/policy" in line]
    held_out = [
        (line["step"], line["eval/rollout/reward/mean"]) for line in lines if "eval/rollout/reward/mean" in line
    ]
    results = {
        **about(out),
        "evaluated_steps": evaluated_steps(out / "grpo"),
        "trained_steps": len(train),
        "policies": {name: shown(source) for name, source in policies.items()},
        "comparisons": {
            f"trained_vs_{name}": compared(source, policies["trained"], out / f"trained_vs_{name}")
            for name, source in policies.items()
            if name != "trained"
        },
        "train_reward": train_reward(out / "grpo" / "rollouts"),
        "curves": {"train_reward": train, "held_out_reward": held_out},
        "step_s": [round(line["time/step_s"], 2) for line in lines if "time/step_s" in line],
    }
    results = json.loads(json.dumps(with_reasons(results)))
    write_json(out / RESULTS, results)
    draw(train, held_out, out / CURVE, title=f"{results['family']}, {results['device']}")
    print(json.dumps({name: results[name] for name in PRINTED}, indent=1))
    return results


def policies_of(out: Path) -> dict[str, Source]:
    """Return what `untrained` (where there is a run `sft`), `start` and `trained` played of the held-out tasks.

    Raises:
        DataError: An evaluation is missing.
    """
    untrained = {"untrained": read_source(f"{out / 'sft'}@0", "greedy")} if (out / "sft").is_dir() else {}
    start = min(evaluated_steps(out / "grpo"), default=0)
    return untrained | {
        "start": read_source(f"{out / 'grpo'}@{start}", "greedy"),
        "trained": read_source(str(out / "grpo"), "greedy"),
    }


def about(out: Path) -> dict[str, Any]:
    """Return what was run, on what, and how long it took."""
    runs = [name for name in ("sft", "grpo") if (out / name).is_dir()]
    configs = {name: yaml.safe_load((out / name / "config.yaml").read_text(encoding="utf-8")) for name in runs}
    config, seconds = configs["grpo"], seconds_of(out / SECONDS)
    cluster = config["cluster"]
    num_gpus = cluster["num_gpus_per_node"] * cluster["num_nodes"] if cluster["device"] == "cuda" else 0
    return {
        "date": time.strftime("%Y-%m-%d"),
        "family": config["environment"]["family"],
        "seed": config["seed"],
        "device": card() if num_gpus else "cpu",
        "versions": json.loads((out / "grpo" / "versions.json").read_text(encoding="utf-8")),
        "settings": {name: settings_of(each) for name, each in configs.items()},
        "seconds": seconds,
        "gpu_minutes": round(num_gpus * sum(seconds.values()) / 60, 2),
    }


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of a run's config its figures depend on most."""
    return {key: config[section][key] for section, keys in SETTINGS.items() for key in keys}


def evaluated_steps(run: Path) -> list[int]:
    """Return the steps whose policies played the held-out tasks, in order."""
    path = run / "evaluations.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return sorted({json.loads(line)["step"] for line in lines})


def shown(source: Source) -> dict[str, Any]:
    """Return what is told of one policy."""
    found = figures(source.groups)
    return {name: found[name] for name in SHOWN} | {"parts": found["parts"]}


def compared(before: Source, after: Source, page: Path) -> dict[str, Any]:
    """Return the paired tests of two evaluations, and write their page."""
    found = compare(before.groups, after.groups)
    write_comparison(found, before, after, page)
    return {
        "verdict": found.verdict.sentence,
        "num_tasks": found.num_tasks,
        "success": told(found.success),
        "reward": told(found.reward),
    }


def told(measure: Measure) -> dict[str, Any]:
    """Return means, difference and test of a measure."""
    names = ("before", "after", "difference", "num_wins", "num_losses", "num_ties")
    return {
        **{name: getattr(measure, name) for name in names},
        "interval": [measure.interval.low, measure.interval.high],
        "p": measure.test.p,
        "test": measure.test.name,
    }


def train_reward(rollouts: Path) -> dict[str, Any]:
    """Return mean rewards of the first and of the last steps, and the rank test of their groups' means."""
    files = sorted(rollouts.glob("train_*.jsonl"))
    num_steps = min(NUM_STEPS, len(files) // 2)
    if not num_steps:
        return {"num_steps": 0}
    first, last = (
        [mean for file in chosen for mean in group_rewards(file)] for chosen in (files[:num_steps], files[-num_steps:])
    )
    return {
        "num_steps": num_steps,
        "num_groups": [len(first), len(last)],
        "first": sum(first) / len(first),
        "last": sum(last) / len(last),
        "p": float(stats.mannwhitneyu(first, last, alternative="two-sided").pvalue),
        "test": "Mann-Whitney U over the means of groups",
    }


def group_rewards(file: Path) -> list[float]:
    """Return the mean reward of every group in a file of rollouts."""
    means = []
    for group in read_groups(file):
        rewards = [rollout.reward.total for rollout in group.valid_rollouts if rollout.reward is not None]
        means += [sum(rewards) / len(rewards)] if rewards else []
    return means


def seconds_of(file: Path) -> dict[str, float]:
    """Return the seconds of every stage, all its starts together; none where nothing was started."""
    total: dict[str, float] = defaultdict(float)
    if not file.exists():
        return {}
    with file.open(encoding="utf-8", newline="") as lines:
        for stage, seconds in csv.reader(lines, delimiter="\t"):
            total[stage] += float(seconds)
    return {stage: round(seconds, 1) for stage, seconds in total.items()}


def card() -> str:
    """Return the name of the GPU."""
    if shutil.which("nvidia-smi") is None:
        return "cuda"
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return found[0].strip() if found else "cuda"


def draw(train: Curve, held_out: Curve, path: Path, *, title: str) -> None:
    """Draw the rewards by step."""
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), dpi=120)
    axes.plot(*zip(*train, strict=True), color="#0072b2", linewidth=1.2, label="training tasks, as sampled")
    axes.plot(*zip(*held_out, strict=True), color="#d55e00", marker="o", label="held-out tasks")
    axes.set(xlabel="GRPO step", ylabel="mean reward", title=title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write_results(Path(sys.argv[1]))
