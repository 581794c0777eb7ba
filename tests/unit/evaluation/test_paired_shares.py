"""Intervals of a difference of success hold what they promise, and say the same as the exact test."""

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from skyrl_nat.evaluation.paired_shares import success_interval, tango_interval, tango_score
from skyrl_nat.evaluation.paired_tests import sign_test


def interval_of(differences: list[float]):
    return success_interval(differences, sign_test(differences), confidence=0.95, num_resamples=200, seed=0)


def table(num_wins: int, num_losses: int, num: int) -> list[float]:
    return [1.0] * num_wins + [-1.0] * num_losses + [0.0] * (num - num_wins - num_losses)


@pytest.mark.parametrize(("wins", "losses", "num"), [(12, 2, 50), (3, 9, 40), (5, 0, 30), (0, 1, 10), (20, 20, 41)])
def test_at_its_ends_the_score_test_is_at_its_limit(wins: int, losses: int, num: int) -> None:
    """The likeliest losses are found by a search here."""

    def searched(difference: float) -> float:
        def unlikely(loss: float) -> float:
            win = loss + difference
            rest = 1 - loss - win
            parts = ((wins, win), (losses, loss), (num - wins - losses, rest))
            return -sum(count * math.log(max(share, 1e-300)) for count, share in parts if count)

        bounds = (max(0.0, -difference) + 1e-13, (1 - difference) / 2 - 1e-13)
        loss = optimize.minimize_scalar(unlikely, bounds=bounds, method="bounded", options={"xatol": 1e-12}).x
        return (wins - losses - num * difference) / math.sqrt(num * (2 * loss + difference * (1 - difference)))

    for end, limit in zip(tango_interval(wins, losses, num), (1.959963984540054, -1.959963984540054), strict=True):
        assert tango_score(end, wins, losses, num) == pytest.approx(limit, abs=1e-6)
        assert searched(end) == pytest.approx(limit, abs=1e-3)


def test_at_zero_the_score_is_mcnemars() -> None:
    assert tango_score(0.0, 12, 2, 50) == pytest.approx((12 - 2) / math.sqrt(14))


@pytest.mark.parametrize("num", [7, 20, 240])
def test_zero_lies_outside_exactly_where_the_test_tells(num: int) -> None:
    for wins, losses in itertools.product(range(min(num, 24)), repeat=2):
        if wins + losses > num:
            continue
        differences = table(wins, losses, num)
        p, found = sign_test(differences).p, interval_of(differences)
        is_outside = found.low > 0 or found.high < 0
        assert is_outside == (p is not None and p <= 0.05), (wins, losses)
        assert -1 <= found.low <= (wins - losses) / num <= found.high <= 1
        mirrored = interval_of([-value for value in differences])
        assert (mirrored.low, mirrored.high) == pytest.approx((-found.high, -found.low), abs=1e-12)


@pytest.mark.parametrize("size", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("alpha", [0.2, 0.05, 0.01, 0.001])
def test_differences_of_one_size_agree_with_the_test_at_every_level(alpha: float, size: float) -> None:
    """Random tables, those without a tie or a loss among them; below 0.001 Tango's interval is the wider one."""
    generator = np.random.default_rng(6)
    for _ in range(150):
        num = int(generator.integers(2, 120))
        weights = generator.dirichlet([0.4, 0.2, 0.4])
        differences = (size * generator.choice([1.0, -1.0, 0.0], size=num, p=weights)).tolist()
        test = sign_test(differences)
        found = success_interval(differences, test, confidence=1 - alpha, num_resamples=100, seed=0)
        assert (found.low > 0 or found.high < 0) == (test.p is not None and test.p <= alpha), differences


@pytest.mark.parametrize(("num", "share"), [(20, 0.2), (40, 0.15), (240, 0.05)])
def test_sparse_changes_by_chance_leave_out_zero_in_one_interval_of_twenty_at_most(num: int, share: float) -> None:
    generator = np.random.default_rng(3)
    changed = generator.uniform(size=(2000, num)) < share
    differences = changed * generator.choice([-1.0, 1.0], size=(2000, num))
    counts = list(zip((differences > 0).sum(1).tolist(), (differences < 0).sum(1).tolist(), strict=True))
    found = {each: interval_of(table(*each, num)) for each in set(counts)}
    assert sum(found[each].low > 0 or found[each].high < 0 for each in counts) / 2000 <= 0.06


def test_seeds_that_are_averaged_do_not_contradict_it_either() -> None:
    generator = np.random.default_rng(5)
    for _ in range(100):
        differences = generator.choice([-1.0, -0.5, 0.0, 0.5, 1.0], size=30, p=[0.05, 0.1, 0.6, 0.15, 0.1]).tolist()
        p, found = sign_test(differences).p, interval_of(differences)
        assert found.low <= 0 <= found.high or (p is not None and p <= 0.05)


@pytest.mark.parametrize(
    ("num", "win", "loss"), [(20, 0.1, 0.1), (40, 0.075, 0.075), (240, 0.025, 0.025), (84, 0.15, 0.05), (240, 0.1, 0)]
)
def test_nineteen_of_twenty_intervals_hold_the_truth(num: int, win: float, loss: float) -> None:
    """Also where few tasks change; the bootstrap's missed it in up to a tenth."""
    counts = np.random.default_rng(1).multinomial(num, [win, loss, 1 - win - loss], size=2000)
    known: dict[tuple[int, int], bool] = {}
    for wins, losses, _ in counts.tolist():
        if (wins, losses) not in known:
            low, high = (0.0, 0.0) if wins == losses == 0 else tango_interval(wins, losses, num)
            known[wins, losses] = low <= win - loss <= high
    assert sum(known[wins, losses] for wins, losses, _ in counts.tolist()) / 2000 >= 0.94
