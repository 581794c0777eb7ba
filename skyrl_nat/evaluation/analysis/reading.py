"""The record of a run, read from its folder: figures of steps and evaluations, and where the rollouts are."""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.analysis.series import Series
from skyrl_nat.evaluation.evaluator import EvaluationResult
from skyrl_nat.strict_json import parse_json

METRICS = "metrics.jsonl"
EVALUATIONS = "evaluations.jsonl"
ROLLOUTS = "rollouts"
TRAINED = "loss/policy"
"""Metric that only lines of trained steps have."""
KEPT = ("rollout/", "reward/", "loss/", "batch/", "time/", "gpu/idle/", "gpu/count")
"""Beginnings of the metrics that are looked at; the rest of a long run need not be held."""


@dataclass(slots=True)
class RunRecord:
    """Figures of a run, without its rollouts."""

    folder: Path
    steps: dict[int, dict[str, float]]
    """Metrics by trained step, in order."""
    evaluations: list[EvaluationResult]
    """Of the number of tasks that most evaluations share, by step."""
    notes: list[str] = field(default_factory=list[str])
    """What could not be read, a sentence each."""

    @property
    def name(self) -> str:
        """Of the run."""
        return self.folder.resolve().name

    def series(self, metric: str) -> Series:
        """Return a metric at the trained steps that have it."""
        return Series.of({step: metrics[metric] for step, metrics in self.steps.items() if metric in metrics})

    def names(self, pattern: str) -> list[str]:
        """Return the metrics whose name matches a regular expression as a whole, sorted."""
        found = {name for metrics in self.steps.values() for name in metrics if re.fullmatch(pattern, name)}
        return sorted(found)


def read_record(folder: Path) -> RunRecord:
    """Return the figures of a run.

    Raises:
        DataError: The folder holds no run, or one that has not trained a step.
    """
    if not (folder / METRICS).is_file():
        raise DataError(f"{folder} must be a run folder with {METRICS}, found none. Name one of runs/")
    notes: list[str] = []
    steps: dict[int, dict[str, float]] = {}
    for step, line in _lines(folder / METRICS, notes):
        kept = {name: float(value) for name, value in line.items() if name.startswith(KEPT) and _is_number(value)}
        steps.setdefault(step, {}).update(kept)
    trained = {step: metrics for step, metrics in sorted(steps.items()) if TRAINED in metrics}
    if not trained:
        raise DataError(
            f"{folder / METRICS} must hold a trained step, holds none. Train one first; where steps were played, look "
            "at the reasons in rollouts/: no rollout had a sampled token"
        )
    return RunRecord(folder, trained, _evaluations(folder / EVALUATIONS, notes), notes)


def rollout_files(folder: Path, label: str) -> list[tuple[int, Path]]:
    """Return step and file of all recorded batches of one kind, `train` or `eval`, in order."""
    found = ((re.fullmatch(rf"{label}_(\d+)", path.stem), path) for path in (folder / ROLLOUTS).glob("*.jsonl"))
    return sorted((int(name[1]), path) for name, path in found if name)


def _evaluations(path: Path, notes: list[str]) -> list[EvaluationResult]:
    if not path.is_file():
        notes.append(f"There is no {EVALUATIONS}: nothing can be said of held-out tasks.")
        return []
    found: list[EvaluationResult] = []
    num_others = 0
    for _, line in _lines(path, notes):
        try:
            found.append(EvaluationResult.from_dict(line))
        except (KeyError, TypeError, ValueError, AttributeError):
            num_others += 1
    if num_others:
        notes.append(f"{EVALUATIONS}: {num_others} lines hold no evaluation and are left out.")
    counts = Counter(result.num_tasks for result in found)
    most = max(counts, key=lambda number: (counts[number], number), default=0)
    if len(counts) > 1:
        notes.append(f"{len(found) - counts[most]} evaluations of another number of tasks than {most} are left out.")
    by_step = {result.step: result for result in found if result.num_tasks == most}
    return [by_step[step] for step in sorted(by_step)]


def _lines(path: Path, notes: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield step and object of every line; those that are none get one note."""
    num_lines = num_broken = 0
    with path.open("rb") as file:
        for text in file:
            if not text.strip():
                continue
            num_lines += 1
            try:
                line = parse_json(text)
                step = line["step"] + 0
            except (ValueError, RecursionError, KeyError, TypeError):
                num_broken += 1
                continue
            yield int(step), line
    if num_broken:
        notes.append(f"{path.name}: {num_broken} of {num_lines} lines are torn or no records and are left out.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
