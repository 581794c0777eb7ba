"""Two evaluations compared: the figures, the sentences, and that nothing depends on the order."""

import dataclasses
import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from evaluated import played, side
from hypothesis import given, settings
from hypothesis import strategies as st

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.comparison import Comparison, compare
from skyrl_nat.evaluation.measures import ComparisonSettings, RewardTest
from skyrl_nat.evaluation.paired_tests import holm, paired_t_test, sign_test, signed_rank_test
from skyrl_nat.evaluation.verdict import Decision
from skyrl_nat.strict_json import parse_json
from skyrl_nat.types import Outcome, RolloutGroup

QUICK = ComparisonSettings(num_resamples=100)
NO_DIFFERENCE = "no difference: every task scored the same; test not defined"


def text_of(comparison: Comparison) -> str:
    """Return the JSON of a comparison, which no NaN may be in."""
    text = json.dumps(comparison.to_dict(), allow_nan=False)
    assert parse_json(text) == comparison.to_dict()
    return text


def mixed_tasks(seed: int, shift: float = 0.0, num: int = 24) -> list[RolloutGroup]:
    """Return tasks of three levels and two families, with several parts and rollouts."""
    source = random.Random(seed)
    groups = []
    for index in range(num):
        reward = round(min(1.0, source.random() + shift), 2)
        parts = {"tests": reward, "format": 1.0, "style": source.random()}
        options = {"difficulty": 1 + index % 3, "family": "fg"[index % 2], "parts": parts}
        groups.append(played(f"t{index:02d}", reward, source.choice([0.0, 1.0]), **options))
    return groups


@pytest.mark.parametrize("num", [1, 8, 10, 25])
def test_equal_scores_are_no_difference_whatever_their_number(num: int):
    """EV-01, EV-02: no p, no NaN, the same sentence."""
    found = compare(side([0.5] * num), side([0.5] * num), settings=QUICK)
    assert (found.verdict.decision, found.verdict.sentence) == (Decision.no_difference, NO_DIFFERENCE)
    for measure in (found.success, found.reward, found.parts["p"]):
        assert (measure.test.p, measure.adjusted_p, measure.difference) == (None, None, 0.0)
        assert (measure.minimum_detectable, measure.num_tasks_needed, measure.effect_size) == (None, None, None)
        assert measure.interval.low < 0 < measure.interval.high
    text_of(found)


def test_different_scores_that_are_pairwise_equal_are_no_difference():
    """EV-01."""
    rewards = [0.1, 0.2, 0.3, 0.4, 1.0, 0.6, 1.0, 0.8]
    found = compare(side(rewards), side([reward + 1e-12 for reward in rewards]), settings=QUICK)
    assert found.verdict.sentence == NO_DIFFERENCE
    assert (found.success.before, found.success.num_ties, found.reward.num_ties) == (0.25, 8, 8)


@pytest.mark.parametrize(
    ("num", "sentence"),
    [
        (1, "cannot tell: one pair allows no test; at least 6 tasks are needed for p <= 0.05"),
        (
            5,
            "cannot tell: with 5 tasks the smallest possible p is 0.0625, so 0.05 cannot be reached; at least 6 tasks "
            "are needed",
        ),
        (
            6,
            "better: success went from 0.0 to 100.0, by +100.0 percentage points (95% interval 21.4 to 100.0, "
            "p = 0.0312, 6 tasks)",
        ),
    ],
)
def test_too_few_tasks_ever_to_tell_are_said_to_be_too_few(num: int, sentence: str):
    """EV-05: the candidate is always better."""
    found = compare(side([0.0] * num), side([1.0] * num), settings=QUICK)
    assert found.verdict.sentence == sentence
    assert found.success.test.smallest_p == {1: None, 5: 0.0625, 6: 0.03125}[num]
    assert (found.success.num_wins, len(found.gained), found.lost) == (num, num, ())
    text_of(found)


def test_shuffled_files_with_unmatched_ids_give_the_same_comparison():
    """EV-07: means are over the same ids on both sides."""
    before = side([(index % 7) / 6 for index in range(48)])
    common = side([(index % 5) / 4 for index in range(46)])
    after = [*common, played("z", 1.0), common[7]]
    random.Random(2).shuffle(after)
    found, plain = compare(before, after, settings=QUICK), compare(before[:46], common, settings=QUICK)
    assert found.num_tasks == 46
    assert (found.success, found.reward, found.verdict) == (plain.success, plain.reward, plain.verdict)
    assert (found.before.unpaired, found.after.unpaired, found.after.repeated) == (("t46", "t47"), ("z",), ("t07",))
    with pytest.raises(DataError, match="only before t46, t47; only after z; more than once t07"):
        compare(before, after, settings=dataclasses.replace(QUICK, max_unmatched_share=0.05))


