"""Figures of rollouts as columns, against numbers worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from groups import make_rollout
from recorded_run import group_of, judged

from skyrl_nat.evaluation.analysis.rollout_table import RolloutTable, correlations, part_weights
from skyrl_nat.evaluation.scores import score_of
from skyrl_nat.evaluation.verdict import Decision
from skyrl_nat.types import Outcome


def table(*groups, step: int = 1) -> RolloutTable:
    found = RolloutTable()
    for group in groups:
        found.add(step, group)
    return found


def test_only_rollouts_with_a_verdict_count():
    found = table(group_of(0, [judged("a", 1.0), make_rollout("b", None), judged("c", math.nan)]))
    assert (len(found), found.column("reward").tolist()) == (1, [1.0])


def test_a_screened_rollout_of_a_held_out_task_is_a_failure_as_in_evaluations():
    screened = replace(judged("b", 1.0, is_success=True), outcome=Outcome.SCREENED)
    group = group_of(0, [judged("a", 1.0, is_success=True), screened])
    found = RolloutTable()
    found.add(1, group, is_held_out=True)
    score = score_of(group)
    assert score is not None
    assert found.column("success").mean() == score.success == 0.5
    assert found.column("reward").mean() == score.reward == 0.5
    assert len(table(group)) == 1, "no part of training"


def test_a_part_that_a_rollout_has_none_of_is_unknown():
    found = table(group_of(0, [judged("a", 0.1, parts={"x": 1.0}), judged("b", 0.2, parts={"y": 2.0})]))
    assert [values.tolist() for values in found.parts.values()] == [
        pytest.approx([1.0, math.nan], nan_ok=True),
        pytest.approx([math.nan, 2.0], nan_ok=True),
    ]


def test_the_band_is_over_groups():
    found = table(group_of(0, [judged("a", 0.0), judged("b", 0.4)]), group_of(1, [judged("c", 0.6), judged("d", 1.0)]))
    # The groups' means are 0.2 and 0.8: their standard deviation is 0.6 / sqrt(2).
    assert found.half_widths("reward") == {1: pytest.approx(1.96 * 0.6 / 2)}
    assert table(group_of(0, [judged("a", 0.0)])).half_widths("reward") == {}
    assert RolloutTable().half_widths("reward") == {}


def test_flat_groups_are_counted_by_their_success():
    found = table(
        group_of(0, [judged("a", 1.0), judged("b", 1.0)]),
        group_of(1, [judged("a", 0.2), judged("b", 0.2)]),
        group_of(2, [judged("a", 0.0), judged("b", 0.0)]),
        group_of(3, [judged("a", 0.0), judged("b", 1.0)]),
    )
    assert found.flat_groups() == {1: (4, 1, 2)}


def test_the_weights_of_the_parts_are_found_from_the_totals():
    rng = np.random.default_rng(0)
    rollouts = []
    for number in range(50):
        x, y, z = rng.random(3)
        parts = {"x": x, "y": y, "z": z} if number % 2 else {"x": x, "y": y}
        rollouts.append(judged(str(number), 0.5 * x + 0.3 * y - (0.1 * z if number % 2 else 0.0), parts=parts))
    found = part_weights(table(group_of(0, rollouts)))
    assert found.weights == pytest.approx({"x": 0.5, "y": 0.3, "z": -0.1})
    assert found.fit == pytest.approx(1.0)
    assert found.is_good


def test_parts_that_do_not_make_up_the_total_have_no_weights():
    rng = np.random.default_rng(0)
    rollouts = [judged(str(n), rng.random(), parts={"x": rng.random()}) for n in range(50)]
    assert not part_weights(table(group_of(0, rollouts))).is_good
    assert not part_weights(table(group_of(0, [judged("a", 0.5, parts={"x": 1.0})] * 3))).is_good


def test_correlations_are_pearsons_and_unknown_of_constants():
    rollouts = [judged(str(n), n / 4, parts={"same": n / 4, "against": -n, "still": 1.0}) for n in range(5)]
    found = correlations(table(group_of(0, rollouts)))
    assert found["same"]["reward"] == pytest.approx(1.0)
    assert found["against"]["same"] == pytest.approx(-1.0)
    assert found["still"]["reward"] is None
    assert found["success"]["reward"] == pytest.approx(1 / math.sqrt(2))


def test_pairs_are_tasks_of_the_first_and_the_last_step():
    found = RolloutTable()
    for step, reward in ((0, 0.25), (5, 0.1), (9, 0.75)):
        for task in range(9):
            if (step, task) != (9, 8):
                found.add(step, group_of(task, [judged("a", reward + task / 100)], f"t{task}"))
    pairs = found.paired("reward")
    assert pairs is not None
    assert (pairs.first_step, pairs.last_step, pairs.measure.num_tasks) == (0, 9, 8)
    assert pairs.measure.difference == pytest.approx(0.5)


def twice(before: list[float], after: list[float]) -> RolloutTable:
    """Return tasks with one rollout each at steps 0 and 9; those that earn 1 succeed."""
    found = RolloutTable()
    for step, rewards in ((0, before), (9, after)):
        for number, worth in enumerate(rewards):
            rollout = judged(f"{step}-{number}", worth, is_success=worth == 1.0)
            found.add(step, group_of(number, [rollout], task_id=f"t{number}"), is_held_out=True)
    return found


def test_the_same_tasks_are_compared_as_a_comparison_does():
    """Four of twelve that rise are no rise of success: a t-interval says so, the exact test does not."""
    found = twice([0.0] * 12, [1.0] * 4 + [0.0] * 8).paired("success")
    assert found is not None
    assert (found.decision, found.measure.test.p) == (Decision.cannot_tell, 2 / 2**4)
    assert found.measure.interval.low == 0.0
    assert found.to_dict()["n"] == 12
    found = twice([0.0] * 12, [1.0] * 8 + [0.0] * 4).paired("success")
    assert found is not None
    assert (found.decision, found.measure.test.p) == (Decision.better, 2 / 2**8)
    assert found.measure.interval.low > 0


def test_all_tasks_alike_are_no_certainty():
    found = twice([0.0] * 8, [1.0] * 8).paired("success")
    assert found is not None
    assert (found.decision, found.measure.test.p) == (Decision.better, 2 / 2**8)
    assert found.measure.interval.low < 1.0 == found.measure.interval.high
    same = twice([0.5] * 8, [0.5] * 8).paired("reward")
    assert same is not None
    assert (same.decision, same.to_dict()["p"]) == (Decision.no_difference, None)
    assert same.measure.interval.low < 0 < same.measure.interval.high
    assert twice([0.0] * 7, [1.0] * 7).paired("success") is None
