"""Paired tests against hand-worked numbers, scipy and statsmodels."""

import gc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.descriptivestats import sign_test as known_sign_test
from statsmodels.stats.multitest import multipletests

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.paired_tests import (
    holm,
    paired_t_test,
    sign_test,
    signed_rank_test,
    smallest_num_pairs,
    smallest_p,
)

TESTS = [sign_test, signed_rank_test, paired_t_test]
EXACT = [sign_test, signed_rank_test]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("num", [1, 2, 8, 10, 13, 25, 60, 200])
def test_pairs_without_a_difference_allow_no_test_whatever_their_number(test, num: int):
    """EV-01, EV-02: the same verdict for 10 and 25, where scipy has 1.0 and NaN."""
    found = test([0.0] * num)
    assert (found.p, found.direction, found.num_different) == (None, 0, 0)
    assert found.note == "no pair differs: test not defined"


@pytest.mark.parametrize("test", TESTS)
def test_residues_of_floating_point_are_no_difference(test):
    """EV-01: different values that are pairwise equal, each summed in another order."""
    before, after = [0.1 + 0.2 + 0.3, 0.7], [0.3 + 0.2 + 0.1, 0.1 + 0.6]
    assert before != after
    assert test([b - a for a, b in zip(before, after, strict=True)]).p is None


def test_equal_differences_have_no_spread_for_a_t_test_and_are_ranked_all_the_same():
    """EV-01: a p of 0 would look real."""
    found = paired_t_test([0.1] * 8)
    assert found.p is None
    assert "no spread" in found.note
    assert signed_rank_test([0.1] * 8).p == sign_test([0.1] * 8).p == 2 * 0.5**8


@pytest.mark.parametrize("test", EXACT)
@pytest.mark.parametrize(("num", "p"), [(2, 0.5), (5, 0.0625), (6, 0.03125)])
def test_the_smallest_p_is_reached_where_all_pairs_rise(test, num: int, p: float):
    """EV-05."""
    found = test([0.25] * num)
    assert found.p == found.smallest_p == smallest_p(num) == p
    assert found.direction == 1


@pytest.mark.parametrize("test", TESTS)
def test_one_pair_allows_no_test(test):
    """EV-05."""
    found = test([0.5])
    assert (found.p, found.smallest_p, found.note) == (None, None, "one pair allows no test")


@pytest.mark.parametrize(("alpha", "num"), [(0.5, 2), (0.0625, 5), (0.05, 6), (0.03125, 6), (0.01, 8)])
def test_so_many_pairs_are_needed_to_reach_a_level(alpha: float, num: int):
    """EV-05."""
    assert smallest_num_pairs(alpha) == num
    found = smallest_p(num)
    assert found is not None
    assert found <= alpha


def test_the_sign_test_is_mcnemars_exact_test_on_successes():
    rng = np.random.default_rng(6)
    for _ in range(60):
        num = int(rng.integers(2, 120))
        before, after = rng.uniform(size=(2, num)) < rng.uniform(0.2, 0.8, size=(2, 1))
        table = [[np.sum(before & after), np.sum(before & ~after)], [np.sum(~before & after), np.sum(~before & ~after)]]
        if (before != after).any():
            differences = after.astype(float) - before
            found = sign_test(differences.tolist())
            assert found.p == pytest.approx(float(mcnemar(table, exact=True).pvalue), abs=1e-12)
            assert found.p == pytest.approx(float(known_sign_test(differences)[1]), abs=1e-12)
            assert found.direction == np.sign(differences.sum())


def test_one_rise_and_nine_falls():
    """Chance of at most 1 of 10, twice: 2 * (1 + 10) / 1024."""
    found = sign_test([1.0] + [-1.0] * 9 + [0.0] * 30)
    assert (found.p, found.direction, found.num_pairs, found.num_different) == (22 / 1024, -1, 40, 10)
    assert sign_test([1.0, -1.0, 0.0]).direction == 0


def test_ranks_of_three_differences_counted_by_hand():
    """Rank sums of +1 -2 +3: 4 of 6 up. Of the 8 signs, sums 4, 5, 6 and 2, 1, 0 lean as far: 6 of 8."""
    assert signed_rank_test([0.1, -0.2, 0.3]).p == 6 / 8


def test_the_signed_rank_test_is_scipys_exact_one_without_ties():
    rng = np.random.default_rng(7)
    for num in [*range(2, 51, 3), 60, 100]:
        differences = rng.normal(0.2, 1, num)
        known = stats.wilcoxon(differences, method="exact")
        assert signed_rank_test(differences.tolist()).p == pytest.approx(float(known.pvalue), rel=1e-9)


def test_the_signed_rank_test_is_exact_with_ties_too():
    """Against all signs, tried one by one."""
    rng = np.random.default_rng(8)
    for num in (3, 6, 9):
        differences = rng.integers(-3, 4, num) / 4
        changed = differences[differences != 0]
        ranks = stats.rankdata(np.abs(changed))
        signs = np.array(np.meshgrid(*[[-1, 1]] * len(changed))).reshape(len(changed), -1)
        share = np.mean(np.abs(ranks @ signs) >= abs(ranks @ np.sign(changed)))
        assert signed_rank_test(differences.tolist()).p == pytest.approx(share, abs=1e-12)