def test_failures_of_the_model_count_as_wrong_and_both_figures_are_shown():
    """EV-08: 8 right, 1 wrong, 1 timed out; then three infrastructure errors on the other side."""
    after = [*side([1.0] * 8 + [0.0]), played("t09", 0.0, outcome=Outcome.TRUNCATED)]
    found = compare(after, after, settings=QUICK)
    assert found.success.after == 0.8
    assert (found.after.finished_success, found.after.num_finished) == (pytest.approx(0.889, abs=5e-4), 9)
    interval = found.success.after_interval
    assert (interval.method, interval.low, interval.high) == (
        "wilson",
        pytest.approx(0.490, abs=5e-4),
        pytest.approx(0.943, abs=5e-4),
    )
    lost = [played(f"t0{index}", 0.0, outcome=Outcome.INFRASTRUCTURE_FAILURE) for index in range(3)]
    with pytest.raises(DataError, match=r"got 0\.3 before and 0 after.* Evaluate again"):
        compare([*lost, *after[3:]], after, settings=QUICK)
    allowed = compare([*lost, *after[3:]], after, settings=dataclasses.replace(QUICK, max_lost_gap=0.5))
    assert (allowed.num_tasks, allowed.success.before, allowed.before.without_verdict) == (
        7,
        5 / 7,
        ("t00", "t01", "t02"),
    )


def test_parts_are_corrected_together_and_constant_ones_do_not_count():
    """EV-10: the same corrected values with three constant parts beside them."""
    names = ["a", "b", "c"]
    source = random.Random(3)
    before, after = [], []
    for index in range(30):
        values = {name: source.random() for name in names}
        later = {name: value + source.gauss(0.1 * rank, 0.3) for rank, (name, value) in enumerate(values.items())}
        constant = {"x": 1.0, "y": 0.0, "z": 0.3}
        before.append(played(f"t{index:02d}", 0.5, parts={**values, **constant}))
        after.append(played(f"t{index:02d}", 0.5, parts={**later, **constant}))
    found = compare(before, after, settings=QUICK).parts
    assert [found[name].adjusted_p for name in names] == holm([found[name].test.p for name in names])
    assert [found[name].adjusted_p for name in "xyz"] == [None, None, None]
    assert all(found[name].test.p is not None for name in names)


def test_kinds_of_tasks_are_corrected_together():
    """EV-10."""
    found = compare(mixed_tasks(4), mixed_tasks(5), settings=QUICK)
    for kinds, num in (
        (found.success_by_difficulty, 3),
        (found.reward_by_difficulty, 3),
        (found.success_by_family, 2),
        (found.reward_by_family, 2),
    ):
        measures = list(kinds.values())
        assert [measure.num_tasks for measure in measures] == [24 // num] * num
        assert [measure.adjusted_p for measure in measures] == holm([measure.test.p for measure in measures])
    assert list(found.success_by_difficulty) == ["1", "2", "3"]
    assert list(found.reward_by_family) == ["f", "g"]
    assert found.parts["format"].adjusted_p is None


def test_a_part_is_compared_on_the_tasks_that_have_it_on_both_sides():
    before = [played("a", 0.0, parts={"p": 0.1}), played("b", 0.0, parts={"p": 0.2, "q": 1.0})]
    after = [played("a", 0.0, parts={"p": 0.4, "q": 1.0}), played("b", 0.0, parts={"r": 1.0})]
    found = compare(before, after, settings=QUICK).parts
    assert list(found) == ["p"]
    assert (found["p"].num_tasks, found["p"].before, found["p"].after) == (1, 0.1, 0.4)


def test_the_same_tasks_in_any_order_give_the_same_bytes():
    """EV-11: rows shuffled, rollouts shuffled, called twice, and by two workers at once."""
    before, after = mixed_tasks(6), mixed_tasks(7)
    known = text_of(compare(before, after, settings=QUICK))
    source = random.Random(8)

    def shuffled(groups: list[RolloutGroup]) -> list[RolloutGroup]:
        turned = [dataclasses.replace(group, rollouts=group.rollouts[::-1], index=9) for group in groups]
        return source.sample(turned, len(turned))

    with ThreadPoolExecutor(2) as workers:
        calls = [workers.submit(compare, shuffled(before), shuffled(after), settings=QUICK) for _ in range(4)]
        assert {text_of(call.result()) for call in calls} == {known}
    stored = json.loads(known)["settings"]
    assert (stored["seed"], stored["num_resamples"], stored["alpha"]) == (0, 100, 0.05)
    assert text_of(compare(before, after, settings=dataclasses.replace(QUICK, seed=1))) != known


def test_another_process_finds_the_same_bytes():
    """EV-11: sets have another order there."""
    program = (
        "import json; from evaluated import side; from skyrl_nat.evaluation.comparison import compare\n"
        "first, second = side([(i * 7 % 11) / 10 for i in range(40)]), side([(i * 5 % 11) / 10 for i in range(39)])\n"
        "text = json.dumps(compare(first, second).to_dict())"
    )
    here: dict[str, str] = {}
    exec(program, here)
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.check_output([sys.executable, "-c", f"{program}; print(text)"], env=environment, text=True)
    assert there.strip() == here["text"]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=1, max_size=15))
