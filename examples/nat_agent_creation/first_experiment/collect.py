"""Put the ways of several seeds together: success of each stage by level, and whether GRPO gained over SFT.

usage: collect.py RESULTS.json FOLDER [FOLDER ...]

Each FOLDER is one of family_training/stages.py. Seeds are averaged within a task, so that tasks are what is counted.
`start`, `sft` and `grpo` have success by split and level; `p_value_grpo_vs_sft` is of all held-out tasks together, and
`grpo_vs_sft` has the same test of every split and level; `failures` says what was wrong with held-out
answers, `curves` how each seed learned. Beside the file: learning_curve.png.
"""

import itertools
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "family_training"))
from results import about, evaluated_steps, policies_of, pyplot

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.analysis.failures import kind_of
from skyrl_nat.evaluation.comparison import compare
from skyrl_nat.evaluation.figures import figures
from skyrl_nat.evaluation.folder import write_json
from skyrl_nat.evaluation.scores import averaged, judged, success
from skyrl_nat.evaluation.sources import read_source
from skyrl_nat.json_lines import with_reasons
from skyrl_nat.types import RolloutGroup

STAGES = {"start": "untrained", "sft": "start", "grpo": "trained"}
"""Name in the results -> policy of a seed's folder."""
AFTER = {name: policy for name, policy in STAGES.items() if name != "start"}
ALL = "all"
NUM_KINDS = 8
"""Of findings that are told."""
WINDOW = 10
"""Steps that a point of the curve is the mean of."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
UNPRINTED = ("settings", "versions", "curves")
Groups = Sequence[RolloutGroup]


def collect(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the results of the experiment as JSON data.

    Raises:
        DataError: A part of it is missing, or a seed is there twice.
    """
    missing = [str(folder) for folder in folders if not all((folder / name).is_dir() for name in ("sft", "grpo"))]
    if missing:
        raise DataError(f"every folder must hold the runs sft and grpo, {', '.join(missing)} does not. Start it again")
    runs = [about(folder) for folder in folders]
    seeds = [run["seed"] for run in runs]
    if len(set(seeds)) < len(seeds):
        raise DataError(f"Every folder must be of another seed, found {seeds}. Name each once")
    policies = [policies_of(folder) for folder in folders]
    stages = {name: averaged(found[policy].groups for found in policies) for name, policy in STAGES.items()}
    rollout = runs[0]["settings"]["grpo"]
    tests = {
        name: {level: _test(_of_level(stages, name, level)) for level in (ALL, *_levels(stages, name))}
        for name in (ALL, *_splits(stages))
    }
    found = {
        "seeds": seeds,
        "evaluation": {"temperature": rollout["eval_temperature"], "rollouts_per_task_and_seed": 1},
        **{stage: {name: _success(found, name) for name in _splits(stages)} for stage, found in stages.items()},
        "p_value_grpo_vs_sft": tests[ALL][ALL]["p"],
        "verdict": tests[ALL][ALL]["verdict"],
        "grpo_vs_sft": tests,
        "gpu_minutes": [run["gpu_minutes"] for run in runs],
        "seconds": [run["seconds"] for run in runs],
        "device": runs[0]["device"],
        "settings": runs[0]["settings"],
        "versions": runs[0]["versions"],
        "failures": {name: _failures([each[policy].groups for each in policies]) for name, policy in AFTER.items()},
        "curves": {str(seed): _curves(folder) for seed, folder in zip(seeds, folders, strict=True)},
    }
    return json.loads(json.dumps(with_reasons(found)))


