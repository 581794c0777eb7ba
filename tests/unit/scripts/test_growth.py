"""Slopes by hand: what grows is found, what only shakes is not, and a new process starts at its own level."""

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest


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


def test_slope_and_its_error_are_those_of_least_squares(growth):
    """Times 0, 1, 2, 3 s, values 0, 1, 1, 2: rate 0.6, residuals -0.1, 0.3, -0.3, 0.1, so error sqrt(0.2 / 2 / 5)."""
    found = growth.slope([[(0, 0), (1, 1), (2, 1), (3, 2)]])
    assert found.per_hour == pytest.approx(3600 * 0.6)
    assert found.standard_error == pytest.approx(3600 * math.sqrt(0.2 / 2 / 5))
    assert (found.mean, found.num_points) == (1.0, 4)
    assert found.is_growth


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
    """Both lives are flat; as one series their levels, 10 and 20, would be growth."""
    lives = [[(0, 10), (1, 10), (2, 10)], [(0, 20), (1, 20), (2, 20)]]
    assert growth.slope(lives).per_hour == 0
    together = [(t + 3 * i, value) for i, life in enumerate(lives) for t, value in life]
    assert growth.slope([together]).is_growth


def test_two_points_say_nothing(growth):
    found = growth.slope([[(0, 0), (1, 100)]])
    assert math.isinf(found.standard_error)
    assert not found.is_growth
    assert math.isinf(growth.slope([]).standard_error)


def test_blocks_are_means_over_equal_stretches(growth):
    assert growth.block_means([(0, 1), (5, 3), (10, 5), (31, 9)], 10) == [(2.5, 2.0), (10, 5), (31, 9)]
