"""Whether something grows: the slope of what was counted over time, and how sure it is.

The slope is that of Theil and Sen, the median over all pairs of points: a table that is made anew twice as large once
in hours, as CPython's table of interned strings is, moves it little; what grows again and again moves it.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

Series = Sequence[tuple[float, float]]
"""Time in seconds and what was counted then."""

NUM_ERRORS = 3.0
"""Standard errors from the middle of the interval that a slope lies in to its ends."""
SMALLEST_SHARE = 0.01
"""Of the mean, per hour, that counts as growth: allocators settle for hours, by less than that."""


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per hour."""

    per_hour: float
    low: float
    """The lower end of its interval, in the same unit; minus infinity with too few points."""
    high: float
    mean: float
    num_points: int

    @property
    def is_growth(self) -> bool:
        """Return whether it lies above 0 by more than noise, and by more than allocators need to settle."""
        return self.low > 0 and self.per_hour > SMALLEST_SHARE * self.mean


def slope(lives: Sequence[Series]) -> Slope:
    """Return the common slope of several series; each has a level of its own.

    Args:
        lives: One series of each process that came after the other, by its age; or a single one.
    """
    values = [value for life in lives for _, value in life]
    mean = _mean(values) if values else 0.0
    slopes = sorted(
        3600 * (later[1] - earlier[1]) / (later[0] - earlier[0])
        for life in lives
        for earlier, later in combinations(life, 2)
    )
    if not slopes:
        return Slope(0.0, -math.inf, math.inf, mean, len(values))
    # Of the number of pairs that rise less the number that fall, where nothing grows (Kendall).
    error = math.sqrt(sum(n * (n - 1) * (2 * n + 5) for n in map(len, lives)) / 18)
    place = math.floor((len(slopes) - NUM_ERRORS * error) / 2)
    low, high = (slopes[place], slopes[-1 - place]) if place >= 0 else (-math.inf, math.inf)
    return Slope(statistics.median(slopes), low, high, mean, len(values))


def block_means(series: Series, block_s: float) -> list[tuple[float, float]]:
    """Return means over equal stretches of time, so that neighbours which move together are not counted as many."""
    blocks: dict[int, list[tuple[float, float]]] = {}
    for time, value in series:
        blocks.setdefault(int(time // block_s), []).append((time, value))
    return [(_mean([t for t, _ in block]), _mean([v for _, v in block])) for _, block in sorted(blocks.items())]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
