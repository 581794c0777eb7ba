"""A change is claimed where there is one, never of noise."""

import math

import numpy as np
import pytest
from scipy import stats

from skyrl_nat.evaluation.analysis.series import MAX_POINTS, Direction, Series, trend_of


def series(values) -> Series:
    return Series.of(dict(enumerate(map(float, values), 1)))


def noise(seed: int, size: int = 60) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.5, 0.1, size)


def test_a_line_rises_and_its_mirror_falls():
    rising = trend_of(series(range(12)))
    assert (rising.direction, rising.num_points) == (Direction.RISES, 12)
    assert (rising.early, rising.late, rising.change, rising.rho) == (1.5, 9.5, 8.0, pytest.approx(1.0))
    falling = trend_of(series(range(12, 0, -1)))
    assert (falling.direction, falling.change) == (Direction.FALLS, -8.0)


def test_the_interval_is_that_of_welch():
    values = noise(0, 30)
    found = trend_of(series(values))
    low, high = stats.ttest_ind(values[20:], values[:10], equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_thirds_of_equal_values_are_no_certainty():
    """Of ten equal values, at most 1 - 0.05^0.1 = 25.9 % are others; the change is known to twice that."""
    values = [0.1 + 0.2] * 5 + [0.3] * 5 + [0.5] * 10 + [0.8] * 10
    found, half = trend_of(series(values)), 2 * (1 - 0.05**0.1) * 0.5
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert found.direction is Direction.RISES
    few = trend_of(series([0.0] * 3 + [0.5] * 3 + [1.0] * 3))
    assert few.low < 0
    assert few.direction is Direction.CANNOT_TELL
    never = trend_of(series([0.5] * 30))
    assert (never.low, never.high) == (0.0, 0.0)


def test_noise_has_no_trend():
    claims = [trend_of(series(noise(seed))).direction is not Direction.CANNOT_TELL for seed in range(400)]
    assert sum(claims) <= 0.02 * len(claims)


@pytest.mark.parametrize("values", [[], [0.5], [0.1, 0.9], range(8), [0.5] * 30, [0.1 + 1e-17] * 30])
def test_nothing_is_claimed_of_few_or_equal_values(values):
    assert trend_of(series(values)).direction is Direction.CANNOT_TELL


def test_many_tests_need_a_smaller_p():
    values = noise(3) + np.linspace(0, 0.12, 60)
    p_value = trend_of(series(values)).p_value
    assert trend_of(series(values), alpha=p_value * 1.1).direction is Direction.RISES
    assert trend_of(series(values), alpha=p_value / 1.1).direction is Direction.CANNOT_TELL


def test_unknown_values_are_left_out():
    found = Series.of({3: 1.0, 1: math.nan, 2: math.inf, 0: 2.0})
    assert found.to_dict() == {0: 2.0, 3: 1.0}


def test_long_series_are_means_of_blocks_of_one_size():
    found = series(range(2 * MAX_POINTS)).thinned()
    assert len(found) == MAX_POINTS
    assert (found.steps[0], found.values[0]) == (1.5, 0.5)
    assert found.values.mean() == pytest.approx(MAX_POINTS - 0.5)
    assert [len(block) for block in series(range(301)).blocks()] == [2] * 150 + [1]
    assert series(range(MAX_POINTS)).thinned().to_dict() == {step: step - 1.0 for step in range(1, MAX_POINTS + 1)}
    assert series([]).blocks() == []