def test_swapped_sides_mirror_the_comparison(scores: list[tuple[int, int]]):
    """EV-11: to the last digit, and the sentence turns."""
    first, second = (side([score[of] / 8 for score in scores]) for of in (0, 1))
    found, mirrored = compare(first, second, settings=QUICK), compare(second, first, settings=QUICK)
    for one, other in ((found.success, mirrored.success), (found.reward, mirrored.reward)):
        assert (one.before, one.before_interval) == (other.after, other.after_interval)
        assert (one.difference, one.interval.low, one.interval.high) == (
            -other.difference,
            -other.interval.high,
            -other.interval.low,
        )
        assert (one.num_wins, one.num_losses, one.test.p) == (other.num_losses, other.num_wins, other.test.p)
        assert (one.minimum_detectable, one.num_tasks_needed) == (other.minimum_detectable, other.num_tasks_needed)
    assert (found.gained, found.lost) == (mirrored.lost, mirrored.gained)
    turned = {Decision.better: Decision.worse, Decision.worse: Decision.better}
    assert mirrored.verdict.decision == turned.get(found.verdict.decision, found.verdict.decision)
    text_of(found)


def test_the_tests_are_the_ones_named():
    before, after = mixed_tasks(9), mixed_tasks(10, shift=0.1)
    pairs = zip(before, after, strict=True)
    scores = [[sum(r.reward.total for r in group.rollouts if r.reward) / 2 for group in pair] for pair in pairs]
    rewards = [after - before for before, after in scores]
    found = compare(before, after, settings=QUICK)
    assert found.reward.test == signed_rank_test(rewards)
    assert found.success.test.name == sign_test(rewards).name
    student = compare(before, after, settings=dataclasses.replace(QUICK, reward_test=RewardTest.paired_t))
    assert student.reward.test == paired_t_test(rewards)
    assert student.success == found.success
    assert student.parts["style"].test.name == "paired_t"


def test_several_rollouts_a_task_count_as_one_task():
    before = [played(f"t{index}", 0.0, 0.0, 1.0, 1.0) for index in range(8)]
    after = [played(f"t{index}", 0.0, 1.0, 1.0, 1.0) for index in range(8)]
    found = compare(before, after, settings=QUICK)
    assert (found.num_tasks, found.success.before, found.success.after) == (8, 0.5, 0.75)
    assert found.success.test.p == 2 / 2**8
    assert found.success.before_interval.method == "constant"
    assert found.verdict.decision is Decision.better


def test_changed_tasks_are_listed_each_way():
    found = compare(side([1.0, 0.0, 0.0, 1.0, 0.5]), side([0.0, 1.0, 1.0, 1.0, 0.7]), settings=QUICK)
    assert (found.gained, found.lost) == (("t01", "t02"), ("t00",))
    assert (found.success.num_wins, found.success.num_losses, found.success.num_ties) == (2, 1, 2)
    assert (found.reward.num_wins, found.reward.num_losses, found.reward.num_ties) == (3, 1, 1)


def test_rewards_beyond_one_are_within_their_own_range():
    found = compare(side([3.0] * 8), side([3.0] * 8), settings=QUICK).reward
    assert found.before_interval.high == 3.0
    assert 0 < found.before_interval.low < 3.0
    assert (found.interval.low, found.interval.high) == (-found.interval.high, -found.interval.low)
    assert found.interval.high <= 3.0


def test_a_reward_that_is_no_number_is_refused():
    with pytest.raises(DataError, match="finite ones"):
        compare(side([0.5, 0.2]), side([0.5, float("nan")]), settings=QUICK)
