"""Joining two evaluations by id."""

import dataclasses
import random
import re

import pytest
from evaluated import LOST, played, rollout, side

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.pairing import Joined, join
from skyrl_nat.evaluation.scores import score_of
from skyrl_nat.types import Outcome, RolloutGroup


def joined(before: list[RolloutGroup], after: list[RolloutGroup], unmatched: float = 0.1, gap: float = 0.1) -> Joined:
    return join(before, after, max_unmatched_share=unmatched, max_lost_gap=gap)


def test_tasks_are_joined_by_id_whatever_their_place():
    """EV-07: shuffled, two missing, one extra, one twice: the same as sorted without them, and all four are listed."""
    before = side([index / 50 for index in range(48)])
    common = side([(index + 1) / 50 for index in range(46)])
    extra, twice = played("z", 1.0), common[7]
    after = [*common, extra, twice]
    random.Random(1).shuffle(after)
    found = joined(before, after)
    assert found.pairs == joined(before[:46], common).pairs
    assert [pair.task.task_id for pair in found.pairs] == [f"t{index:02d}" for index in range(46)]
    assert all(pair.after.reward == pytest.approx(pair.before.reward + 0.02) for pair in found.pairs)
    assert (found.before.unpaired, found.after.unpaired) == (("t46", "t47"), ("z",))
    assert (found.before.repeated, found.after.repeated) == ((), ("t07",))
    assert (found.before.num_tasks, found.after.num_tasks) == (48, 47)


def test_too_many_unmatched_tasks_are_refused_with_their_ids():
    """EV-07: of 11 ids 2 are missing, 1 is extra and 1 is there twice."""
    before = side([0.5] * 10)
    after = [*before[:8], played("z", 0.5), before[0]]
    message = (
        "At most 0.1 of all tasks may be on one side only or given more than once, got 0.364: only before t08, t09; "
        "only after z; more than once t00. Evaluate both policies on the same tasks"
    )
    with pytest.raises(DataError, match=re.escape(message)):
        joined(before, after)
    assert len(joined(before, after, unmatched=4 / 11).pairs) == 8


def test_many_ids_are_counted_rather_than_named():
    with pytest.raises(DataError, match="only before t01, t02, t03, t04, t05, t06, t07, t08, t09, t10 and 29 more"):
        joined(side([0.5] * 40), side([0.5]))


@pytest.mark.parametrize(
    "other",
    [
        played("t00", 0.6),
        played("t00", 0.5, outcome=Outcome.TRUNCATED),
        played("t00", 0.5, parts={"p": 0.4}),
        played("t00", 0.5, difficulty=2),
        played("t00", 0.5, 0.5),
        played("t00", 0.5, outcome=Outcome.VALIDATOR_FAILURE),
    ],
)
def test_a_task_given_twice_must_say_the_same(other: RolloutGroup):
    """EV-07: which of the two counts would depend on their order."""
    tasks = side([0.5] * 20)
    with pytest.raises(DataError, match=r"more than once must be the same with the same score each time, after .* t00"):
        joined(tasks, [*tasks, other])


def test_the_place_in_the_file_is_no_part_of_a_score():
    """EV-07."""
    tasks = side([0.5] * 20)
    assert joined(tasks, [*tasks, dataclasses.replace(tasks[0], index=9, score_s=3.0)]).after.repeated == ("t00",)


@pytest.mark.parametrize("change", [{"difficulty": 2}, {"family": "g"}, {"payload": {"text": "other"}}])
def test_an_id_of_two_tasks_is_refused(change: dict):
    """EV-07: the same id of another task file."""
    tasks = side([0.5] * 20)
    other = dataclasses.replace(tasks[3], task=dataclasses.replace(tasks[3].task, **change))
    with pytest.raises(DataError, match=r"the same task before and after.* differ for t03"):
        joined(tasks, [*tasks[:3], other, *tasks[4:]])


def test_what_the_policy_broke_off_is_wrong_and_beside_it_stands_what_finished():
    """EV-08: 8 right, 1 wrong, 1 timed out: 0.8 of 10, 0.889 of 9."""
    tasks = [*side([1.0] * 8 + [0.0]), played("t09", 0.0, outcome=Outcome.TRUNCATED)]
    found = joined(tasks, tasks)
    assert sum(pair.before.success for pair in found.pairs) / 10 == 0.8
    assert (found.before.finished_success, found.before.num_finished) == (8 / 9, 9)
    assert found.before.rollouts_by_outcome == {"finished": 9, "truncated": 1}


