"""Intervals, effect sizes and power against hand-worked numbers, scipy and statsmodels."""

import math
from itertools import combinations
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.proportion import proportion_confint

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.statistics import (
    Interval,
    bootstrap_interval,
    cohens_dz,
    minimum_detectable_difference,
    needed_pairs,
    paired_bootstrap_interval,
    pass_at_k,
    sorted_differences,
    spread_of,
    wilson_interval,
)

DIFFERENCES = st.lists(st.floats(-1, 1), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("num_success", "low", "high"),
    [(0, 0.0, 0.434), (1, 0.036, 0.624), (2, 0.118, 0.769), (3, 0.231, 0.882), (4, 0.376, 0.964), (5, 0.566, 1.0)],
)
def test_a_share_of_five_has_wilsons_interval(num_success: int, low: float, high: float):
    """EV-04: all of five is not 1 to 1."""
    found = wilson_interval(num_success, 5)
    assert (round(found.low, 3), round(found.high, 3)) == (low, high)


def test_wilsons_interval_is_that_of_statsmodels():
    rng = np.random.default_rng(1)
    for num in rng.integers(1, 300, 100):
        num_success, confidence = int(rng.integers(0, num + 1)), float(rng.choice([0.8, 0.9, 0.95, 0.99]))
        found = wilson_interval(num_success, int(num), confidence)
        known = proportion_confint(num_success, num, alpha=1 - confidence, method="wilson")
        assert (found.low, found.high) == pytest.approx(known, abs=1e-12)


@pytest.mark.parametrize(("num_success", "num"), [(1, 0), (-1, 5), (6, 5)])
def test_counts_that_are_no_share_are_refused(num_success: int, num: int):
    with pytest.raises(DataError, match=rf"got {num_success} of {num}"):
        wilson_interval(num_success, num)


def test_pass_at_k_is_the_share_of_draws_that_hold_a_correct_one():
    """Against every draw of k out of n, counted."""
    for num in range(1, 7):
        for num_correct in range(num + 1):
            for k in range(1, num + 1):
                draws = list(combinations(range(num), k))
                share = sum(min(draw) < num_correct for draw in draws) / len(draws)
                assert pass_at_k(num, num_correct, k) == pytest.approx(share, abs=1e-12)


def test_pass_at_k_is_stable_where_binomials_overflow():
    assert pass_at_k(100_000, 3, 50_000) == pytest.approx(1 - 0.5**3, abs=1e-4)
    assert pass_at_k(4, 1, 1) == 0.25


@pytest.mark.parametrize(("num", "correct", "k"), [(3, 1, 4), (3, 4, 1), (3, 1, 0), (3, -1, 1)])
def test_pass_at_k_of_counts_that_do_not_fit_is_refused(num: int, correct: int, k: int):
    with pytest.raises(DataError, match="pass@k needs"):
        pass_at_k(num, correct, k)


def bca(values: np.ndarray, confidence: float, num_resamples: int) -> list[float]:
    """Return the BCa interval of a mean as Efron 1987 defines it, with draws of its own."""
    num, normal = len(values), NormalDist()
    draws = np.random.default_rng(99).integers(0, num, (num_resamples, num))
    means = np.sort(values[draws].mean(axis=1))
    below = np.mean(means < values.mean()) + np.mean(means == values.mean()) / 2
    left_out = (values.sum() - values) / (num - 1)
    pull = left_out.mean() - left_out
    acceleration = (pull**3).sum() / (6 * (pull**2).sum() ** 1.5)
    bias = normal.inv_cdf(float(below))
    scores = [bias + normal.inv_cdf(level) for level in ((1 - confidence) / 2, (1 + confidence) / 2)]
    levels = [normal.cdf(bias + score / (1 - acceleration * score)) for score in scores]
    return np.quantile(means, levels).tolist()


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
@pytest.mark.parametrize("skew", [1.0, 8.0])
def test_the_bootstrap_is_efrons(confidence: float, skew: float):
    """To 2 % of the width, by the chance of 50,000 draws; of the skewed values plain percentiles lie 4 to 10 % away."""
    values = np.random.default_rng(2).beta(0.5, 0.5 * skew, 40)
    found = bootstrap_interval(values.tolist(), confidence=confidence, num_resamples=50_000, seed=7)
    known = bca(values, confidence, 50_000)
    chance = 0.02 * (known[1] - known[0])
    assert found.method == "bca"
    assert (found.low, found.high) == pytest.approx(known, abs=chance)


def test_the_bootstrap_is_near_students_interval_where_values_are_normal():
    values = np.random.default_rng(3).normal(0.5, 0.1, 200)
    low, high = stats.t.interval(0.95, 199, values.mean(), stats.sem(values))
    found = bootstrap_interval(values.tolist())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.002)


def test_the_bootstrap_holds_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(4)
    found = [bootstrap_interval(rng.normal(size=50).tolist(), num_resamples=500, seed=n) for n in range(400)]
    assert np.mean([each.low <= 0 <= each.high for each in found]) == pytest.approx(0.95, abs=0.03)


def test_equal_values_get_an_interval_with_a_width_and_a_note():
    """EV-04: five scores of 0.3 give neither NaN nor a width of zero: at 95 %, at most 45.1 % of tasks are others."""
    found = bootstrap_interval([0.3] * 5)
    share = 1 - 0.05**0.2
    assert (found.low, found.high) == pytest.approx((0.3 * (1 - share), 0.3 + 0.7 * share))
    assert found.method == "constant"
    assert "all values are equal" in found.note
    assert bootstrap_interval([1.0] * 5).high == 1.0
    assert paired_bootstrap_interval([0.0] * 60).low == pytest.approx(-3 / 60, rel=0.05)


