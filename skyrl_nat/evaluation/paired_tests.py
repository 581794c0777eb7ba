"""Tests of pairs against "no difference", what so few pairs can show, and correction for several tests.

A p that is not defined is None and a note says why, whatever the number of pairs; nothing here returns NaN.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from skyrl_nat.evaluation.statistics import sorted_differences

MAX_EXACT_RANKS = 100
"""Differences up to which the signed-rank test counts all signs; the normal approximation stands in above."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedTest:
    """Two-sided test of pairs against "no difference"."""

    name: str
    num_pairs: int
    num_different: int
    """Pairs whose two values differ."""
    p: float | None
    """None where the test is not defined; `note` says why."""
    direction: int
    """Sign of the test's statistic: 1 where the differences lean above 0, -1 below, 0 neither or not defined."""
    smallest_p: float | None
    """Smallest p that so many pairs can reach; None without a test or without such a bound."""
    note: str = ""


def smallest_p(num_pairs: int) -> float | None:
    """Return the smallest two-sided p of an exact paired test, `2 * 0.5^n`; None for one pair, which allows no test.

    It is reached where all pairs differ in the same direction, by the sign test and the signed-rank test alike.
    """
    return 2.0 * 0.5**num_pairs if num_pairs >= 2 else None


def smallest_num_pairs(alpha: float) -> int:
    """Return how many pairs, all different in one direction, an exact test needs to reach `p <= alpha`; 6 for 0.05."""
    return max(2, math.ceil(1.0 - math.log2(alpha)))


def sign_test(differences: Sequence[float]) -> PairedTest:
    """Test whether more pairs rise than fall, exactly; on 0/1 values it is McNemar's exact test.

    Pairs without a difference say nothing about the direction and are left out. Where none differs, or there is one
    pair only, the test is not defined.

    Args:
        differences: `[n]` after minus before.

    Raises:
        DataError: No differences, or one is not finite.

    Reference:
        Conover 1999, section 3.4; McNemar 1947, doi:10.1007/BF02295996.
    """
    data, sign = sorted_differences(differences)
    if note := _why_undefined(data):
        return _undefined("sign", data, note)
    num_up, num_down = int(np.sum(data > 0)), int(np.sum(data < 0))
    return PairedTest(
        name="sign",
        num_pairs=len(data),
        num_different=num_up + num_down,
        p=float(stats.binomtest(num_up, num_up + num_down).pvalue),
        direction=sign * int(np.sign(num_up - num_down)),
        smallest_p=smallest_p(len(data)),
    )


def signed_rank_test(differences: Sequence[float]) -> PairedTest:
    """Test whether differences are symmetric around 0 (Wilcoxon); zeros are left out, equal sizes share a mean rank.

    Up to 100 differences the p is exact, ties or not: all signs are equally likely, and the distribution of the rank
    sum is counted. Where no pair differs, or there is one pair only, the test is not defined.

    Args:
        differences: `[n]` after minus before.

    Raises:
        DataError: No differences, or one is not finite.

    Reference:
        Wilcoxon 1945, doi:10.2307/3001968; Hollander, Wolfe and Chicken 2014, section 3.1, with ties in comment 11.
    """
    data, sign = sorted_differences(differences)
    if note := _why_undefined(data):
        return _undefined("signed_rank", data, note)
    changed = data[data != 0]
    doubled = np.rint(2 * stats.rankdata(np.abs(changed))).astype(np.int64)
    lean = int(np.sum(np.sign(changed) * doubled))
    exact = len(changed) <= MAX_EXACT_RANKS
    p = _exact_rank_p(doubled, abs(lean)) if exact else float(np.asarray(stats.wilcoxon(changed))[1])
    return PairedTest(
        name="signed_rank",
        num_pairs=len(data),
        num_different=len(changed),
        p=p,
        direction=sign * int(np.sign(lean)),
        smallest_p=smallest_p(len(data)),
        note="" if exact else "normal approximation",
    )


def paired_t_test(differences: Sequence[float]) -> PairedTest:
    """Test whether the mean difference is 0 (Student); not defined where all differences are equal, zero or not.

    Args:
        differences: `[n]` after minus before; about normal, or many.

    Raises:
        DataError: No differences, or one is not finite.

    Reference:
        Student 1908, doi:10.2307/2331554.
    """
    data, sign = sorted_differences(differences)
    note = _why_undefined(data) or ("all differences are equal: no spread to test against" if not np.ptp(data) else "")
    if note:
        return _undefined("paired_t", data, note)
    statistic = float(np.mean(data) / np.std(data, ddof=1)) * math.sqrt(len(data))
    return PairedTest(
        name="paired_t",
        num_pairs=len(data),
        num_different=int(np.count_nonzero(data)),
        p=float(2 * stats.t.sf(abs(statistic), len(data) - 1)),
        direction=sign * int(np.sign(statistic)),
        smallest_p=None,
    )


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Return p-values corrected for their number, in the order given; a test that is not defined is not counted.

    The i-th smallest of m is multiplied by `m - i + 1`, never falls below the one before it, and is at most 1.

    Reference:
        Holm 1979, Scandinavian Journal of Statistics 6(2), 65-70.
    """
    family = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    largest = 0.0
    for rank, (p, index) in enumerate(family):
        largest = min(1.0, max(largest, p * (len(family) - rank)))
        adjusted[index] = largest
    return adjusted


def _why_undefined(data: NDArray[np.float64]) -> str:
    if not data.any():
        return "no pair differs: test not defined"
    return "one pair allows no test" if len(data) < 2 else ""


def _undefined(name: str, data: NDArray[np.float64], note: str) -> PairedTest:
    return PairedTest(
        name=name,
        num_pairs=len(data),
        num_different=int(np.count_nonzero(data)),
        p=None,
        direction=0,
        smallest_p=None if name == "paired_t" else smallest_p(len(data)),
        note=note,
    )


def _exact_rank_p(doubled_ranks: NDArray[np.int64], lean: int) -> float:
    """Return the chance that random signs lean at least so far either way; all in units of half a rank."""
    total = int(doubled_ranks.sum())
    chances = np.zeros(total + 1)
    chances[0] = 1.0
    for rank in doubled_ranks:
        moved = np.zeros_like(chances)
        moved[rank:] = chances[: total + 1 - rank]
        chances = (chances + moved) / 2
    leans = np.abs(2 * np.arange(total + 1) - total)
    return min(1.0, math.fsum(chances[leans >= lean]))