def counted_rank_p(differences: np.ndarray) -> float:
    """Return the two-sided p of the rank sum, ties or not, by counting all signs in whole numbers."""
    changed = differences[differences != 0]
    sizes = np.abs(changed)
    doubled = [int((sizes < size).sum() * 2 + (sizes == size).sum() + 1) for size in sizes]
    counts = {0: 1}
    for rank in doubled:
        moved = dict(counts)
        for total, count in counts.items():
            moved[total + rank] = moved.get(total + rank, 0) + count
        counts = moved
    up, whole = sum(rank for rank, value in zip(doubled, changed, strict=True) if value > 0), sum(doubled)
    far = sum(count for total, count in counts.items() if abs(2 * total - whole) >= abs(2 * up - whole))
    return far / 2 ** len(doubled)


@pytest.mark.parametrize("shift", [0.0, 0.15, 0.25, 0.35])
@pytest.mark.parametrize("decimals", [1, 9])
def test_above_a_hundred_differences_the_signed_rank_test_is_near_the_exact_one(shift: float, decimals: int):
    """To 1 % of p or 0.0005; with ties and zeros where it is rounded to one decimal."""
    differences = np.round(np.random.default_rng(9).normal(shift, 1, 120), decimals)
    found = signed_rank_test(differences.tolist())
    assert found.note == "normal approximation"
    assert found.num_different > 100
    assert found.p == pytest.approx(counted_rank_p(differences), rel=0.01, abs=5e-4)


def test_up_to_a_hundred_differences_the_signed_rank_test_counts_as_exactly():
    for num, decimals in ((30, 1), (100, 1), (100, 9)):
        differences = np.round(np.random.default_rng(num).normal(0.2, 1, num), decimals)
        assert signed_rank_test(differences.tolist()).p == pytest.approx(counted_rank_p(differences), rel=1e-9)


def test_exact_and_normal_ranks_meet():
    differences = np.random.default_rng(10).normal(0.15, 1, 100)
    exact, normal = signed_rank_test(differences.tolist()).p, stats.wilcoxon(differences, method="asymptotic").pvalue
    assert exact == pytest.approx(float(normal), rel=0.01)


def test_the_paired_t_test_is_scipys():
    rng = np.random.default_rng(11)
    for num in (2, 5, 40, 300):
        before, after = rng.normal(size=(2, num))
        known = stats.ttest_rel(after, before)
        found = paired_t_test((after - before).tolist())
        assert found.p == pytest.approx(float(known.pvalue), abs=1e-7)
        assert found.direction == np.sign(known.statistic)
        assert found.smallest_p is None


@settings(max_examples=100)
@given(st.sampled_from(TESTS), st.lists(st.integers(-4, 4).map(lambda n: n / 8), min_size=1, max_size=20), st.randoms())
def test_order_changes_nothing_and_swapped_sides_turn_the_direction(test, differences: list[float], random):
    """EV-11: to the last digit."""
    found = test(differences)
    assert found.p is None or 0 <= found.p <= 1
    random.shuffle(differences)
    assert test(differences) == found
    turned = test([-value for value in differences])
    assert (turned.p, turned.direction) == (found.p, -found.direction)


@pytest.mark.parametrize("test", TESTS)
def test_a_test_of_nothing_is_refused(test):
    with pytest.raises(DataError, match="got none"):
        test([])


def test_holm_corrects_in_the_original_order_and_leaves_out_constant_metrics():
    """EV-10."""
    p_values = [0.01, 0.04, 0.03, 0.005, 0.2]
    assert holm(p_values) == pytest.approx([0.04, 0.09, 0.09, 0.025, 0.2])
    assert holm([None, *p_values, None, None]) == [None, *holm(p_values), None, None]
    assert holm([]) == []
    assert holm([None]) == [None]


def test_holm_is_that_of_statsmodels(monkeypatch: pytest.MonkeyPatch):
    """EV-10: statsmodels collects garbage in every call, which takes longer than all the rest."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
    rng = np.random.default_rng(16)
    for num in (1, 2, 3, 5, 8, 20, 50):
        for largest in (0.02, 0.1, 1.0):
            p_values = np.round(rng.uniform(0, largest, num), 3)
            assert holm(p_values.tolist()) == pytest.approx(multipletests(p_values, method="holm")[1].tolist())


@pytest.mark.parametrize("test", [signed_rank_test, paired_t_test])
def test_rewards_that_do_not_differ_are_called_different_one_time_in_twenty(test):
    """2,000 comparisons of 40 tasks, rewards continuous: 0.05 within 0.01, for skewed rewards too."""
    rng = np.random.default_rng(12)
    task = rng.beta(2, 2, size=(2000, 40))
    before, after = (np.clip(task + rng.gumbel(0, 0.1, task.shape), -2, 3) for _ in range(2))
    found = [test(row.tolist()).p for row in after - before]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize(("num_tasks", "share"), [(20, 0.2), (60, 0.4), (1000, 0.6)])
def test_successes_that_do_not_differ_are_never_called_different_too_often(num_tasks: int, share: float):
    """2,000 comparisons; an exact test stays below its level where few tasks change and nears it where many do."""
    rng = np.random.default_rng(13)
    changed = rng.uniform(size=(2000, num_tasks)) < share
    differences = changed * rng.choice([-1.0, 1.0], size=(2000, num_tasks))
    found = [sign_test(row.tolist()).p for row in differences]
    wrong = np.mean([p is not None and p <= 0.05 for p in found])
    assert wrong <= 0.06
    if num_tasks * share >= 600:
        assert wrong == pytest.approx(0.05, abs=0.01)
