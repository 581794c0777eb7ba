import json
from typing import Any

import pytest

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.env import NatAgentEnv, cut_middle
from skyrl_nat.environments.nat_agent.payload import AgentSpec, parse_spec
from skyrl_nat.environments.nat_agent.prompts import LAST_TURN_NOTE, build_prompt
from skyrl_nat.types import Task

ANSWER = "```python agent/register.py\nx = 1\n```\n```yaml agent/config.yml\nworkflow: {}\n```\n"
FINISH = "<function=finish></function>"


class FakeChecker:
    """Says how many files it saw."""

    def check(self, spec: AgentSpec, files: dict[str, str]) -> str:
        return f"{spec.name}: {len(files)} files"


@pytest.fixture(scope="module")
def tasks() -> dict[str, Task]:
    return {task.payload["name"]: task for task in load_tasks(["builtin:nat_agent/train"])}


def make(tasks: dict[str, Task], max_turns: int = 4, **extras: Any) -> NatAgentEnv:
    return NatAgentEnv({}, {"payload": tasks["double_number"].payload, "max_turns": max_turns, **extras})


def test_one_message_with_all_files_and_finish_ends_the_episode(tasks: dict[str, Task]) -> None:
    env = make(tasks)
    prompt, _ = env.init([])
    assert [message["role"] for message in prompt] == ["system", "user", "assistant", "user"]
    assert "double_number(x: int) -> int" in prompt[-1]["content"]
    assert "Example: 4 -> 8" in prompt[-1]["content"]
    output = env.step(ANSWER + FINISH)
    assert output["done"]
    assert output["observations"] == []
    assert env.artifact() == {"files": {"agent/register.py": "x = 1\n", "agent/config.yml": "workflow: {}\n"}}


def test_turns_run_out(tasks: dict[str, Task]) -> None:
    env = make(tasks, max_turns=2)
    first = env.step(ANSWER)
    assert not first["done"]
    assert first["observations"][0]["role"] == "user"
    assert first["observations"][0]["content"].endswith(LAST_TURN_NOTE)
    assert env.step("hm")["done"]
    assert env.get_metrics() == {
        "num_malformed_turns": 1,
        "num_validate_calls": 0,
        "is_finished": 0,
        "num_turns": 2,
        "num_files": 2,
    }


@pytest.mark.parametrize(
    "text",
    ["", "hello", "<function=", "<function=rm></function>", "```", "\ud800", "<function=view>"],
)
def test_malformed_action_costs_a_turn_and_gets_a_short_answer(tasks: dict[str, Task], text: str) -> None:
    env = make(tasks)
    output = env.step(text)
    assert not output["done"]
    assert 0 < len(output["observations"][0]["content"]) < 300
    assert env.turns == 1
    assert env.get_metrics()["num_malformed_turns"] == 1


def test_edit_view_and_validate(tasks: dict[str, Task]) -> None:
    env = make(tasks, checker=FakeChecker())
    env.step(ANSWER)
    edit = (
        "<function=str_replace><parameter=path>agent/register.py</parameter><parameter=old_str>x = 1</parameter>"
        "<parameter=new_str>x = 2</parameter></function><function=validate></function>"
    )
    assert env.step(edit)["observations"][0]["content"] == "saved agent/register.py (1 lines)\ndouble_number: 2 files"
    view = env.step("<function=view><parameter=path>agent/register.py</parameter></function>")
    assert view["observations"][0]["content"].startswith("x = 2\n")


def test_edit_must_match_exactly_once(tasks: dict[str, Task]) -> None:
    env = make(tasks)
    env.step("```python agent/register.py\nx = 1\nx = 1\n```")
    call = (
        "<function=str_replace><parameter=path>{}</parameter><parameter=old_str>{}</parameter>"
        "<parameter=new_str>y</parameter></function>"
    )
    assert "occurs 2 times" in env.step(call.format("agent/register.py", "x = 1"))["observations"][0]["content"]
    assert "no file" in env.step(call.format("other.py", "x"))["observations"][0]["content"]


def test_observation_is_cut_in_the_middle(tasks: dict[str, Task]) -> None:
    env = NatAgentEnv({"max_observation_chars": 300}, {"payload": json.dumps(tasks["double_number"].payload)})
    env.step("```python a.py\n" + "start" + "x" * 5000 + "end\n```")
    text = env.step("<function=view><parameter=path>a.py</parameter></function>")["observations"][0]["content"]
    assert len(text) <= 300
    assert text.startswith("startx")
    assert text.endswith("xend\n")
    assert cut_middle("short", 10) == "short"


def test_number_and_size_of_files_are_bounded(tasks: dict[str, Task]) -> None:
    env = make(tasks, max_turns=50)
    for index in range(20):
        env.step(f"```python f{index}.py\nx\n```")
    assert len(env.artifact()["files"]) == 16
    assert "at most" in env.step("```python f0.py\n" + "x" * 20_001 + "\n```")["observations"][0]["content"]


def test_prompt_shows_no_hidden_input(tasks: dict[str, Task]) -> None:
    for task in tasks.values():
        if len(task.payload["tools"]) > 1:
            continue  # a visible input of one tool may be a hidden one of another
        text = build_prompt(parse_spec(task.payload), 4)[-1]["content"]
        assert all(f"Example: {json.dumps(vector['input'])} -> " not in text for vector in task.hidden["vectors"])