def test_sums_in_floating_point_are_equal_where_they_should_be():
    """EV-04: 0.1 + 0.2 is not 0.3, and their spread is none."""
    assert bootstrap_interval([0.3, 0.1 + 0.2, 0.3]).method == "constant"
    assert spread_of([0.3, 0.1 + 0.2, 0.3]) is None


def test_plain_percentiles_stand_in_where_the_correction_is_not_defined(monkeypatch: pytest.MonkeyPatch):
    """EV-04: whatever scipy cannot do has a note."""
    real = stats.bootstrap

    def without_correction(*args, **kwargs):
        found = real(*args, **kwargs)
        if kwargs["method"] == "BCa":
            found.confidence_interval = type(found.confidence_interval)(math.nan, math.nan)
        return found

    monkeypatch.setattr(stats, "bootstrap", without_correction)
    found = bootstrap_interval([0.0, 0.5, 1.0], num_resamples=200)
    assert (found.method, found.low, found.high) == ("percentile", 0.0, 1.0)
    assert "plain percentiles" in found.note


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms())
def test_an_interval_is_finite_and_the_same_for_every_order(values: list[float], random):
    """EV-04, EV-11."""
    found = bootstrap_interval(values, num_resamples=200)
    assert math.isfinite(found.low)
    assert math.isfinite(found.high)
    assert found.low <= found.high
    random.shuffle(values)
    assert bootstrap_interval(values, num_resamples=200) == found


@settings(max_examples=60)
@given(DIFFERENCES)
def test_swapped_sides_mirror_interval_and_effect_size(differences: list[float]):
    """EV-11: to the last digit."""
    turned = [-value for value in reversed(differences)]
    found, mirrored = (paired_bootstrap_interval(values, num_resamples=200) for values in (differences, turned))
    assert (mirrored.low, mirrored.high) == (-found.high, -found.low)
    assert spread_of(turned) == spread_of(differences)
    size = cohens_dz(differences)
    assert cohens_dz(turned) == (None if size is None else -size)


def test_differences_that_are_their_own_mirror_have_an_interval_around_zero():
    """EV-11: neither side is called before."""
    found = paired_bootstrap_interval([-0.125, 0.0, 0.125, -0.5, 0.5], num_resamples=200)
    assert found.low == -found.high < 0


def test_the_seed_and_the_number_of_resamples_matter():
    values = np.random.default_rng(5).uniform(size=20).tolist()
    found = {(bootstrap_interval(values, seed=seed, num_resamples=num).low) for seed in (0, 1) for num in (100, 101)}
    assert len(found) == 4


@pytest.mark.parametrize("values", [[], [0.1, math.nan], [math.inf]])
def test_what_is_no_number_is_refused(values: list[float]):
    with pytest.raises(DataError, match="at least one value and finite ones"):
        bootstrap_interval(values)
    with pytest.raises(DataError, match="at least one value and finite ones"):
        sorted_differences(values)


def test_the_effect_size_is_the_mean_in_units_of_the_spread():
    """Mean 0.25 and sample variance (0.25^2 * 3 + 0.75^2) / 3 = 0.25."""
    assert cohens_dz([0.0, 0.0, 0.0, 1.0]) == 0.5
    assert cohens_dz([0.2, 0.2]) is None
    assert cohens_dz([0.2]) is None


def test_the_detectable_difference_is_that_of_the_t_test():
    """Against the exact power of statsmodels: within 2 % from 5 pairs on, at the powers in use."""
    for num_pairs in (5, 10, 30, 100, 400):
        for power in (0.8, 0.9, 0.95):
            known = TTestPower().solve_power(nobs=num_pairs, alpha=0.05, power=power)
            found = minimum_detectable_difference(0.2, num_pairs, power=power)
            assert found == pytest.approx(known * 0.2, rel=0.02)


def test_the_number_of_pairs_needed_is_that_of_the_t_test():
    for size in (0.05, 0.2, 0.5, 0.8, 1.5):
        known = TTestPower().solve_power(effect_size=size, alpha=0.05, power=0.8)
        found = needed_pairs(-size * 0.3, 0.3)
        assert found is not None
        assert abs(found - math.ceil(known)) <= 1


@settings(max_examples=100)
@given(st.floats(1e-9, 1), st.floats(1e-9, 1))
def test_the_number_of_pairs_needed_is_the_smallest(difference: float, spread: float):
    """It ends for the smallest differences too."""
    found = needed_pairs(difference, spread)
    assert found is not None
    assert minimum_detectable_difference(spread, found) <= difference * (1 + 1e-8)
    if 2 < found < 1e6:
        assert minimum_detectable_difference(spread, found - 1) > difference


def test_more_pairs_than_an_integer_of_64_bits_holds_are_counted_too():
    found = needed_pairs(1e-9, 3.0)
    assert found is not None
    assert found == pytest.approx((2.8016 * 3e9) ** 2, rel=1e-3)


def test_no_number_of_pairs_shows_a_difference_of_zero():
    assert needed_pairs(0.0, 0.3) is None
    with pytest.raises(DataError, match="at least 2 pairs, got 1"):
        minimum_detectable_difference(0.3, 1)


def test_records_are_plain_data():
    assert wilson_interval(1, 2).method == "wilson"
    assert Interval(low=0.0, high=1.0, confidence=0.95, method="bca").note == ""
