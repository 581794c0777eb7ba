"""A reward learned from manual labels: logistic regression on `FEATURES`, calibrated, plain numbers in a JSON file."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces.calibration import Quality
from skyrl_nat.data.traces.features import FEATURES, feature_values
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.errors import DataError
from skyrl_nat.strict_json import parse_json

FORMAT = "skyrl-nat/learned-reward/1"
MIN_LABELS = 20
MIN_PER_CLASS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedReward:
    """Probability that a trace is good: `sigmoid(slope * (weights . z + bias) + offset)`, z the standardized features.

    A part of the reward: call it with a trace. Predicting needs no scikit-learn.
    """

    feature_names: tuple[str, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    """Above 0."""
    weights: tuple[float, ...]
    bias: float
    slope: float
    """Of the calibration; 0 where the labels could not be told apart, so that the share of good ones is predicted."""
    offset: float
    seed: int
    quality: Quality
    """Of the same procedure on traces held out; the model itself is trained on all of them."""

    def __call__(self, trace: Trace) -> float:
        """Return the probability that a trace is good."""
        score = sum(self.contributions(trace).values()) + self.bias
        return _sigmoid(self.slope * score + self.offset)

    def contributions(self, trace: Trace) -> dict[str, float]:
        """Return what each feature adds to the score before calibration; positive speaks for good."""
        columns = zip(self.feature_names, feature_values(trace), self.means, self.scales, self.weights, strict=True)
        return {name: weight * (value - mean) / scale for name, value, mean, scale, weight in columns}

    def save(self, path: Path) -> None:
        """Write it as JSON; the same model gives the same bytes."""
        values = {"format": FORMAT, **asdict(self), "quality": self.quality.to_dict()}
        path.write_text(json.dumps(values, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def train_reward(traces: Sequence[Trace], labels: Mapping[str, bool], *, seed: int = 0) -> LearnedReward:
    """Learn from manual labels; the same traces, labels and seed give the same model, in whatever order they come.

    Args:
        traces: Those without a label are not used.
        labels: Trace id -> good.
        seed: Of the folds.

    Raises:
        DataError: Fewer than `MIN_LABELS` labels or `MIN_PER_CLASS` of a class, or a label without its trace.
        ConfigError: scikit-learn is not installed.
    """
    from skyrl_nat.data.traces.fitting import cross_validate, fit

    by_id = {trace.trace_id: trace for trace in traces}
    if unknown := sorted(set(labels) - set(by_id)):
        raise DataError(
            f"Every label must belong to a trace, {len(unknown)} of {len(labels)} do not: {', '.join(unknown[:5])}. "
            "Pass the traces that were labelled"
        )
    chosen = [by_id[trace_id] for trace_id in sorted(labels)]
    is_good = [labels[trace.trace_id] for trace in chosen]
    _require_enough(is_good)
    rows = [feature_values(trace) for trace in chosen]
    requests = [trace.task_id or trace.request for trace in chosen]
    quality = cross_validate(rows, is_good, requests, seed=seed)
    fitted = fit(rows, is_good, requests, seed=seed)
    names = tuple(feature.name for feature in FEATURES)
    return LearnedReward(feature_names=names, seed=seed, quality=quality, **asdict(fitted))


def load_reward(path: Path) -> LearnedReward:
    """Read what `save` wrote.

    Raises:
        DataError: It is no such file, was made for other features or holds a number that is not finite.
    """
    try:
        values = parse_json(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        lists = {name: tuple(values[name]) for name in ("feature_names", "means", "scales", "weights")}
        learned = LearnedReward(**{**values, **lists, "quality": Quality.from_dict(values["quality"])})
        _check(learned)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{path} must be a learned reward of this version: {error}. Train it again") from error
    return learned


def _check(learned: LearnedReward) -> None:
    """Raise ValueError where numbers cannot be those of a model."""
    if learned.feature_names != tuple(feature.name for feature in FEATURES):
        raise ValueError("it was made for other features")
    columns: tuple[tuple[Any, ...], ...] = (learned.means, learned.scales, learned.weights)
    numbers = [number for column in columns for number in column] + [learned.bias, learned.slope, learned.offset]
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
        raise ValueError("it holds something that is no finite number")
    if any(len(column) != len(FEATURES) for column in columns) or min(learned.scales) <= 0:
        raise ValueError("it needs a mean, a scale above 0 and a weight for every feature")


def _require_enough(is_good: Sequence[bool]) -> None:
    num_good = sum(is_good)
    num_bad = len(is_good) - num_good
    if len(is_good) < MIN_LABELS or min(num_good, num_bad) < MIN_PER_CLASS:
        raise DataError(
            f"A learned reward must have at least {MIN_LABELS} labels and {MIN_PER_CLASS} of each class, got "
            f"{num_good} good and {num_bad} bad. Label more traces with `skyrl-nat label`"
        )


def _sigmoid(value: float) -> float:
    """Return the logistic function without overflow."""
    small = math.exp(-abs(value))
    return 1 / (1 + small) if value >= 0 else small / (1 + small)
