"""The sentences that end a comparison."""

import numpy as np
import pytest
from evaluated import played, side

from skyrl_nat.evaluation.comparison import compare
from skyrl_nat.evaluation.measures import ComparisonSettings, RewardTest, Values, measures_of
from skyrl_nat.evaluation.verdict import Decision, verdict_of

QUICK = ComparisonSettings(num_resamples=200)


def test_better_and_worse_are_told_with_size_interval_and_p():
    low, high = side([0.0] * 12 + [1.0] * 8), side([1.0] * 20)
    found = compare(low, high, settings=QUICK).verdict
    assert found.decision is Decision.better
    assert found.sentence.startswith(
        "better: success went from 40.0 to 100.0, by +60.0 percentage points (95% interval "
    )
    assert found.sentence.endswith(", p = 0.000488, 20 tasks)")
    turned = compare(high, low, settings=QUICK).verdict
    assert turned.decision is Decision.worse
    assert turned.sentence.startswith("worse: success went from 100.0 to 40.0, by -60.0 percentage points")


def test_what_may_be_chance_is_told_with_what_could_be_seen():
    """EV-05: not being able to tell is not "no difference"; 7 of 40 rise and 3 fall: p = 2 * 176 / 1024."""
    before = side([0.0] * 7 + [1.0] * 3 + [0.0] * 15 + [1.0] * 15)
    after = side([1.0] * 7 + [0.0] * 3 + [0.0] * 15 + [1.0] * 15)
    found = compare(before, after, settings=QUICK)
    assert found.success.test.p == 352 / 1024
    assert found.verdict.decision is Decision.cannot_tell
    assert found.verdict.sentence.startswith("cannot tell: success went from 45.0 to 55.0, by +10.0 percentage points")
    assert found.verdict.sentence.endswith(
        "p = 0.344, 40 tasks); 40 tasks show a difference of 22.5 percentage points or more with 80% power; a "
        "difference as seen needs about 196 tasks"
    )


def test_too_few_changed_tasks_are_named():
    """EV-05: 30 tasks could reach 0.05, three changed ones cannot."""
    found = compare(side([0.0] * 30), side([1.0] * 3 + [0.0] * 27), settings=QUICK).verdict
    assert found.decision is Decision.cannot_tell
    assert "only 3 tasks changed, at least 6 must" in found.sentence


def test_the_reward_speaks_where_no_success_changed():
    before, after = side([0.1] * 10), side([0.1 + index / 50 for index in range(1, 11)])
    found = compare(before, after, settings=QUICK)
    assert found.success_verdict.decision is Decision.no_difference
    assert found.verdict.decision is found.reward_verdict.decision is Decision.better
    assert found.verdict.sentence == f"{found.reward_verdict.sentence}; the success of every task is as before"
    assert "reward went from 0.100 to 0.210, by +0.110 (95% interval " in found.verdict.sentence


def test_success_speaks_where_it_changed_whatever_the_reward_says():
    before = [played(f"t{index}", 0.0) for index in range(20)]
    after = [played("t0", 1.0), *(played(f"t{index}", index / 40) for index in range(1, 20))]
    found = compare(before, after, settings=QUICK)
    assert found.reward_verdict.decision is Decision.better
    assert found.verdict == found.success_verdict
    assert found.verdict.decision is Decision.cannot_tell


def test_many_small_rises_against_few_large_falls_are_not_called_better():
    """Of ten rollouts a task, 14 tasks win the last one, 2 lose all nine they had: 14 of 16 signs, and a lower mean."""
    before = [played(f"t{index}", *[1.0] * 9, 0.0) for index in range(30)]
    after = [
        *(played(f"t{index}", *[1.0] * 10) for index in range(14)),
        *(played(f"t{index}", *[0.0] * 10) for index in (14, 15)),
        *before[16:],
    ]
    found = compare(before, after, settings=QUICK)
    assert found.success.test.p == 2 * (1 + 16 + 120) / 2**16
    assert (found.success.test.direction, found.success.difference) == (1, pytest.approx((14 - 18) / 300))
    assert found.verdict.decision is Decision.cannot_tell
    assert found.verdict.sentence.startswith("cannot tell: more tasks moved one way, the mean did not: success went")


def test_small_rises_against_a_few_large_falls_are_not_called_better_where_the_mean_may_not_have_moved():
    """Two rollouts a task: 12 tasks rise by a half, 2 fall by one; the interval of the mean holds 0."""
    before = [played(f"t{index:02d}", 1.0, float(index in (12, 13))) for index in range(30)]
    after = [
        *(played(f"t{index:02d}", 1.0, 1.0) for index in range(12)),
        *(played(f"t{index:02d}", 0.0, 0.0) for index in (12, 13)),
        *before[14:],
    ]
    found = compare(before, after, settings=QUICK)
    assert found.success.test.p == 2 * (1 + 14 + 91) / 2**14
    assert found.success.interval.low < 0 < found.success.difference
    assert found.verdict.decision is Decision.cannot_tell
    assert found.verdict.sentence.startswith("cannot tell: more tasks moved one way, the mean may not have: success")


@pytest.mark.parametrize("num_rollouts", [1, 2, 4])
def test_interval_and_verdict_of_success_never_contradict_each_other(num_rollouts: int):
    """Random tables; with several rollouts a task the share of successes is compared."""
    rng = np.random.default_rng(num_rollouts)
    told = set[Decision]()
    for _ in range(150):
        num, lean = int(rng.integers(6, 60)), rng.uniform(-0.3, 0.3)
        before = rng.binomial(num_rollouts, 0.5, num)
        after = np.where(rng.uniform(size=num) < 0.6, before, rng.binomial(num_rollouts, 0.5, num))
        moved = np.clip(before + np.sign(lean), 0, num_rollouts)
        after = np.where(rng.uniform(size=num) < abs(lean), moved, after)
        shares = [(side / num_rollouts).tolist() for side in (before, after)]
        (found,) = measures_of([Values(name="success", before=shares[0], after=shares[1], is_share=True)], QUICK)
        decision = verdict_of(found, QUICK).decision
        told.add(decision)
        assert (decision is Decision.better) == (found.interval.low > 0)
        assert (decision is Decision.worse) == (found.interval.high < 0)
    assert told >= {Decision.better, Decision.worse, Decision.cannot_tell}


def test_equal_rises_have_no_t_test():
    """EV-01."""
    student = ComparisonSettings(num_resamples=100, reward_test=RewardTest.paired_t)
    found = compare(side([0.1] * 10), side([0.2] * 10), settings=student).reward_verdict
    assert found.decision is Decision.cannot_tell
    assert found.sentence.endswith("10 tasks); all differences are equal: no spread to test against")


def test_a_p_equal_to_the_level_reaches_it():
    """EV-05: five tasks suffice for a level of 0.0625."""
    found = compare(side([0.0] * 5), side([1.0] * 5), settings=ComparisonSettings(num_resamples=100, alpha=0.0625))
    assert found.success.test.p == 0.0625
    assert found.verdict.decision is Decision.better
