"""The report on a run: its findings first, then the figures that they stand on."""

import math

import numpy as np

from skyrl_nat.evaluation import plots
from skyrl_nat.evaluation.analysis.failure_rules import alpha_of, last_third, tested
from skyrl_nat.evaluation.analysis.failures import Clusters
from skyrl_nat.evaluation.analysis.findings import Finding
from skyrl_nat.evaluation.analysis.health_rules import phases, without_signal
from skyrl_nat.evaluation.analysis.material import REWARD, SUCCESS, Material
from skyrl_nat.evaluation.analysis.rollout_table import RolloutTable, correlations
from skyrl_nat.evaluation.analysis.series import Series, Trend
from skyrl_nat.evaluation.analysis.tally import LAST_STEPS, Tally
from skyrl_nat.evaluation.pages import Block, Details, Figure, Heading, Page, Table, Text, shown

SHOWN_EXAMPLES = 8
"""Of a kind: the page stays one that a browser opens at once."""
SHOWN_PARTS = 6
"""In one picture: more colours than that are not told apart."""
IN_PAGE = ("n", "count", "rho", "p")
"""Evidence beside a finding, whose sentence has the rest; `analysis.json` has all."""
HEALTH = {
    "loss/token_entropy": "entropy (nats per token)",
    "loss/token_kl": "distance to the reference (nats per token)",
    "loss/clip_fraction": "share of clipped tokens",
    "rollout/staleness/mean": "staleness (steps)",
    "rollout/completion_tokens/mean": "completion (tokens)",
    "reward/suspected/mean": "share of suspects",
}
DRAWN = ("loss/token_entropy", "loss/token_kl", "rollout/staleness/mean", "rollout/completion_tokens/mean")
"""Of these, where there is anything but zeros."""


def page_of(material: Material, findings: list[Finding]) -> Page:
    """Return the page of a run."""
    record = material.record
    steps = list(record.steps)
    intro = (
        f"{len(steps)} trained steps ({steps[0]} to {steps[-1]}), {len(record.evaluations)} evaluations, "
        f"{material.train.outcomes.total()} recorded rollouts of training and {material.held_out.outcomes.total()} of "
        "evaluations. How each finding is decided: docs/analysis.md. Intervals hold 95 %; what chance could have made "
        'is "cannot tell".'
    )
    rows = [(str(each.severity), each.rule, each.sentence, _numbers(each)) for each in findings]
    blocks: list[Block] = [Text(intro), *map(Text, record.notes)]
    blocks += [Heading("Findings"), Table(("", "rule", "finding", "evidence"), rows)]
    blocks += _learning(material) + _parts(material) + _failures(material) + _suspicions(material)
    blocks += _health(material) + _time(material) + _groups(material.train)
    return Page(f"Analysis of {record.name}", blocks)


def _learning(material: Material) -> list[Block]:
    blocks: list[Block] = [Heading("Learning")]
    for figure, metric in (("reward", REWARD), ("success", SUCCESS)):
        series = {"training": material.record.series(metric), "held out": material.evaluated(figure)}
        band = _band(series["training"], material.train.table, figure)
        caption = f"Mean {figure} of a step's rollouts; the band holds 95 %, over groups."
        blocks.append(Figure(_curves(series, figure, {"training": band}), caption))
    if len(material.gap) > 1:
        picture = _curves({"gap": material.gap}, "training less held-out reward")
        blocks.append(Figure(picture, "Training reward since the evaluation before, less the held-out reward."))
    levels = sorted({level for result in material.record.evaluations for level in result.success_by_difficulty})
    if len(levels) > 1:
        series = {
            f"difficulty {level}": Series.of(
                {each.step: each.success_by_difficulty.get(level, math.nan) for each in material.record.evaluations}
            )
            for level in levels
        }
        blocks.append(Figure(_curves(series, "held-out success"), "Held-out success by difficulty."))
    return blocks


def _parts(material: Material) -> list[Block]:
    parts = material.parts
    if not parts:
        return []
    series = {part.name: material.record.series(f"reward/{part.name}/mean") for part in parts[:SHOWN_PARTS]}
    weights = material.weights
    whole = sum(part.contribution or 0.0 for part in parts)
    rows = [
        (
            part.name,
            part.trend.early,
            part.trend.late,
            part.trend.change,
            _between(part.trend.low, part.trend.high),
            _direction(part.trend),
            part.weight,
            None if part.contribution is None or not whole else part.contribution / whole,
        )
        for part in parts
    ]
    caption = (
        f"Weights are those that explain the recorded totals best (R² = {weights.fit:.3f}). The share is weight times "
        "change, of the sum over all parts."
        if weights.is_good
        else "The parts do not make up the total (or it never differs), so that they have no weights."
    )
    columns = ("part", "first third", "last third", "change", "95 %", "trend", "weight", "share of change")
    blocks: list[Block] = [
        Heading("Parts of the reward"),
        Figure(_curves(series, "mean of the part"), "Parts of the training reward over time."),
        Table(columns, rows, caption),
    ]
    if len(material.train.table):
        matrix = correlations(material.train.table)
        cells = [
            (name, *(None if v is None else round(v, 2) + 0.0 for v in line.values())) for name, line in matrix.items()
        ]
        caption = f"Correlation over {len(material.train.table)} rollouts of training."
        blocks.append(Table(("", *matrix), cells, caption))
    return blocks


