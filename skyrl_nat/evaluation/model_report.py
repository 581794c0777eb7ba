"""The report of one evaluation, written into its folder from the rollouts that lie there.

evaluation.json     every figure
tasks.csv           one line per task
report.md, .html    to look at
"""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.evaluation import plots
from skyrl_nat.evaluation.figures import figures
from skyrl_nat.evaluation.folder import GREEDY, SAMPLED, read_about, write_json
from skyrl_nat.evaluation.pages import Block, Details, Figure, Heading, Page, Table, Text, write_page
from skyrl_nat.evaluation.scores import judged, score_of, success
from skyrl_nat.monitoring.metrics import mean
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.types import Rollout, RolloutGroup

RESULT = "evaluation.json"
TASKS = "tasks.csv"
MOST_EXAMPLES = 8
MOST_LETTERS = 4000
"""Of an example's completion."""
COLUMNS = ("task_id", "family", "difficulty", "label", "rollouts", "successes", "reward", "turns", "tokens", "outcome")


def write_report(folder: Path) -> list[Path]:
    """Write all files of a report and return those to look at.

    Raises:
        DataError: The folder holds no evaluation.
    """
    played = read_played(folder)
    about = read_about(folder) or {}
    found = {label: figures(groups) for label, groups in played.items()}
    write_json(folder / RESULT, {"about": about, **found})
    _write_tasks(folder / TASKS, played)
    return write_page(
        Page(f"Evaluation of {about.get('model', folder.name)}", _blocks(about, found, played)), folder, "report"
    )


def read_played(folder: Path) -> dict[str, list[RolloutGroup]]:
    """Return the groups of an evaluation by label."""
    return {
        label: read_groups(folder / f"{label}.jsonl")
        for label in (GREEDY, SAMPLED)
        if (folder / f"{label}.jsonl").is_file()
    }


def _write_tasks(path: Path, played: Mapping[str, Sequence[RolloutGroup]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for label, groups in played.items():
            writer.writerows(_row(label, group) for group in groups)


def _row(label: str, group: RolloutGroup) -> list[Any]:
    found, score = judged(group), score_of(group)
    return [
        group.task.task_id,
        group.task.family,
        group.task.difficulty,
        label,
        len(group.rollouts),
        round(sum(map(success, found))),
        "" if score is None else score.reward,
        "" if score is None else mean(len(rollout.turns) for rollout in found),
        "" if score is None else mean(rollout.num_loss_tokens for rollout in found),
        " ".join(sorted({str(rollout.outcome) for rollout in group.rollouts})),
    ]


def _blocks(
    about: Mapping[str, Any], found: Mapping[str, Any], played: Mapping[str, Sequence[RolloutGroup]]
) -> list[Block]:
    blocks: list[Block] = [
        Text(_headline(found)),
        Table(
            ("", "tasks", "success", "from", "to", "reward", "from", "to", "of finished", "no verdict"),
            [_overview(label, each) for label, each in found.items()],
            "Every task counts once; intervals of 95 %",
        ),
    ]
    for label, each in found.items():
        blocks += _of_label(label, each, played[label])
    blocks += _together(found)
    blocks += [Heading("What went wrong"), *_failures([group for groups in played.values() for group in groups])]
    return [*blocks, Heading("What was evaluated"), Details("Settings", json.dumps(about, indent=1, sort_keys=True))]


def _headline(found: Mapping[str, Any]) -> str:
    label, each = next(iter(found.items()))
    share = each["success"]
    if share["value"] is None:
        return "No task has a verdict: evaluate again."
    text = (
        f"{share['value']:.1%} of {share['n']} tasks succeed ({label}; 95 % interval "
        f"{share['low']:.1%} to {share['high']:.1%})."
    )
    lost = sum(one["num_without_verdict"] for one in found.values())
    return text + (f" {lost} tasks have no verdict: evaluate again, only those are played." if lost else "")


def _overview(label: str, each: Mapping[str, Any]) -> list[str | float | None]:
    share, reward = each["success"], each["reward"]
    bounds = [share["value"], share["low"], share["high"], reward["value"], reward["low"], reward["high"]]
    return [label, each["num_tasks"], *bounds, each["success_of_finished"]["value"], each["num_without_verdict"]]


def _of_label(label: str, each: Mapping[str, Any], groups: Sequence[RolloutGroup]) -> list[Block]:
    parts = {**each["by_difficulty"], **(each["by_family"] if len(each["by_family"]) > 1 else {})}
    shown = {
        f"{name} (n = {one['success']['n']})": tuple(one["success"][bound] for bound in ("value", "low", "high"))
        for name, one in parts.items()
    }
    blocks: list[Block] = [Heading(f"Success, {label}")]
    if shown:
        blocks.append(
            Figure(
                plots.intervals(shown, x_label="success", bounds=(0.0, 1.0)),
                "Success by part of the data, 95 % intervals",
            )
        )
    if each["pass_at_k"]:
        passed = each["pass_at_k"]
        places = [int(k) for k in passed]
        curve = {"pass@k": (places, [one["value"] for one in passed.values()])}
        band = {"pass@k": ([one["low"] for one in passed.values()], [one["high"] for one in passed.values()])}
        blocks.append(
            Figure(plots.lines(curve, x_label="k", y_label="pass@k", bands=band), "Chance that one of k works")
        )
        rows = {group.task.task_id: [success(rollout) for rollout in group.rollouts] for group in groups}
        blocks.append(Figure(plots.strips(rows, x_label="rollout"), "Which rollouts of a task succeeded"))
    return blocks


def _together(found: Mapping[str, Any]) -> list[Block]:
    """Return what is shown of all labels side by side: parts of the reward, and metrics."""
    blocks: list[Block] = []
    if parts := _columns(found, "parts"):
        values = {
            name: {label: value for label, value in row.items() if value is not None} for name, row in parts.items()
        }
        blocks += [Heading("Parts of the reward"), Figure(plots.bars(values, y_label="mean"), "Mean of every part")]
    rows = [[name, *row.values()] for name, row in _columns(found, "metrics").items()]
    return [*blocks, Heading("Metrics, named as in training"), Table(("", *found), rows)]


def _columns(found: Mapping[str, Any], what: str) -> dict[str, dict[str, float | None]]:
    names = sorted({name for each in found.values() for name in each[what]})
    return {name: {label: each[what].get(name) for label, each in found.items()} for name in names}


def _failures(groups: Sequence[RolloutGroup]) -> list[Block]:
    """Return how often each first finding of a failed rollout was made, with an example."""
    counts: Counter[str] = Counter()
    examples: dict[str, Rollout] = {}
    for group in groups:
        for rollout in group.rollouts:
            if not success(rollout):
                what = _finding(rollout)
                counts[what] += 1
                examples.setdefault(what, rollout)
    if not counts:
        return [Text("Nothing.")]
    common = counts.most_common(MOST_EXAMPLES)
    table = Table(("first finding", "rollouts"), [(what[:200], number) for what, number in common])
    return [
        table,
        *(Details(f"{examples[what].task.task_id}: {what[:120]}", _last_words(examples[what])) for what, _ in common),
    ]


def _finding(rollout: Rollout) -> str:
    if rollout.reward is not None and rollout.reward.findings:
        return rollout.reward.findings[0]
    return f"{rollout.outcome}: {rollout.reason}" if rollout.reason else str(rollout.outcome)


def _last_words(rollout: Rollout) -> str:
    return rollout.turns[-1].completion_text[-MOST_LETTERS:] if rollout.turns else ""
