"""The page of an ablation: what is better than the baseline, how good each variant got, and what it took."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.evaluation import plots
from skyrl_nat.evaluation.ablation.results import Ablation, CurvePoint, VariantResult
from skyrl_nat.evaluation.ablation.running import Ended
from skyrl_nat.evaluation.folder import write_json
from skyrl_nat.evaluation.pages import Block, Details, Figure, Heading, Page, Table, Text, shown, write_page

NAME = "ablation"
RESULTS = "results.json"
END = ("variant", "runs", "tasks", "success", "from", "to", "lowest seed", "highest seed", "gain")
REWARD = ("variant", "reward", "from", "to", "gain")
AGAINST = ("variant", "tasks", "rose", "fell", "success", "from", "to", "p", "p corrected", "reward", "p corrected")


def write_ablation(found: Ablation, asked: dict[str, Any], failed: Sequence[Ended], folder: Path) -> list[Path]:
    """Write `results.json`, `ablation.md` and `ablation.html`, and return the two to look at."""
    write_json(folder / RESULTS, {**found.to_dict(), "failed": {each.run: each.exit_code for each in failed}})
    title = f"{len(found.variants)} variants of a training"
    return write_page(Page(title, _blocks(found, asked, failed)), folder, NAME)


def sentences(found: Ablation) -> list[str]:
    """Return what is to be said of each variant but the baseline."""
    return [f"{name}: {against.verdict.sentence}" for name, against in found.against.items()]


def failure(ended: Ended) -> str:
    """Return how a run failed."""
    return f"{ended.run} failed with exit code {ended.exit_code}: {ended.last_line or 'it printed nothing'}"


def _blocks(found: Ablation, asked: dict[str, Any], failed: Sequence[Ended]) -> list[Block]:
    baseline, *_ = found.variants
    level = f"{found.settings.confidence:.0%}"
    return [
        Table(
            ("variant", "verdict"),
            [(name, against.verdict.sentence) for name, against in found.against.items()],
            f"Each variant against {baseline.name}, on the same held-out tasks",
        ),
        *(Text(f"Beware: {note}.") for note in found.notes),
        *(Text(f"{failure(ended)}.") for ended in failed),
        Heading("Held-out tasks at the end"),
        Table(
            END,
            [_success(variant) for variant in found.variants],
            f"Seeds averaged per task; intervals of {level} over tasks; gain over the first evaluation",
        ),
        Table(REWARD, [_reward(variant) for variant in found.variants]),
        *_pictures(found, level),
        Heading("Against the baseline"),
        Table(
            AGAINST,
            [_against(name, found) for name in found.against],
            "Differences, exact sign test of success, signed-rank test of reward; corrected by Holm over the variants",
        ),
        Heading("What it took"),
        Table(
            ("variant", f"rollouts until success {found.threshold:g}", "rollouts in all", "training s", "GPU s"),
            [_cost(variant) for variant in found.variants],
            "Means over seeds; rollouts that were trained, seconds of trained steps",
        ),
        Details("What was asked", json.dumps(asked, indent=1)),
    ]


def _success(variant: VariantResult) -> list[str | float | None]:
    success = variant.success
    seeds = [share for share in variant.success_by_seed.values() if share is not None]
    return [
        variant.name,
        f"{len(variant.seeds)}/{variant.num_runs}",
        variant.num_tasks - variant.num_without_verdict,
        success["value"],
        success["low"],
        success["high"],
        min(seeds, default=None),
        max(seeds, default=None),
        variant.success_gain,
    ]


def _reward(variant: VariantResult) -> list[str | float | None]:
    reward = variant.reward
    return [variant.name, reward["value"], reward["low"], reward["high"], variant.reward_gain]


def _pictures(found: Ablation, level: str) -> list[Block]:
    shares = {
        variant.name: (float(share["value"]), float(share["low"] or 0), float(share["high"] or 0))
        for variant in found.variants
        if (share := variant.success)["value"] is not None
    }
    curves = _curves(found)
    if not shares or not curves:
        return []
    chosen = "" if len(curves) == len(shares) else f"; baseline and the best {len(curves) - 1} others"
    lines = {name: ([p.rollouts for p in curve], [p.success for p in curve]) for name, curve in curves.items()}
    bands = {name: ([p.lowest for p in curve], [p.highest for p in curve]) for name, curve in curves.items()}
    return [
        Figure(
            plots.intervals(shares, x_label="success on held-out tasks", bounds=(0.0, 1.0)),
            f"Success at the end with intervals of {level}",
        ),
        Figure(
            plots.lines(lines, x_label="rollouts trained", y_label="success on held-out tasks", bands=bands),
            "Success on held-out tasks while training: mean over seeds; the band goes from the lowest to the highest"
            f"{chosen}",
        ),
    ]


def _curves(found: Ablation) -> dict[str, tuple[CurvePoint, ...]]:
    """Return curves by name; of more variants than there are colours the baseline's and the best ones'."""
    baseline, *others = found.variants
    ranked = sorted((each for each in others if each.curve), key=lambda each: -each.curve[-1].success)
    best = {each.name for each in (baseline, *ranked[: len(plots.COLOURS) - 1])}
    return {each.name: each.curve for each in found.variants if each.name in best and each.curve}


def _against(name: str, found: Ablation) -> list[str | float | None]:
    success, reward = found.against[name].success, found.against[name].reward
    of_reward = [reward.difference, reward.adjusted_p] if reward else [None, None]
    if success is None:
        return [name, *[None] * 8, *of_reward]
    return [
        name,
        success.num_tasks,
        success.num_wins,
        success.num_losses,
        success.difference,
        success.interval.low,
        success.interval.high,
        success.test.p,
        success.adjusted_p,
        *of_reward,
    ]


def _cost(variant: VariantResult) -> list[str | float | None]:
    needed, reached = variant.rollouts_needed, variant.mean_rollouts_needed
    num_reached = sum(number is not None for number in needed.values())
    missed = f"reached by {num_reached} of {len(needed)}" if num_reached else "not reached"
    return [
        variant.name,
        shown(reached) if reached is not None or not needed else missed,
        variant.curve[-1].rollouts if variant.curve else None,
        variant.train_s,
        variant.gpu_s,
    ]
