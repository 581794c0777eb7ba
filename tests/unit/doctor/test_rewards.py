"""Judges that pay what is right, and judges that pay what is broken."""

from collections.abc import Callable
from typing import Any

import pytest
from doctor_parts import verdicts

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.doctor.rewards import RIGHT, SAME, WRONG, check_rewards, judge_known
from skyrl_nat.environments.family import Family, KnownAnswers
from skyrl_nat.environments.registry import open_family
from skyrl_nat.types import RewardResult, Task

TASK = Task(task_id="t", family="f", payload={})
KNOWN = KnownAnswers(right={"good": {"value": 1.0}}, wrong={"bad": {"value": 0.5}})


class Judge:
    """Pays what a function of the artifact says."""

    def __init__(self, pay: Callable[[float], float]) -> None:
        self.pay = pay
        self.is_closed = False

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        total = self.pay(artifact["value"])
        return RewardResult(total=total, parts={"all": total}, is_success=total == 1.0)

    def close(self) -> None:
        self.is_closed = True


def judged(pay: Callable[[float], float]) -> dict[str, str]:
    return verdicts(judge_known(Judge(pay), lambda _: KNOWN, [TASK]))


def test_a_judge_that_knows_right_from_wrong_passes() -> None:
    assert judged(lambda value: value) == {RIGHT: "ok", WRONG: "ok", SAME: "ok"}


def test_a_judge_that_gives_broken_answers_1_is_found() -> None:
    [_, check, _] = judge_known(Judge(lambda _: 1.0), lambda _: KNOWN, [TASK])
    assert (check.verdict, check.found) == ("WRONG", "t, bad: 1.000 and a success")


def test_a_judge_that_pays_right_answers_less_is_found() -> None:
    assert judged(lambda value: 0.9 * value)[RIGHT] == "WRONG"


def test_a_judge_that_says_something_else_the_second_time_is_found() -> None:
    said = iter([1.0, 0.99, 0.0])
    assert judged(lambda _: next(said))[SAME] == "WRONG"


def test_a_family_that_knows_no_answers_or_has_no_judge_is_skipped() -> None:
    def family(known: Any) -> Family:
        return Family(
            make_environment=lambda task, turns: None,  # type: ignore[arg-type,return-value]
            make_validator=lambda: None,
            close=lambda: None,
            known_answers=known,
        )

    for known in (None, lambda _: KNOWN):
        assert set(verdicts(check_rewards(family(known), [TASK])).values()) == {"skipped"}


@pytest.mark.parametrize("name", ["jira", "task_dag"])
def test_shipped_families_know_right_from_wrong(name: str) -> None:
    tasks = load_tasks([f"builtin:{name}/validation"])[::40]
    family = open_family(name, EnvironmentConfig(family=name))
    assert set(verdicts(check_rewards(family, tasks)).values()) == {"ok"}


def test_weights_that_pay_a_broken_answer_are_found() -> None:
    """Where economy alone is paid, an issue that is left open earns all."""
    weights = EnvironmentConfig(family="jira", reward_weights={"progress": 0.0, "workflow": 0.0, "economy": 1.0})
    tasks = load_tasks(["builtin:jira/validation"])[:1]
    assert verdicts(check_rewards(open_family("jira", weights), tasks))[WRONG] == "WRONG"