@pytest.mark.parametrize("outcome", LOST)
def test_lost_tasks_are_in_no_mean_and_listed(outcome: Outcome):
    """EV-08: what infrastructure or validator lost is no zero, on either side."""
    tasks = side([0.5] * 20)
    lost = [*tasks[:19], played("t19", 0.0, outcome=outcome)]
    found = joined(tasks, lost)
    assert [pair.task.task_id for pair in found.pairs] == [f"t{index:02d}" for index in range(19)]
    assert (found.before.without_verdict, found.after.without_verdict) == ((), ("t19",))
    assert found.after.lost_share == 0.05
    assert found.after.rollouts_by_outcome == {"finished": 19, str(outcome): 1}


def test_sides_that_lost_very_different_shares_are_refused():
    """EV-08: the baseline has three infrastructure errors."""
    after = side([1.0] * 8 + [0.0, 0.0])
    before = [*after[:7], *(played(f"t0{n}", 0.0, outcome=Outcome.INFRASTRUCTURE_FAILURE) for n in (7, 8, 9))]
    message = (
        "failures must differ by at most 0.1, got 0.3 before and 0 after; tasks without a verdict: before t07, t08, "
        "t09, after none. Evaluate again, which plays only those again"
    )
    with pytest.raises(DataError, match=re.escape(message)):
        joined(before, after)
    assert len(joined(before, after, gap=0.3).pairs) == 7
    assert len(joined(before, before).pairs) == 7


def test_rollouts_lost_inside_of_groups_are_lost_too():
    """EV-08: every task keeps a verdict, and half of the rollouts are gone on one side only."""
    whole = [played(f"t{index}", 1.0, 0.0) for index in range(5)]
    halves = [
        dataclasses.replace(
            group, rollouts=[group.rollouts[0], rollout(group.task, 0.0, Outcome.INFRASTRUCTURE_FAILURE, {})]
        )
        for group in whole
    ]
    with pytest.raises(DataError, match=r"got 0 before and 0.5 after"):
        joined(whole, halves)
    assert score_of(halves[0]) == score_of(played("t0", 1.0))


def test_a_group_without_rollouts_is_lost():
    """EV-08."""
    empty = played("t00")
    assert score_of(empty) is None
    assert joined([*side([0.5] * 11)], [empty, *side([0.5] * 11)[1:]]).after.lost_share == pytest.approx(1 / 11)


def test_a_suspect_of_cheating_is_no_success_and_earns_nothing():
    """EV-08: leaving it out would pay for it."""
    found = score_of(played("a", 1.0, outcome=Outcome.SCREENED))
    assert found is not None
    assert (found.success, found.reward, found.finished_success, found.parts) == (0.0, 0.0, None, {})
    group = played("a", 1.0, 1.0)
    mixed = [group.rollouts[0], rollout(group.task, 1.0, Outcome.SCREENED, {"p": 1.0})]
    found = score_of(dataclasses.replace(group, rollouts=mixed))
    assert found is not None
    assert (found.success, found.reward, found.parts) == (0.5, 0.5, {"p": 1.0})


def test_a_score_is_the_mean_of_its_rollouts_in_any_order():
    """EV-11: to the last digit."""
    rewards = [0.1, 0.2, 0.3, 1.0, 0.7, 1e-9]
    scores = {repr(score_of(played("a", *random.Random(seed).sample(rewards, 6)))) for seed in range(20)}
    assert len(scores) == 1
    found = score_of(played("a", *rewards))
    assert found is not None
    assert (found.success, found.reward) == (1 / 6, pytest.approx(2.3 / 6))


def test_a_part_is_the_mean_over_the_rollouts_that_have_it():
    group = played("a", 0.5, parts={"p": 0.5, "q": float("nan")})
    other = rollout(group.task, 0.5, Outcome.FINISHED, {"p": 1.0, "r": 0.25})
    found = score_of(dataclasses.replace(group, rollouts=[*group.rollouts, other]))
    assert found is not None
    assert found.parts == {"p": 0.75, "r": 0.25}


def test_an_evaluation_of_nothing_is_refused():
    with pytest.raises(DataError, match="tasks on both sides, got none after"):
        joined(side([0.5]), [])
    lost = [played("t00", 0.0, outcome=Outcome.VALIDATOR_FAILURE)]
    with pytest.raises(DataError, match="1 tasks before and 1 after and none of them"):
        joined(lost, lost)


def test_hidden_parts_do_not_travel():
    assert joined(side([0.5]), side([0.5])).pairs[0].task.hidden == {}