def _failures(material: Material) -> list[Block]:
    blocks: list[Block] = [Heading("What the validator found")]
    for tally, name in ((material.train, "training"), (material.held_out, "evaluations")):
        clusters = tally.failures
        if clusters.affected:
            judged, affected = clusters.judged.total(), clusters.affected.total()
            blocks.append(_clusters(clusters, f"Of {judged} judged rollouts of {name}, {affected} have a finding."))
    blocks += _examples(material.train.failures)
    if stages := material.train.stages:
        rows, shares = [], {}
        for name, stage in stages.items():
            wanted, reached, passed = (counts.total() for counts in (stage.wanted, stage.reached, stage.passed))
            late_wanted, _, late_passed = last_third(stage)
            rows.append((name, wanted, reached, passed, passed / wanted, late_passed / late_wanted))
            shares[name] = {"reached": reached / wanted, "passed": passed / wanted}
        columns = ("stage", "rollouts", "reach it", "pass it", "share", "share in the last third")
        blocks += [
            Figure(plots.bars(shares, y_label="share of rollouts"), "How many rollouts reach and pass each stage."),
            Table(columns, rows, "Stages of the validator, in order, in training."),
        ]
    return blocks if len(blocks) > 1 else [*blocks, Text("Nothing: no recorded rollout has a finding.")]


def _suspicions(material: Material) -> list[Block]:
    clusters = material.train.suspicions
    if not clusters.affected.total():
        return []
    caption = f"Of {clusters.judged.total()} judged rollouts, {clusters.affected.total()} are suspected."
    return [Heading("Signs of cheating"), _clusters(clusters, caption), *_examples(clusters)]


def _clusters(clusters: Clusters, caption: str) -> Table:
    judged = clusters.judged.total()
    rows = []
    for cluster in tested(clusters):
        trend = clusters.trend(cluster, alpha=alpha_of(clusters))
        steps = sorted(cluster.by_step)
        numbers = (cluster.num_rollouts, cluster.num_rollouts / judged, steps[0], steps[-1])
        rows.append((cluster.name, *numbers, trend.early, trend.late, _direction(trend)))
    columns = ("kind", "rollouts", "share", "first step", "last step", "first third", "last third", "trend")
    return Table(columns, rows, caption)


def _examples(clusters: Clusters) -> list[Block]:
    return [
        Details(
            f"{cluster.name} · rollout {each.rollout_id}, task {each.task_id}, step {each.step}",
            f"{each.finding}\n\n{each.text}",
        )
        for cluster in tested(clusters)[:SHOWN_EXAMPLES]
        if (each := cluster.example)
    ]


def _health(material: Material) -> list[Block]:
    blocks: list[Block] = [Heading("Training")]
    rows = []
    for metric, label in HEALTH.items():
        trend = material.trend(metric)
        if trend.num_points:
            change = (trend.early, trend.late, trend.change, _between(trend.low, trend.high), _direction(trend))
            rows.append((label, *change))
    blocks.append(Table(("figure", "first third", "last third", "change", "95 %", "trend"), rows))
    for metric in DRAWN:
        if (series := material.record.series(metric)).values.any():
            blocks.append(Figure(_curves({"": series}, HEALTH[metric]), HEALTH[metric].capitalize()))
    shares = {
        "clipped tokens": material.record.series("loss/clip_fraction"),
        "groups without signal": without_signal(material),
        "suspected rollouts": material.record.series("reward/suspected/mean"),
        "turns cut off": material.record.series("rollout/length_finish/mean"),
    }
    blocks.append(Figure(_curves(shares, "share"), "Shares of tokens, groups, rollouts and turns."))
    return blocks


def _time(material: Material) -> list[Block]:
    seconds = phases(material)
    if not seconds:
        return []
    values = {
        "first third": {name: trend.early for name, trend in seconds.items()},
        "last third": {name: trend.late for name, trend in seconds.items()},
    }
    picture = plots.bars(values, y_label="seconds of a step")
    return [Heading("Time"), Figure(picture, "What the controller waited for in a step.")]


def _groups(found: Tally) -> list[Block]:
    if not found.last_groups:
        return []
    picture = plots.strips(found.last_groups, x_label="rollout of the group")
    caption = f"Rewards of the groups of the last {LAST_STEPS} recorded steps, from 0 (light) to 1 (dark)."
    return [Heading("Groups of the last steps"), Figure(picture, caption)]


def _curves(series: dict[str, Series], y_label: str, bands: dict[str, plots.Points] | None = None) -> str:
    points = {name: each.thinned() for name, each in series.items() if len(each)}
    lines = {name: (each.steps.tolist(), each.values.tolist()) for name, each in points.items()}
    return plots.lines(lines, x_label="step", y_label=y_label, bands=bands)


def _band(series: Series, table: RolloutTable, figure: str) -> plots.Points:
    """Return the bounds of the mean of every block of a series, within what single rollouts have; NaN leaves a gap."""
    widths, values = table.half_widths(figure), table.column(figure)
    each = np.array([widths.get(int(step), math.nan) for step in series.steps])
    half = np.array([np.sqrt((each[block] ** 2).sum()) / len(block) for block in series.blocks()])
    centre = series.thinned().values
    low, high = (values.min(), values.max()) if len(values) else (math.nan, math.nan)
    return np.maximum(centre - half, low).tolist(), np.minimum(centre + half, high).tolist()


def _between(low: float, high: float) -> str:
    return f"{low:+.3g} to {high:+.3g}" if math.isfinite(low) and math.isfinite(high) else "—"


def _direction(trend: Trend) -> str:
    """Return what a figure does in one line of a narrow column."""
    return str(trend.direction).replace(" ", "\u00a0")


def _numbers(finding: Finding) -> str:
    evidence = finding.evidence
    return ", ".join(f"{name} = {shown(value)}" for name in IN_PAGE if (value := evidence.get(name)) is not None)
