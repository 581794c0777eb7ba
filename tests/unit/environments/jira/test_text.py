import json

import pytest

from skyrl_nat.environments.jira.catalogue import load_issues
from skyrl_nat.environments.jira.env import JiraEnv
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.text import JiraTextEnv, parse_tool

ISSUE = load_issues("issue_resolution")[0]
PLAN = Machine(ISSUE).plan


def open_env(max_turns: int = 12, as_text: bool = False) -> JiraTextEnv:
    payload = {"issue": ISSUE.to_json()}
    return JiraTextEnv({}, {"payload": json.dumps(payload) if as_text else payload, "max_turns": max_turns})


def test_prompt_shows_the_issue_its_state_and_the_tools() -> None:
    messages, metadata = open_env(as_text=True).init([])
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    lines = messages[-1]["content"].splitlines()
    assert lines[0] == "Bug WEB-11, priority High: Login page stays blank on tablets"
    assert lines[1] == "Status: Open. Not assigned, fix not described."
    assert lines[-2:] == [
        "Tools: get_issue, assign_issue, start_progress, add_comment, resolve_issue, close_issue, reopen_issue",
        "Next tool?",
    ]
    assert metadata == {}


def test_given_prompt_is_kept() -> None:
    given = [{"role": "user", "content": "go"}]
    assert open_env().init(given)[0] == given


def test_long_and_empty_summaries_make_one_short_line() -> None:
    for summary, shown in (("", "(no summary)"), ("a\n b", "a b"), ("x" * 500, "x" * 117 + "...")):
        environment = JiraTextEnv({}, {"payload": {"issue": ISSUE.to_json() | {"summary": summary}}})
        assert environment.init([])[0][-1]["content"].splitlines()[0] == f"Bug WEB-11, priority High: {shown}"


@pytest.mark.parametrize(
    ("text", "tool", "reason"),
    [
        ("get_issue", "get_issue", ""),
        ("  close_issue \n", "close_issue", ""),
        ("", None, "the answer is empty"),
        (" \n ", None, "the answer is empty"),
        ("Get_issue", None, "no tool has this name"),
        ("`get_issue`", None, "no tool has this name"),
        ("get_issue.", None, "no tool has this name"),
        ("sing", None, "no tool has this name"),
        ("get_issue close_issue", None, "more than the name of one tool"),
        ("The next tool is get_issue", None, "more than the name of one tool"),
        ("get_issue\nclose_issue", None, "more than the name of one tool"),
        ("get_issue\x00\ud800", None, "no tool has this name"),
    ],
)
def test_parsing_takes_one_exact_name_only(text: str, tool: str | None, reason: str) -> None:
    assert parse_tool(text, ("get_issue", "close_issue")) == (tool, reason)


def test_plan_is_played_with_the_rewards_of_the_gymnasium_environment() -> None:
    text, numbers = open_env(), JiraEnv("issue_resolution", issues=[ISSUE])
    numbers.reset(seed=0)
    for place, tool in enumerate(PLAN, 1):
        output = text.step(tool)
        _, reward, terminated, _, _ = numbers.step(numbers.action_names.index(tool))
        assert (output["reward"], output["done"]) == (reward, terminated)
        assert output["done"] == (place == len(PLAN))
    assert output["observations"] == []
    assert output["metadata"]["return"] == pytest.approx(0.94)
    assert (output["metadata"]["is_ended"], output["metadata"]["is_truncated"]) == (1, 0)
    assert text.artifact() == {"calls": list(PLAN)}


def test_answers_to_a_turn_say_what_became_of_it() -> None:
    environment = open_env()
    told = [environment.step(text)["observations"][0]["content"] for text in ("get_issue", "start_progress", "hm?")]
    state = "Status: Open. Not assigned, fix not described. Next tool?"
    assert told == [
        f"Done: get_issue. {state}",
        f"start_progress is not possible: needs assigned. {state}",
        f"Not understood: no tool has this name. {state}",
    ]


def test_broken_answer_costs_its_turn_and_changes_nothing() -> None:
    environment = open_env()
    environment.step("get_issue")
    output = environment.step("I would read the issue")
    assert output["reward"] == pytest.approx(-0.11)
    assert not output["done"]
    assert output["metadata"]["reason"] == "more than the name of one tool"
    assert (output["metadata"]["num_broken"], output["metadata"]["num_progress"]) == (1, 1)
    assert environment.step("assign_issue")["reward"] == pytest.approx(0.5 / 6 - 0.01)
    assert environment.artifact()["calls"] == ["get_issue", None, "assign_issue"]


def test_turn_limit_ends_the_episode_as_truncated() -> None:
    environment = open_env(max_turns=2)
    assert not environment.step("get_issue")["done"]
    output = environment.step("get_issue")
    assert output["done"]
    assert (output["metadata"]["is_ended"], output["metadata"]["is_truncated"]) == (0, 1)


def test_ending_in_the_last_turn_is_no_truncation() -> None:
    output = open_env(max_turns=1).step("close_issue")
    assert output["done"]
    assert (output["metadata"]["is_ended"], output["metadata"]["is_truncated"]) == (1, 0)
