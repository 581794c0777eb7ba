"""What came out: each variant's held-out tasks with the seeds averaged per task, and each against the first one."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.ablation.sweep import JUDGING, WEIGHTS, Sweep, Variant
from skyrl_nat.evaluation.analysis.reading import read_record, rollout_files
from skyrl_nat.evaluation.comparison import reward_values, success_values
from skyrl_nat.evaluation.figures import Figure, reward_of, success_of
from skyrl_nat.evaluation.measures import ComparisonSettings, Measure, measures_of
from skyrl_nat.evaluation.pairing import Pair, join
from skyrl_nat.evaluation.scores import averaged, score_of
from skyrl_nat.evaluation.statistics import mean
from skyrl_nat.evaluation.verdict import Decision, Verdict, verdict_of, verdict_of_both
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.types import RolloutGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """An evaluation of a run."""

    step: int
    rollouts: int
    """Trained until then."""
    success: float
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A run that ended well."""

    seed: int
    points: tuple[Point, ...]
    """Evaluations with a verdict, in order."""
    groups: tuple[RolloutGroup, ...]
    """Of the last one."""
    train_s: float
    """Wall clock of all trained steps."""
    gpu_s: float | None
    """The same times the GPUs held; None where their number was not recorded."""

    def rollouts_needed(self, threshold: float) -> int | None:
        """Return the rollouts trained until success first reached a share; None where it never did."""
        return next((point.rollouts for point in self.points if point.success >= threshold), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Evaluations at one step of all runs of a variant."""

    step: int
    rollouts: float
    """Mean over seeds, like the next."""
    success: float
    lowest: float
    """Of the seeds."""
    highest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantResult:
    """What a variant came to; means are over the runs that ended well, None where there are none."""

    name: str
    overrides: tuple[str, ...]
    num_runs: int
    """That were asked for."""
    seeds: tuple[int, ...]
    """Of the runs that ended well."""
    num_tasks: int
    num_without_verdict: int
    """Tasks of which no run has a verdict; in no mean."""
    success: Figure
    """At the end: mean over tasks, seeds averaged per task."""
    success_by_seed: dict[str, float | None]
    success_gain: float | None
    """Last evaluation minus first."""
    reward: Figure
    reward_gain: float | None
    rollouts_needed: dict[str, int | None]
    """Seed -> rollouts trained until success first reached the threshold; None where it never did."""
    train_s: float | None
    """Mean over seeds."""
    gpu_s: float | None
    curve: tuple[CurvePoint, ...]

    @property
    def mean_rollouts_needed(self) -> float | None:
        """Mean over seeds; None where one of them never reached the threshold."""
        needed = [number for number in self.rollouts_needed.values() if number is not None]
        return mean(needed) if needed and len(needed) == len(self.rollouts_needed) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Against:
    """A variant against the baseline, on the same tasks."""

    verdict: Verdict
    success: Measure | None
    """p corrected by Holm over all variants, as the next; None where the two cannot be joined."""
    reward: Measure | None
    """None too where rewards are on different scales."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ablation:
    """All that an ablation found."""

    threshold: float
    notes: tuple[str, ...]
    """What to beware of."""
    variants: tuple[VariantResult, ...]
    """The baseline first."""
    against: dict[str, Against]
    """By name, of all but the baseline."""
    settings: ComparisonSettings

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data."""
        return {**asdict(self), "baseline": self.variants[0].name}


def read_results(
    sweep: Sweep, root: Path, *, failed: Iterable[str], threshold: float, unlike: Sequence[str] = ()
) -> Ablation:
    """Read all runs and compare.

    Args:
        sweep: What was trained.
        root: Folder of the runs.
        failed: Names of runs that did not end well; nothing is read of them.
        threshold: Share of held-out tasks for `rollouts_needed`.
        unlike: From `check_configs`.

    Raises:
        DataError: A run that ended well cannot be read.
    """
    missing, settings = set(failed), ComparisonSettings()
    runs: dict[str, list[RunResult]] = {}
    for variant in sweep.variants:
        planned = [sweep.run(variant, seed, root) for seed in sweep.seeds]
        runs[variant.name] = [read_run(root / run.name, run.seed) for run in planned if run.name not in missing]
    played = {name: averaged([run.groups for run in found]) for name, found in runs.items()}
    return Ablation(
        threshold=threshold,
        notes=(*(f"The variants differ in {key}: {JUDGING[key]}" for key in unlike), *_notes(sweep, runs)),
        variants=tuple(
            _variant(variant, runs[variant.name], played[variant.name], len(sweep.seeds), threshold)
            for variant in sweep.variants
        ),
        against=compared(played, settings, is_rewarded_alike=WEIGHTS not in unlike),
        settings=settings,
    )


def read_run(folder: Path, seed: int) -> RunResult:
    """Read a run that ended well.

    Raises:
        DataError: It holds no run, or none that was evaluated.
    """
    record = read_record(folder)
    files = dict(rollout_files(folder, "eval"))
    if not record.evaluations or record.evaluations[-1].step not in files:
        raise DataError(f"{folder} must hold an evaluation with its rollouts, it does not. Train it again")
    trained = record.steps.items()
    points = (
        Point(
            step=result.step,
            rollouts=int(sum(_number(each, "rollout/num_valid") for step, each in trained if step <= result.step)),
            success=result.success,
            reward=result.reward,
        )
        for result in record.evaluations
    )
    gpu_s = [_number(step, "time/step_s") * step.get("gpu/count", math.nan) for step in record.steps.values()]
    return RunResult(
        seed=seed,
        points=tuple(point for point in points if math.isfinite(point.success)),
        groups=tuple(read_groups(files[record.evaluations[-1].step])),
        train_s=math.fsum(_number(step, "time/step_s") for step in record.steps.values()),
        gpu_s=math.fsum(gpu_s) if math.isfinite(sum(gpu_s)) else None,
    )


def compared(
    played: Mapping[str, Sequence[RolloutGroup]], settings: ComparisonSettings, *, is_rewarded_alike: bool
) -> dict[str, Against]:
    """Compare each variant with the first one; p is corrected by Holm over the variants.

    Args:
        played: Tasks by variant, the baseline first; none of one without a run.
        settings: Of the tests.
        is_rewarded_alike: Whether rewards are on one scale.
    """
    (_, baseline), *others = played.items()
    pairs: dict[str, Sequence[Pair]] = {}
    reasons: dict[str, str] = {}
    for name, groups in others:
        try:
            pairs[name] = join(
                baseline,
                groups,
                max_unmatched_share=settings.max_unmatched_share,
                max_lost_gap=settings.max_lost_gap,
            ).pairs
        except DataError as error:
            reasons[name] = str(error) if baseline and groups else "no run ended well of one of the two"
    success, reward = (
        dict(zip(pairs, measures_of([read(each) for each in pairs.values()], settings), strict=True))
        for read in (success_values, reward_values)
    )
    if not is_rewarded_alike:
        reward = {}
    return {name: _against(success.get(name), reward.get(name), settings, reasons.get(name, "")) for name, _ in others}


def _against(success: Measure | None, reward: Measure | None, settings: ComparisonSettings, reason: str) -> Against:
    if success is None:
        verdict = Verdict(decision=Decision.cannot_tell, sentence=f"cannot tell: {reason}")
    elif reward is None:
        verdict = verdict_of(success, settings)
    else:
        verdict = verdict_of_both(success, reward, settings)
    return Against(verdict=verdict, success=success, reward=reward)


def _notes(sweep: Sweep, runs: Mapping[str, Sequence[RunResult]]) -> list[str]:
    notes = []
    if len(sweep.seeds) == 1:
        notes.append(
            "There is one seed: how much another seed would change is not in the intervals, which are over tasks"
        )
    else:
        notes.append("Intervals are over tasks; how far seeds lie apart is told beside them, not in them")
    seeds = {tuple(run.seed for run in found) for found in runs.values()}
    if len(seeds) > 1:
        notes.append("Not all variants have the same seeds, because runs failed: means are over the others")
    return notes


def _variant(
    variant: Variant, runs: Sequence[RunResult], played: Sequence[RolloutGroup], num_runs: int, threshold: float
) -> VariantResult:
    scored = [(group, score) for group in played if (score := score_of(group)) is not None]
    gains = [(run.points[-1], run.points[0]) for run in runs if run.points]
    gpu_s = [run.gpu_s for run in runs if run.gpu_s is not None]
    return VariantResult(
        name=variant.name,
        overrides=variant.overrides,
        num_runs=num_runs,
        seeds=tuple(run.seed for run in runs),
        num_tasks=len(played),
        num_without_verdict=len(played) - len(scored),
        success=success_of(scored),
        success_by_seed={str(run.seed): run.points[-1].success if run.points else None for run in runs},
        success_gain=_mean([last.success - first.success for last, first in gains]),
        reward=reward_of(scored),
        reward_gain=_mean([last.reward - first.reward for last, first in gains]),
        rollouts_needed={str(run.seed): run.rollouts_needed(threshold) for run in runs},
        train_s=_mean([run.train_s for run in runs]),
        gpu_s=_mean(gpu_s) if len(gpu_s) == len(runs) else None,
        curve=tuple(_curve(runs)),
    )


def _curve(runs: Sequence[RunResult]) -> Iterable[CurvePoint]:
    by_step: dict[int, list[Point]] = defaultdict(list)
    for run in runs:
        for point in run.points:
            by_step[point.step].append(point)
    for step, points in sorted(by_step.items()):
        if len(points) == len(runs):
            shares = [point.success for point in points]
            yield CurvePoint(
                step=step,
                rollouts=mean(point.rollouts for point in points),
                success=mean(shares),
                lowest=min(shares),
                highest=max(shares),
            )


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def _number(metrics: Mapping[str, float], name: str) -> float:
    return metrics.get(name, 0.0)
