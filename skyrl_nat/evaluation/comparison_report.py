"""The page of a comparison: the verdict first, then what it rests on."""

import json
from collections.abc import Mapping
from pathlib import Path

from skyrl_nat.evaluation import plots
from skyrl_nat.evaluation.comparison import Comparison
from skyrl_nat.evaluation.folder import write_json
from skyrl_nat.evaluation.measures import Measure
from skyrl_nat.evaluation.pages import Block, Details, Figure, Heading, Page, Table, Text, write_page
from skyrl_nat.evaluation.pairing import Side
from skyrl_nat.evaluation.sources import Source, differences

NAME = "comparison"
COLUMNS = (
    *("", "tasks", "before", "after", "difference", "from", "to", "rose", "fell", "d_z"),
    *("p", "p corrected", "detectable", "tasks needed"),
)
SIDES = ("", "before", "from", "to", "after", "from", "to")
MOST_IDS = 40
"""Of tasks in a list."""


def write_comparison(found: Comparison, before: Source, after: Source, folder: Path) -> list[Path]:
    """Write `comparison.json`, `.md` and `.html` and return the two to look at."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = differences(before, after)
    write_json(
        folder / f"{NAME}.json",
        {"before": before.name, "after": after.name, "differences_of_settings": notes, **found.to_dict()},
    )
    return write_page(Page(f"{after.name} against {before.name}", _blocks(found, before, after, notes)), folder, NAME)


def _blocks(found: Comparison, before: Source, after: Source, notes: list[str]) -> list[Block]:
    measures = {"success": found.success, "reward": found.reward}
    level = f"{1 - found.settings.alpha:.0%}"
    blocks: list[Block] = [
        Text(f"Verdict: {found.verdict.sentence}."),
        *(Text(f"Beware: {note}.") for note in notes),
        _table(measures, f"Paired on {found.num_tasks} tasks; intervals of {level} over tasks"),
        _means(measures, f"Each side by itself, with its interval of {level} over tasks"),
        Text(f"Success: {found.success_verdict.sentence}. Reward: {found.reward_verdict.sentence}."),
    ]
    by = {
        "Success by difficulty": found.success_by_difficulty,
        "Reward by difficulty": found.reward_by_difficulty,
        "Success by family": found.success_by_family,
        "Reward by family": found.reward_by_family,
        "Parts of the reward": found.parts,
    }
    for title, kinds in by.items():
        if len(kinds) > 1:
            blocks += [Heading(title), _picture(kinds, level), _table(kinds, "p corrected by Holm over these rows")]
    blocks += [
        Heading("Tasks that changed"),
        _changed(found, before, after),
        Heading("What was compared"),
        _sides(found.before, found.after),
        *_unused("before", found.before),
        *_unused("after", found.after),
        Details("Settings", json.dumps(found.to_dict()["settings"], indent=1, sort_keys=True)),
    ]
    return blocks


def _table(measures: Mapping[str, Measure], caption: str) -> Table:
    rows = [
        [
            name,
            each.num_tasks,
            each.before,
            each.after,
            each.difference,
            each.interval.low,
            each.interval.high,
            each.num_wins,
            each.num_losses,
            each.effect_size,
            each.test.p,
            each.adjusted_p,
            each.minimum_detectable,
            each.num_tasks_needed,
        ]
        for name, each in measures.items()
    ]
    tests = "; ".join(
        dict.fromkeys(f"{name}: {each.test.name}" for name, each in measures.items() if len(measures) < 4)
    )
    return Table(COLUMNS, rows, f"{caption}{f'. Tests: {tests}' if tests else ''}")


def _means(measures: Mapping[str, Measure], caption: str) -> Table:
    rows = [
        [
            name,
            *(each.before, each.before_interval.low, each.before_interval.high),
            *(each.after, each.after_interval.low, each.after_interval.high),
        ]
        for name, each in measures.items()
    ]
    return Table(SIDES, rows, caption)


def _picture(kinds: Mapping[str, Measure], level: str) -> Figure:
    shown = {
        f"{name} (n = {each.num_tasks})": (each.difference, each.interval.low, each.interval.high)
        for name, each in kinds.items()
    }
    picture = plots.intervals(shown, x_label="after minus before", centre=0.0)
    return Figure(picture, f"Differences with intervals of {level}; left of the line the later one is worse")


def _changed(found: Comparison, before: Source, after: Source) -> Block:
    if not found.gained and not found.lost:
        return Text("None: the success of every task is as before.")
    rows = [
        ("succeeds more often", len(found.gained), _ids(found.gained)),
        ("less often", len(found.lost), _ids(found.lost)),
    ]
    return Table(("", "tasks", "which"), rows)


def _sides(before: Side, after: Side) -> Table:
    rows: list[list[str | float | None]] = [
        ["tasks given", before.num_tasks, after.num_tasks],
        ["without a verdict", len(before.without_verdict), len(after.without_verdict)],
        ["missing on the other side", len(before.unpaired), len(after.unpaired)],
        ["given more than once", len(before.repeated), len(after.repeated)],
        ["success over finished rollouts alone", before.finished_success, after.finished_success],
    ]
    outcomes = dict.fromkeys([*before.rollouts_by_outcome, *after.rollouts_by_outcome])
    rows += [
        [f"rollouts {name}", before.rollouts_by_outcome.get(name, 0), after.rollouts_by_outcome.get(name, 0)]
        for name in outcomes
    ]
    return Table(("", "before", "after"), rows)


def _unused(name: str, side: Side) -> list[Block]:
    kinds = {
        "missing on the other side": side.unpaired,
        "twice": side.repeated,
        "without a verdict": side.without_verdict,
    }
    return [Text(f"{name}, {what}: {_ids(ids)}") for what, ids in kinds.items() if ids]


def _ids(ids: tuple[str, ...]) -> str:
    rest = len(ids) - MOST_IDS
    return ", ".join(ids[:MOST_IDS]) + (f" and {rest} more" if rest > 0 else "")
