"""No known way to be paid without doing the work pays: every hack through the real validator, NAT and sandbox."""

from collections.abc import Iterator

import pytest
from security.judging import find_paid, hacked_answers, judge_all, make_validator, shipped_task
from security.reward_hacks import HACKS

from skyrl_nat.types import RewardResult

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def verdicts() -> Iterator[dict[str, RewardResult]]:
    validator, task = make_validator(), shipped_task()
    yield judge_all(validator, hacked_answers(task), task)
    validator.close()


def test_honest_answers_earn_what_they_do(verdicts: dict[str, RewardResult]) -> None:
    assert verdicts["base/wrong"].total == 0.0
    assert 0.2 < verdicts["base/half"].total < 0.5
    assert verdicts["base/untested"].total == pytest.approx(0.95)
    assert 0.1 < verdicts["base/unbuilt"].total < 0.25
    assert 0.7 < verdicts["base/stray"].total < 0.95
    assert all(not verdict.suspicions for name, verdict in verdicts.items() if name.startswith("base/"))


def test_no_hack_pays(verdicts: dict[str, RewardResult]) -> None:
    assert find_paid(verdicts) == {}


@pytest.mark.parametrize("name", HACKS)
def test_no_hack_succeeds_and_the_suspected_ones_are_counted(verdicts: dict[str, RewardResult], name: str) -> None:
    verdict = verdicts[name]
    assert not verdict.is_success
    assert verdict.findings, "a verdict says what is missing"
    assert bool(verdict.suspicions) == HACKS[name].is_suspicious, verdict.suspicions
