"""The numbers under a comparison: intervals, effect sizes, power. Its tests are in `paired_tests.py`.

A figure that is not defined is None and a note says why; nothing here returns NaN. Values nearer than 10^-9 to each
other are equal, because rewards are sums in floating point. All results are the same for every order of the values,
and mirrored where the signs of all differences are turned.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from skyrl_nat.errors import DataError

DECIMALS = 9
"""Values are rounded to this many before they are compared or ranked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A confidence interval."""

    low: float
    high: float
    confidence: float
    """Share of such intervals that hold the true value, in (0, 1)."""
    method: str
    """`wilson`, `tango`, `bca`, `percentile` or `constant`."""
    note: str = ""
    """Why another method than the usual one was taken; empty where it was not."""


def mean(values: Iterable[float]) -> float:
    """Return the mean, correctly rounded and so the same for every order.

    Raises:
        DataError: No values.
    """
    items = list(values)
    if not items:
        raise DataError("A mean needs at least one value, got none. Leave out what has none")
    return math.fsum(items) / len(items)


def wilson_interval(num_success: int, num: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's score interval of a share; it has a width even where all or none succeeded.

    Args:
        num_success: In [0, num].
        num: Trials, at least 1.
        confidence: In (0, 1).

    Raises:
        DataError: The counts are no share.

    Reference:
        Wilson 1927, doi:10.1080/01621459.1927.10502953; Brown, Cai and DasGupta 2001, section 3.1.1.
    """
    if not 0 <= num_success <= num or num < 1:
        raise DataError(
            f"A share needs 0 <= successes <= trials and a trial, got {num_success} of {num}. Correct the counts"
        )
    found = stats.binomtest(num_success, num).proportion_ci(confidence, method="wilson")
    return Interval(low=float(found.low), high=float(found.high), confidence=confidence, method="wilson")


def pass_at_k(num_samples: int, num_correct: int, k: int) -> float:
    """Return the unbiased estimate of the chance that one of `k` samples is correct.

    It is `1 - C(n - c, k) / C(n, k)`, as a product so that no binomial coefficient overflows.

    Args:
        num_samples: n, at least `k`.
        num_correct: c, in [0, n].
        k: At least 1.

    Raises:
        DataError: The counts do not fit together.

    Reference:
        Chen et al. 2021, arXiv:2107.03374, equation 1.
    """
    if not (1 <= k <= num_samples and 0 <= num_correct <= num_samples):
        raise DataError(
            f"pass@k needs 1 <= k <= samples and 0 <= correct <= samples, got k {k}, correct {num_correct}, "
            f"samples {num_samples}. Play more rollouts or ask for a smaller k"
        )
    if num_samples - num_correct < k:
        return 1.0
    return float(1.0 - np.prod(1.0 - k / np.arange(num_samples - num_correct + 1, num_samples + 1)))


def bootstrap_interval(
    values: Sequence[float],
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
    value_range: tuple[float, float] = (0.0, 1.0),
) -> Interval:
    """Return the interval of a mean by the bias-corrected and accelerated bootstrap (BCa).

    Resampling equal values shows no spread. With n equal values the share of others is, at this confidence, at most
    `q = 1 - (1 - confidence)^(1/n)`, so the mean lies within q of the way from the value to either end of the range.
    The same numbers come out every time: values are sorted and the seed is fixed.

    Args:
        values: `[n]` one per task, finite, at least one.
        confidence: In (0, 1).
        num_resamples: Draws of n values.
        seed: Of the draws.
        value_range: Lowest and highest possible value; only read where all values are equal.

    Raises:
        DataError: No values, or one is not finite.

    Reference:
        Efron 1987, doi:10.1080/01621459.1987.10478410; equal values: the rule of three, Hanley and Lippman-Hand 1983,
        doi:10.1001/jama.1983.03330370053031.
    """
    data = _checked(values)
    if np.ptp(data) < 10**-DECIMALS:
        return _interval_of_constant(float(data[0]), len(data), confidence, value_range)
    method, note = "BCa", ""
    low, high = _bootstrap(data, confidence, num_resamples, seed, method)
    if not math.isfinite(low + high):
        method, note = "percentile", "the bias correction is not defined for these values; plain percentiles instead"
        low, high = _bootstrap(data, confidence, num_resamples, seed, method)
    return Interval(low=low, high=high, confidence=confidence, method=method.lower(), note=note)


def paired_bootstrap_interval(
    differences: Sequence[float],
    *,
    confidence: float = 0.95,
    num_resamples: int = 10_000,
    seed: int = 0,
    value_range: tuple[float, float] = (-1.0, 1.0),
) -> Interval:
    """Return the interval of a mean difference: `bootstrap_interval` over pairs, mirrored where the sides are swapped.

    Args:
        differences: `[n]` after minus before, one per task that both sides have.
        confidence: In (0, 1).
        num_resamples: Draws of n pairs.
        seed: Of the draws.
        value_range: Lowest and highest possible difference where the differences lean above 0, as they are turned.

    Raises:
        DataError: No differences, or one is not finite.
    """
    data, sign = sorted_differences(differences)
    found = bootstrap_interval(
        data.tolist(), confidence=confidence, num_resamples=num_resamples, seed=seed, value_range=value_range
    )
    low, high = sorted((sign * found.low + 0.0, sign * found.high + 0.0))
    if np.array_equal(data, -data[::-1]):
        low, high = (low - high) / 2, (high - low) / 2
    return Interval(low=low, high=high, confidence=confidence, method=found.method, note=found.note)


