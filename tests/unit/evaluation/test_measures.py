"""Single quantities of a comparison."""

import pytest

from skyrl_nat.errors import ConfigError
from skyrl_nat.evaluation.measures import ComparisonSettings, Values, measures_of
from skyrl_nat.evaluation.statistics import minimum_detectable_difference, needed_pairs, wilson_interval

QUICK = ComparisonSettings(num_resamples=100)


def test_figures_of_ten_tasks():
    """Differences of 0.5 four times and -0.5 once: mean 0.15, squares 5 * 0.25 - 10 * 0.0225 = 1.025 over 9."""
    before = [0.5, 0.5, 0.5, 0.5, 1.0, 0.2, 0.2, 0.2, 0.2, 0.2]
    after = [1.0, 1.0, 1.0, 1.0, 0.5, 0.2, 0.2, 0.2, 0.2, 0.2]
    (found,) = measures_of([Values(name="reward", before=before, after=after)], QUICK)
    spread = (1.025 / 9) ** 0.5
    assert (found.before, found.after, found.difference) == pytest.approx((0.4, 0.55, 0.15))
    assert (found.num_tasks, found.num_wins, found.num_losses, found.num_ties) == (10, 4, 1, 5)
    assert found.effect_size == pytest.approx(0.15 / spread)
    assert found.minimum_detectable == pytest.approx(minimum_detectable_difference(spread, 10))
    assert found.num_tasks_needed == needed_pairs(0.15, spread)
    assert found.test.p == found.adjusted_p == 2 * (1 + 5) / 2**5


def test_a_share_of_whole_successes_has_wilsons_interval():
    """EV-04: no success of five, and all of five."""
    (found,) = measures_of([Values(name="success", before=[0.0] * 5, after=[1.0] * 5, is_share=True)], QUICK)
    assert (found.before_interval, found.after_interval) == (wilson_interval(0, 5), wilson_interval(5, 5))
    assert found.interval.low < found.interval.high == 1.0


def test_intervals_have_the_confidence_that_the_level_leaves():
    values = Values(name="reward", before=[0.1, 0.2, 0.7], after=[0.4, 0.2, 0.1])
    (found,) = measures_of([values], ComparisonSettings(alpha=0.2, num_resamples=100))
    assert {each.confidence for each in (found.before_interval, found.after_interval, found.interval)} == {0.8}


def test_a_measure_without_a_test_does_not_count_in_the_correction():
    """EV-10."""
    rising = Values(name="a", before=[0.0] * 8, after=[0.1 * n for n in range(1, 9)])
    mixed = Values(name="b", before=[0.5] * 8, after=[0.6, 0.7, 0.8, 0.9, 1.0, 0.4, 0.3, 0.55])
    constant = Values(name="c", before=[0.3] * 8, after=[0.3] * 8)
    alone = [found.adjusted_p for found in measures_of([rising, mixed], QUICK)]
    found = [found.adjusted_p for found in measures_of([constant, rising, constant, mixed, constant], QUICK)]
    assert found == [None, alone[0], None, alone[1], None]
    assert alone[0] == 2 * (2 / 2**8)


def test_the_range_is_zero_to_one_or_what_lies_beyond():
    assert Values(name="a", before=[0.2], after=[0.4]).range == (0.0, 1.0)
    assert Values(name="a", before=[-0.5], after=[3.0]).range == (-0.5, 3.0)


def test_differences_that_cancel_have_a_mean_of_zero():
    """The sum of 0.1, 0.2 and -0.3 is not 0 in floating point, and no number of tasks shows what is left."""
    values = Values(name="reward", before=[0.1, 0.1, 0.5], after=[0.2, 0.3, 0.2])
    assert sum(values.differences) != 0
    (found,) = measures_of([values], QUICK)
    assert (found.difference, found.num_tasks_needed) == (0.0, None)


@pytest.mark.parametrize(
    "change",
    [
        {"alpha": 0.0},
        {"power": 1.0},
        {"num_resamples": 10},
        {"seed": -1},
        {"max_unmatched_share": 2},
        {"max_lost_gap": -1},
    ],
)
def test_settings_out_of_bounds_are_refused(change: dict):
    with pytest.raises(ConfigError, match=f"{next(iter(change))} of a comparison must be"):
        ComparisonSettings(**change)
