"""Slopes by hand: what grows is found, what only shakes is not, and a new process starts at its own level."""

import importlib.util
import math
import random
import statistics
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from types import ModuleType

import pytest
from scipy import stats


@pytest.fixture(scope="module")
def growth() -> Iterator[ModuleType]:
    path = Path(__file__).parents[3] / "scripts/growth.py"
    spec = importlib.util.spec_from_file_location("growth", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_slope_and_its_interval_are_those_of_theil_and_sen(growth):
    """scipy's own, at the confidence of three standard errors."""
    times = [60.0 * i for i in range(24)]
    values = [100 + 0.01 * t + random.Random(int(t)).gauss(0, 5) for t in times]
    found = growth.slope([list(zip(times, values, strict=True))])
    expected = stats.theilslopes(values, times, alpha=1 - 2 * stats.norm.sf(growth.NUM_ERRORS))
    assert found.per_hour == pytest.approx(3600 * expected.slope)
    pairs = sorted((b - a) / (u - t) for (t, a), (u, b) in combinations(zip(times, values, strict=True), 2))
    places = {round(value, 9): place for place, value in enumerate(pairs)}
    for ours, theirs in ((found.low, expected.low_slope), (found.high, expected.high_slope)):
        # They round to the other side.
        assert abs(places[round(ours / 3600, 9)] - places[round(float(theirs), 9)]) <= 1
    assert (found.mean, found.num_points) == (pytest.approx(statistics.mean(values)), 24)


def test_of_a_climb_all_pairs_rise(growth):
    """10 points have 45 pairs; their error is sqrt(10 * 9 * 25 / 18) = 11.2, so the 5th smallest slope is the end."""
    found = growth.slope([[(i, i * i) for i in range(10)]])
    slopes = sorted(3600 * (i + j) for i, j in combinations(range(10), 2))
    assert (found.per_hour, found.low, found.high) == (slopes[22], slopes[5], slopes[-6])
    assert found.is_growth


@pytest.mark.parametrize(("every", "is_growth"), [(100, False), (25, True)])
def test_one_step_is_no_slope_and_several_are(growth, every: int, is_growth: bool):
    """100 points in two hours, from 400: 8 once after a quarter of the time, or 8 again and again."""
    series = [(72 * i, 400 + 8 * ((i + every - 25) // every)) for i in range(100)]
    assert growth.slope([series]).is_growth is is_growth


def test_what_only_shakes_does_not_grow(growth):
    assert not growth.slope([[(i, i % 2) for i in range(20)]]).is_growth
    assert not growth.slope([[(i, 7.0) for i in range(20)]]).is_growth


@pytest.mark.parametrize(("per_hour", "is_growth"), [(0.9, False), (1.1, True)])
def test_a_steady_climb_counts_from_a_hundredth_an_hour(growth, per_hour: float, is_growth: bool):
    """Of 100, without any noise: 0.9 an hour is an allocator that settles, 1.1 is a leak."""
    found = growth.slope([[(600 * i, 100 + per_hour * (i - 6) / 6) for i in range(13)]])
    assert found.per_hour == pytest.approx(per_hour)
    assert found.is_growth is is_growth


def test_what_shrinks_does_not_grow(growth):
    assert not growth.slope([[(i, -i) for i in range(5)]]).is_growth


def test_a_process_that_came_after_another_has_a_level_of_its_own(growth):
    """All lives are flat; as one series their levels, 10 to 40, would be growth."""
    lives = [[(t, level) for t in range(8)] for level in (10, 20, 30, 40)]
    assert growth.slope(lives).per_hour == 0
    together = [(t + 8 * i, value) for i, life in enumerate(lives) for t, value in life]
    assert growth.slope([together]).is_growth


def test_two_points_say_nothing(growth):
    for found in (growth.slope([[(0, 0), (1, 100)]]), growth.slope([])):
        assert math.isinf(found.low)
        assert not found.is_growth


def test_blocks_are_means_over_equal_stretches(growth):
    assert growth.block_means([(0, 1), (5, 3), (10, 5), (31, 9)], 10) == [(2.5, 2.0), (10, 5), (31, 9)]
