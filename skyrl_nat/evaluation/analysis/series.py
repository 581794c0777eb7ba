"""Numbers over steps, and whether they change: nothing is said of a change that chance could have made."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

from skyrl_nat.evaluation.analysis.findings import Evidence

ALPHA = 0.01
"""A trend is claimed below it: a page tests some twenty figures, of which 0.05 would find one in a run of noise."""
MIN_POINTS = 9
"""Of a trend: three in each third, the fewest of which a spread can be told."""
MAX_POINTS = 200
"""Of a picture or a test: of more, blocks are averaged; a picture shows no more, and all pairs would take long."""
CONFIDENCE = 0.95
RESIDUE = 1e-9
"""Values of a third that differ by less than this share of the whole series' range are equal."""


class Direction(StrEnum):
    """What a figure does over the steps."""

    RISES = "rises"
    FALLS = "falls"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Series:
    """A figure at the steps where it is known, in order."""

    steps: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, values: Mapping[int, float]) -> "Series":
        """Return the finite values by step."""
        known = sorted((step, value) for step, value in values.items() if math.isfinite(value))
        return cls(np.array([step for step, _ in known], dtype=float), np.array([value for _, value in known]))

    def __len__(self) -> int:
        return len(self.steps)

    def to_dict(self) -> dict[int, float]:
        """Return value by step."""
        return {int(step): float(value) for step, value in zip(self.steps, self.values, strict=True)}

    def blocks(self) -> list[np.ndarray]:
        """Return the places of the values in blocks of one size, or one less: their means are shown and tested."""
        size = math.ceil(len(self) / MAX_POINTS)
        return np.array_split(np.arange(len(self)), math.ceil(len(self) / size)) if size else []

    def thinned(self) -> "Series":
        """Return the means of its blocks; itself if it has at most `MAX_POINTS` values."""
        if len(self) <= MAX_POINTS:
            return self
        return Series(
            *(np.array([each[block].mean() for block in self.blocks()]) for each in (self.steps, self.values))
        )

    def thirds(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of the first and the last third."""
        size = max(1, len(self) // 3)
        return self.values[:size], self.values[-size:]


@dataclass(frozen=True, slots=True)
class Trend:
    """How a figure changes between the first and the last third of the steps."""

    num_points: int
    early: float
    """Mean of the first third."""
    late: float
    change: float
    low: float
    """Lower bound of the change, 95 %; NaN where there are too few points."""
    high: float
    rho: float
    """Spearman's rank correlation with the step."""
    p_value: float
    direction: Direction

    def to_dict(self) -> Evidence:
        """Return it as evidence."""
        return {
            "n": self.num_points,
            "early": self.early,
            "late": self.late,
            "change": self.change,
            "low": self.low,
            "high": self.high,
            "rho": self.rho,
            "p": self.p_value,
            "direction": str(self.direction),
        }


def trend_of(series: Series, *, alpha: float = ALPHA) -> Trend:
    """Return how a series changes.

    A direction is claimed where both hold: the rank correlation with the step has p under `alpha`, and the interval of
    the change between the thirds (Welch) leaves out 0. Both take the steps as independent, which those of a policy that
    does not change are.

    Args:
        series: Of more than `MAX_POINTS` the means of blocks count as points.
        alpha: Less where many series are tested.
    """
    points = series.thinned()
    early, late = points.thirds() if len(points) else (np.array([math.nan]), np.array([math.nan]))
    change = float(late.mean() - early.mean())
    rho, p_value, low, high = 0.0, 1.0, math.nan, math.nan
    if len(points) >= MIN_POINTS:
        low, high = _interval(early, late, float(np.ptp(points.values)))
        if np.ptp(points.values) > 0:
            rho, p_value = map(float, stats.spearmanr(points.steps, points.values))
    direction = Direction.CANNOT_TELL
    if p_value < alpha and rho > 0 and low > 0:
        direction = Direction.RISES
    elif p_value < alpha and rho < 0 and high < 0:
        direction = Direction.FALLS
    return Trend(len(points), float(early.mean()), float(late.mean()), change, low, high, rho, p_value, direction)


def _interval(early: np.ndarray, late: np.ndarray, spread: float) -> tuple[float, float]:
    """Return the bounds of the change of the mean (Welch).

    Thirds of equal values show no spread. At this confidence the share of others is at most `1 - (1 - 0.95)^(1/n)` in
    each (rule of three), and they lie as far away as values of the series do; a series that never moves has no width.

    Args:
        early: Values of the first third.
        late: As many of the last.
        spread: Range of the whole series.
    """
    change = float(late.mean() - early.mean())
    if max(np.ptp(early), np.ptp(late)) <= RESIDUE * spread:
        half = 2 * (1 - (1 - CONFIDENCE) ** (1 / len(early))) * spread
        return change - half, change + half
    errors = [float(values.var(ddof=1)) / len(values) for values in (early, late)]
    freedom = sum(errors) ** 2 / sum(
        error**2 / (len(values) - 1) for error, values in zip(errors, (early, late), strict=True)
    )
    half = _quantile(freedom) * math.sqrt(sum(errors))
    return change - half, change + half


def _quantile(freedom: float) -> float:
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom))
