"""The interval of a difference of success on the same tasks, which never contradicts the exact test.

A bootstrap of few changed tasks is too narrow: among the draws hardly any has fewer of them than were seen.
"""

import math
from collections.abc import Sequence

import numpy as np
from scipy import optimize, stats

from skyrl_nat.evaluation.paired_tests import PairedTest
from skyrl_nat.evaluation.statistics import Interval, paired_bootstrap_interval, sorted_differences

MOST = 1e9
"""Of a score: a search takes no infinite ones."""


def tango_interval(num_wins: int, num_losses: int, num_pairs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return Tango's score interval of `P(win) - P(loss)`: all differences that the score test does not refuse.

    Args:
        num_wins: Pairs that rose from failure to success.
        num_losses: Pairs that fell.
        num_pairs: All of them, at least one.
        confidence: In (0, 1).

    Reference:
        Tango 1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<891::AID-SIM780>3.0.CO;2-B.
    """
    limit = float(stats.norm.ppf((1 + confidence) / 2))
    seen = (num_wins - num_losses) / num_pairs

    def score(difference: float) -> float:
        return tango_score(difference, num_wins, num_losses, num_pairs)

    def reached(at: float, start: float, end: float) -> float:
        found = optimize.root_scalar(lambda d: max(-MOST, min(MOST, score(d))) - at, bracket=(start, end), xtol=1e-13)
        return float(found.root)

    # The score falls as the difference grows.
    low = -1.0 if score(-1.0) <= limit else reached(limit, -1.0, seen)
    high = -low if num_wins == num_losses else 1.0 if score(1.0) >= -limit else reached(-limit, seen, 1.0)
    return low, high


def tango_score(difference: float, num_wins: int, num_losses: int, num_pairs: int) -> float:
    """Return how many standard errors what was seen lies above a difference, with the losses most likely under it."""
    excess = num_wins - num_losses - num_pairs * difference
    linear = (2 * num_pairs - num_wins + num_losses) * difference - num_wins - num_losses
    constant = -num_losses * difference * (1 - difference)
    loss = (math.sqrt(max(0.0, linear**2 - 8 * num_pairs * constant)) - linear) / (4 * num_pairs)
    variance = num_pairs * (2 * loss + difference * (1 - difference))
    if variance <= 0:
        return math.copysign(math.inf, excess) if excess else 0.0
    return excess / math.sqrt(variance)


def success_interval(
    differences: Sequence[float], test: PairedTest, *, confidence: float, num_resamples: int, seed: int
) -> Interval:
    """Return the interval of a mean difference of success; it leaves out 0 only where the test tells it from none.

    Where all tasks that changed did so by one size, as they do with one rollout a task, it is Tango's times that size;
    else the bootstrap's, which may hold 0 where the test tells: many small rises against a few large falls. Where all
    tasks rose alike, and the test tells, those not seen are taken to fall by no more than that.

    Args:
        differences: `[n]` after minus before, each in [-1, 1].
        test: The exact test of these differences.
        confidence: In (0, 1); the test's level is 1 minus it.
        num_resamples: Draws of the bootstrap.
        seed: Of the draws.

    Raises:
        DataError: No differences, or one is not finite.
    """
    data, sign = sorted_differences(differences)
    is_told = test.p is not None and test.p <= 1 - confidence
    sizes = np.unique(np.abs(data[data != 0]))
    if len(sizes) == 1 and np.ptp(data):
        ends = tango_interval(int(np.sum(data > 0)), int(np.sum(data < 0)), len(data), confidence)
        low, high = sorted(sign * float(sizes[0]) * end + 0.0 for end in ends)
        found = Interval(low=low, high=high, confidence=confidence, method="tango")
    else:
        is_alike = is_told and len(sizes) == 1
        found = paired_bootstrap_interval(
            differences,
            confidence=confidence,
            num_resamples=num_resamples,
            seed=seed,
            value_range=(-float(sizes[0]), 1.0) if is_alike else (-1.0, 1.0),
        )
    if is_told or found.low <= 0 <= found.high:
        return found
    note = "widened to 0: the exact test does not tell it from none"
    return Interval(
        low=min(found.low, 0.0), high=max(found.high, 0.0), confidence=confidence, method=found.method, note=note
    )
