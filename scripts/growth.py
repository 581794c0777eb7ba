"""Whether something grows: the slope of what was counted over time, with its standard error."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

Series = Sequence[tuple[float, float]]
"""Time in seconds and what was counted then."""

NUM_ERRORS = 3.0
"""Standard errors that a slope must lie above 0 to count as growth."""
SMALLEST_SHARE = 0.01
"""Of the mean, per hour, that counts as growth: allocators settle for hours, by less than that."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per hour."""

    per_hour: float
    standard_error: float
    """In the same unit; infinite with too few points."""
    mean: float
    num_points: int

    @property
    def is_growth(self) -> bool:
        """Return whether it lies above 0 by more than noise, and by more than allocators need to settle."""
        return self.per_hour > NUM_ERRORS * self.standard_error and self.per_hour > SMALLEST_SHARE * self.mean


def slope(lives: Sequence[Series]) -> Slope:
    """Return the common slope of several series by least squares; each has a level of its own.

    Args:
        lives: One series of each process that came after the other, by its age; or a single one.
    """
    centred = [_centred(life) for life in lives if life]
    points = [point for life in centred for point in life]
    values = [value for life in lives for _, value in life]
    mean = sum(values) / len(values) if values else 0.0
    spread = sum(time * time for time, _ in points)
    degrees = len(points) - len(centred) - 1
    if not spread or degrees < 1:
        return Slope(0.0, math.inf, mean, len(points))
    rate = sum(time * value for time, value in points) / spread
    error = math.sqrt(sum((value - rate * time) ** 2 for time, value in points) / degrees / spread)
    return Slope(3600 * rate, 3600 * error, mean, len(points))


def block_means(series: Series, block_s: float) -> list[tuple[float, float]]:
    """Return means over equal stretches of time, so that neighbours which move together are not counted as many."""
    blocks: dict[int, list[tuple[float, float]]] = {}
    for time, value in series:
        blocks.setdefault(int(time // block_s), []).append((time, value))
    return [(_mean([t for t, _ in block]), _mean([v for _, v in block])) for _, block in sorted(blocks.items())]


def _centred(series: Series) -> list[tuple[float, float]]:
    time, value = _mean([t for t, _ in series]), _mean([v for _, v in series])
    return [(t - time, v - value) for t, v in series]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
