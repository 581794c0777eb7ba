import pytest

from skyrl_nat.environments.jira.catalogue import load_issues
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.validator import JiraValidator
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import RewardResult, Task

ISSUE = load_issues("issue_resolution")[0]
PLAN = Machine(ISSUE).plan
TASK = Task(task_id="t", family="jira", payload={"issue": ISSUE.to_json()})


def judge(*calls: object, weights: dict[str, float] | None = None) -> RewardResult:
    return JiraValidator(weights).validate(TASK, {"calls": list(calls)})


def test_plan_gets_everything() -> None:
    result = judge(*PLAN)
    assert result.total == pytest.approx(1.0)
    assert result.is_success
    assert result.parts == {"progress": 1.0, "workflow": 1.0, "economy": 1.0}
    assert result.findings == []
    assert [(stage.name, stage.is_ok) for stage in result.stages] == [("workflow", True)]


def test_half_a_plan_gets_its_share() -> None:
    result = judge(*PLAN[:3])
    assert result.total == pytest.approx(0.4 * 3 / 6 + 0.1)
    assert not result.is_success
    assert result.findings[0].startswith("not used: add_comment, resolve_issue, close_issue")


def test_detours_cost_the_verdict_or_the_economy() -> None:
    repeated = judge("get_issue", *PLAN)
    assert repeated.total == pytest.approx(0.4 + 0.1 * 6 / 7)
    broken = judge(None, *PLAN)
    assert broken.total == pytest.approx(0.9 + 0.1 * 6 / 7)
    assert not broken.is_success
    assert broken.findings == ["turn 1: no tool was named"]
    refused = judge("resolve_issue", *PLAN)
    assert refused.total == pytest.approx(0.9 + 0.1 * 6 / 7)
    assert refused.findings == ["turn 1: resolve_issue was not possible: not from status Open"]


@pytest.mark.parametrize("calls", [(), (None,) * 12, ("close_issue",), ("add_comment",) * 12, ("sing", 3, {})])
def test_nothing_useful_gets_nothing(calls: tuple[object, ...]) -> None:
    assert judge(*calls).total == 0.0


def test_empty_artifact_is_judged_as_nothing() -> None:
    assert JiraValidator().validate(TASK, {}).total == 0.0


def test_calls_after_the_end_count_as_turns_only() -> None:
    assert judge(*PLAN, "get_issue").total == pytest.approx(0.9 + 0.1 * 6 / 7)


def test_every_right_step_raises_the_total_after_any_mistakes() -> None:
    for mistakes in ((), (None,), ("resolve_issue", None)):
        totals = [judge(*mistakes, *PLAN[:size]).total for size in range(len(PLAN) + 1)]
        assert totals == sorted(totals)
        assert len(set(totals)) == len(totals)


def test_weights_come_from_the_config_and_are_checked() -> None:
    assert judge(*PLAN[:3], weights={"workflow": 0.0, "economy": 0.0}).total == pytest.approx(0.5)
    with pytest.raises(ConfigError, match="must name parts of the family"):
        JiraValidator({"beauty": 1.0})