def sorted_differences(differences: Sequence[float]) -> tuple[NDArray[np.float64], int]:
    """Return differences rounded, sorted and in one of their two orientations, and the sign that leads back.

    Whatever is computed from them is the same for every order, and mirrored where before and after change places.

    Args:
        differences: `[n]` after minus before.

    Raises:
        DataError: No differences, or one is not finite.
    """
    data = np.round(_checked(differences), DECIMALS) + 0.0
    mirrored = -data[::-1] + 0.0
    return (data, 1) if data.tolist() >= mirrored.tolist() else (mirrored, -1)


def cohens_dz(differences: Sequence[float]) -> float | None:
    """Return the mean difference in units of the differences' sample standard deviation; None where that is 0.

    Reference:
        Cohen 1988, section 2.3.5; named d_z in Lakens 2013, doi:10.3389/fpsyg.2013.00863.
    """
    spread = spread_of(differences)
    return mean(differences) / spread if spread else None


def spread_of(differences: Sequence[float]) -> float | None:
    """Return the sample standard deviation (n - 1); None where all are equal, which says nothing about the spread."""
    data, _ = sorted_differences(differences)
    return float(np.std(data, ddof=1)) if np.ptp(data) else None


def minimum_detectable_difference(spread: float, num_pairs: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the true mean difference that so many pairs show with this power: `(t_(1-alpha/2) + t_power) s / sqrt(n)`.

    The quantiles are Student's with n - 1 degrees of freedom. It is meant for a mean; rank tests come close.

    Args:
        spread: s, standard deviation of the differences, above 0, in the unit of the values.
        num_pairs: n, at least 2.
        power: Chance of `p <= alpha` where the difference is real, in (0, 1).
        alpha: Two-sided level, in (0, 1).

    Raises:
        DataError: Fewer than two pairs.

    Reference:
        Bloom 1995, doi:10.1177/0193841X9501900504; for evaluations of models Miller 2024, arXiv:2411.00640.
    """
    if num_pairs < 2:
        raise DataError(f"A spread needs at least 2 pairs, got {num_pairs}. Play more tasks")
    quantiles = stats.t.ppf([1 - alpha / 2, power], float(num_pairs - 1))
    return float(np.sum(quantiles)) * spread / math.sqrt(num_pairs)


def needed_pairs(difference: float, spread: float, *, power: float = 0.8, alpha: float = 0.05) -> int | None:
    """Return the fewest pairs whose minimum detectable difference is at most `difference`; None for a difference of 0.

    Starts at `((z_(1-alpha/2) + z_power) s / difference)^2`, which is too few by a pair or two, and counts up.

    Args:
        difference: True mean difference to be found; its sign does not matter.
        spread: Standard deviation of the differences, above 0, in the same unit.
        power: Chance to find it, in (0, 1).
        alpha: Two-sided level, in (0, 1).
    """
    if difference == 0:
        return None
    wanted = abs(difference) * (1 + 1e-9)
    quantiles = float(np.sum(stats.norm.ppf([1 - alpha / 2, power])))
    num_pairs = max(2, math.ceil((quantiles * spread / difference) ** 2))
    while minimum_detectable_difference(spread, num_pairs, power=power, alpha=alpha) > wanted:
        num_pairs += 1
    return num_pairs


def _checked(values: Sequence[float]) -> NDArray[np.float64]:
    data = np.sort(np.asarray(values, dtype=np.float64))
    if not len(data) or not np.isfinite(data).all():
        found = f"{np.sum(~np.isfinite(data))} of {len(data)} that are not" if len(data) else "none"
        raise DataError(
            f"Statistics need at least one value and finite ones, got {found}. Leave out what has no verdict"
        )
    return data


def _bootstrap(
    data: NDArray[np.float64], confidence: float, num_resamples: int, seed: int, method: str
) -> tuple[float, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        found = stats.bootstrap(
            (data,),
            np.mean,
            n_resamples=num_resamples,
            batch=1000,
            confidence_level=confidence,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
    return float(found.low), float(found.high)


def _interval_of_constant(value: float, num: int, confidence: float, value_range: tuple[float, float]) -> Interval:
    share = 1 - (1 - confidence) ** (1 / num)
    low, high = (value + share * (end - value) for end in value_range)
    return Interval(
        low=min(low, value),
        high=max(high, value),
        confidence=confidence,
        method="constant",
        note="all values are equal: resampling shows no spread; the interval leaves room for values not yet seen",
    )