def _failures(seeds: Sequence[Groups]) -> dict[str, list[dict[str, Any]]]:
    """Return for each split the first findings of its failed answers of level 1; names and numbers do not count."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for group in (group for groups in seeds for group in groups if group.task.difficulty == 1):
        for rollout in judged(group):
            if not success(rollout):
                found = rollout.reward.findings if rollout.reward else []
                kinds[_split(group)][kind_of(found[0]) if found else "(no finding)"] += 1
    return {
        split: [{"what": what, "answers": number} for what, number in counted.most_common(NUM_KINDS)]
        for split, counted in sorted(kinds.items(), reverse=True)
    }


def _curves(folder: Path) -> dict[str, Any]:
    """Return success by step of GRPO: of training tasks as sampled, and of held-out ones of level 1 by split."""
    lines = [json.loads(line) for line in (folder / "grpo" / "metrics.jsonl").open(encoding="utf-8")]
    trained = [line for line in lines if "loss/policy" in line]
    held_out: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for step in evaluated_steps(folder / "grpo"):
        groups = read_source(f"{folder / 'grpo'}@{step}", "greedy").groups
        for split, levels in ((name, _success(groups, name)) for name in sorted({_split(group) for group in groups})):
            held_out[split] += [(step, levels["level 1"]["value"])] if "level 1" in levels else []
    return {
        "train_success": [[line["step"], round(line["rollout/success/mean"], 4)] for line in trained],
        "held_out_level_1": held_out,
        "step_s": [round(line["time/step_s"], 2) for line in trained],
    }


def draw(curves: Mapping[str, Any], path: Path) -> None:
    """Draw all seeds: training tasks as means of `WINDOW` steps, held-out ones as dots."""
    figure, axes = pyplot.subplots(figsize=(6.4, 4.0), dpi=120)
    for (seed, found), colour in zip(curves.items(), itertools.cycle(COLOURS), strict=False):
        values = [value for _, value in found["train_success"]]
        parts = [values[start : start + WINDOW] for start in range(0, len(values), WINDOW)]
        middles = [WINDOW * number + len(part) / 2 for number, part in enumerate(parts)]
        means = [sum(part) / len(part) for part in parts]
        axes.plot(middles, means, color=colour, linewidth=1.2, label=f"training tasks, as sampled, seed {seed}")
        for (split, points), style in zip(found["held_out_level_1"].items(), ("s:", "o--"), strict=False):
            axes.plot(*zip(*points, strict=True), style, color=colour, label=f"{split}, level 1, greedy, seed {seed}")
    axes.set(xlabel="GRPO step", ylabel="success", ylim=(0, 1.15))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7, ncols=2, loc="upper center")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _success(groups: Groups, split: str) -> dict[str, Any]:
    """Return success of all levels and of each, of the tasks of one split."""
    found = figures([group for group in groups if _split(group) == split])
    levels = {level: one["success"] for level, one in found["by_difficulty"].items()}
    return {ALL: found["success"], **levels, "without_verdict": found["num_without_verdict"]}


def _test(pair: tuple[Groups, Groups]) -> dict[str, Any]:
    found = compare(*pair)
    return {
        "num_tasks": found.num_tasks,
        "sft": found.success.before,
        "grpo": found.success.after,
        "gain": found.success.difference,
        "interval": [found.success.interval.low, found.success.interval.high],
        "rose": found.success.num_wins,
        "fell": found.success.num_losses,
        "p": found.success.test.p,
        "test": found.success.test.name,
        "verdict": found.success_verdict.sentence,
    }


def _of_level(stages: Mapping[str, Groups], split: str, level: str) -> tuple[Groups, Groups]:
    """Return what SFT and GRPO played of a split, or of all, and of a level, or of all."""
    sft, grpo = (
        [
            group
            for group in stages[name]
            if split in (ALL, _split(group)) and level in (ALL, f"level {group.task.difficulty}")
        ]
        for name in ("sft", "grpo")
    )
    return sft, grpo


def _levels(stages: Mapping[str, Groups], split: str) -> list[str]:
    return sorted({f"level {group.task.difficulty}" for group in stages["grpo"] if split in (ALL, _split(group))})


def _splits(stages: Mapping[str, Groups]) -> list[str]:
    return sorted({_split(group) for group in stages["grpo"]}, reverse=True)


def _split(group: RolloutGroup) -> str:
    """Return the split of a data set that a task is of: `validation` or `other_families`."""
    return group.task.task_id.split("/")[1]


def main() -> int:
    """Write the file and print what it says."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        results = collect([Path(name) for name in sys.argv[2:]])
    except (DataError, OSError) as error:
        print(f"collect: {error}", file=sys.stderr)
        return 2
    write_json(Path(sys.argv[1]), results)
    draw(results["curves"], Path(sys.argv[1]).with_name("learning_curve.png"))
    print(json.dumps({name: value for name, value in results.items() if name not in UNPRINTED}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
