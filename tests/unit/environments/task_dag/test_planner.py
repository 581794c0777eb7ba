import dataclasses
import subprocess
import sys
import threading
import time

import pytest
from task_plans import GOOD, STOP, TASK, node

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.task_dag.baseline import plan_by_rules
from skyrl_nat.environments.task_dag.episodes import reference_answers
from skyrl_nat.environments.task_dag.graph import Node
from skyrl_nat.environments.task_dag.payload import Request, parse_request
from skyrl_nat.environments.task_dag.plan import check_plan
from skyrl_nat.environments.task_dag.planner import FLAG, PolicyPlanner, TaskPlanner
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.feature_flag import FlagOutcome, is_drawn, read_flag
from skyrl_nat.types import Message

REQUEST = parse_request(TASK.payload)


def good(request: Request) -> list[Node]:
    return list(GOOD)


def planner(trained=good, **settings) -> TaskPlanner:
    return TaskPlanner(**{"baseline": plan_by_rules, "trained": trained, "is_enabled": True} | settings)


def outcome(made: TaskPlanner, request_id: str = "r") -> FlagOutcome:
    return made.plan(REQUEST, request_id=request_id).outcome


class ScriptedModel:
    """Says what it was given, turn by turn."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[list[Message]] = []

    def __call__(self, messages: list[Message]) -> str:
        self.asked.append(messages)
        return self.answers.pop(0)


def test_the_trained_policys_plan_is_taken_where_it_is_switched_on() -> None:
    planned = planner().plan(REQUEST, request_id="r")
    assert (planned.nodes, planned.outcome, planned.reason) == (GOOD, FlagOutcome.trained, "")


def test_a_model_plays_the_protocol() -> None:
    model = ScriptedModel(reference_answers(TASK))
    assert planner(PolicyPlanner(model)).plan(REQUEST, request_id="r").nodes == GOOD
    assert [len(messages) for messages in model.asked] == [2, 4]
    assert model.asked[1][2]["role"] == "assistant"


@pytest.mark.parametrize(
    ("answers", "reason"),
    [(["no"], "broken answer"), ([STOP], "a plan must have tasks"), (None, "no stop within 1 turns")],
)
def test_a_model_that_breaks_the_protocol_is_replaced_at_once(answers: list[str] | None, reason: str) -> None:
    model = ScriptedModel(answers or reference_answers(TASK))
    planned = planner(PolicyPlanner(model, max_turns=8 if answers else 1)).plan(REQUEST, request_id="r")
    assert planned.outcome is FlagOutcome.fallback_invalid
    assert reason in planned.reason
    assert planned.nodes == tuple(plan_by_rules(REQUEST))


def fail(request: Request) -> list[Node]:
    raise RuntimeError("no engine")


def leave(request: Request) -> list[Node]:
    raise SystemExit(3)


@pytest.mark.parametrize("trained", [fail, leave])
def test_errors_of_the_model_lead_to_the_baseline(trained) -> None:
    planned = planner(trained).plan(REQUEST, request_id="r")
    assert planned.outcome is FlagOutcome.fallback_error
    assert planned.reason in ("RuntimeError: no engine", "SystemExit: 3")
    assert planned.nodes == tuple(plan_by_rules(REQUEST))


@pytest.mark.parametrize("nodes", [[], [node("a", "a")], ["text"], [node("a", type="sleep")]])
def test_plans_with_faults_lead_to_the_baseline(nodes: list) -> None:
    planned = planner(lambda request: nodes).plan(REQUEST, request_id="r")
    assert planned.outcome is FlagOutcome.fallback_invalid
    assert planned.reason


def test_a_model_that_hangs_costs_its_deadline_and_no_more_threads_than_allowed() -> None:
    release = threading.Event()

    def hang(request: Request) -> list[Node]:
        release.wait(10)
        return list(GOOD)

    made = planner(hang, timeout_s=0.05, max_concurrent=2)
    started = time.monotonic()
    found = [outcome(made) for _ in range(4)]
    assert time.monotonic() - started < 2.0
    assert found == [FlagOutcome.fallback_timeout] * 2 + [FlagOutcome.fallback_busy] * 2
    release.set()
    deadline = time.monotonic() + 5
    while outcome(made) is FlagOutcome.fallback_busy:
        assert time.monotonic() < deadline
    assert outcome(made) is FlagOutcome.trained


def test_every_request_is_counted_once() -> None:
    made = planner(percent=50.0)
    for number in range(400):
        made.plan(REQUEST, request_id=f"r{number}")
    counts = made.counts()
    assert set(counts) == {item.value for item in FlagOutcome}
    assert sum(counts.values()) == counts["trained"] + counts["baseline_not_drawn"] == 400
    assert 150 < counts["trained"] < 250


def test_a_share_is_stable_and_grows_without_changing_sides() -> None:
    names = [f"request-{number}" for number in range(2000)]
    small, large = ({name for name in names if is_drawn(name, percent)} for percent in (10.0, 40.0))
    assert small < large
    assert 150 < len(small) < 250
    assert 720 < len(large) < 880
    assert not any(is_drawn(name, 0.0) for name in names)
    assert all(is_drawn(name, 100.0) for name in names)
    assert [is_drawn("a", percent) for percent in (59.07, 59.08)] == [False, True]  # CRC-32 is 3904355907
    assert not is_drawn("\ud800", 0.0)


def test_the_flag_is_read_anew_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FLAG, raising=False)
    made = planner(is_enabled=None)
    assert outcome(made) is FlagOutcome.baseline_flag_off
    monkeypatch.setenv(FLAG, "1")
    assert outcome(made) is FlagOutcome.trained
    monkeypatch.setenv(FLAG, "perhaps")
    planned = made.plan(REQUEST, request_id="r")
    assert planned.outcome is FlagOutcome.baseline_flag_off
    assert f"{FLAG} must be one of" in planned.reason
    with pytest.raises(ConfigError, match="got 'perhaps'"):
        planner(is_enabled=None)


@pytest.mark.parametrize(("value", "is_on"), [("1", True), (" TRUE ", True), ("on", True), ("0", False), ("", False)])
def test_flag_values(value: str, is_on: bool) -> None:
    assert read_flag({FLAG: value}, FLAG) is is_on
    assert read_flag({}, FLAG) is False


def test_without_a_trained_policy_the_baseline_plans() -> None:
    assert outcome(planner(None)) is FlagOutcome.baseline_flag_off
    assert outcome(planner(is_enabled=False)) is FlagOutcome.baseline_flag_off


def test_a_baseline_that_fails_is_raised_and_counted() -> None:
    made = planner(fail, baseline=fail)
    with pytest.raises(RuntimeError, match="no engine"):
        made.plan(REQUEST, request_id="r")
    made = planner(fail, baseline=lambda request: [])
    with pytest.raises(DataError, match="the baseline must make plans without faults"):
        made.plan(REQUEST, request_id="r")
    assert made.counts()["failed"] == sum(made.counts().values()) == 1


@pytest.mark.parametrize("settings", [{"percent": 101.0}, {"percent": -1.0}, {"timeout_s": 0.0}, {"max_concurrent": 0}])
def test_impossible_settings_are_refused(settings: dict) -> None:
    with pytest.raises(ConfigError, match=r"percent must be in 0\.\.100"):
        planner(**settings)


def test_plans_of_rules_have_no_faults_whatever_the_number_of_needs() -> None:
    for task in load_tasks(["builtin:task_dag/validation"]):
        assert check_plan(plan_by_rules(parse_request(task.payload))) == []
    for size in range(1, 26):
        request = dataclasses.replace(REQUEST, needs=tuple(f"write part {i}" for i in range(size)))
        nodes = plan_by_rules(request)
        assert check_plan(nodes) == []
        parents = [item.parent for item in nodes]
        assert max(parents.count(name) for name in parents) <= 5


def test_the_planner_imports_no_torch() -> None:
    code = "import sys, skyrl_nat.environments.task_dag.planner; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
