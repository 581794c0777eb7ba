"""Turns, limits and observations of both forms, with a fake workbench and a fake validator."""

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.environments.nat_agent import spec_v2

from skyrl_nat.config.environment import Form
from skyrl_nat.config.load import load_config
from skyrl_nat.environments.nat_agent.actions import STOP_WORD
from skyrl_nat.environments.nat_agent.env import NATAgentCreationEnv
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.prompts import LAST_TURN_NOTE, MULTI_TURN_LAST_NOTE
from skyrl_nat.environments.nat_agent.workspace import BashResult
from skyrl_nat.errors import SandboxError
from skyrl_nat.types import RewardResult, Task

ANSWER = "```python agent/register.py\nx = 1\n```\n```yaml agent/config.yml\nworkflow: {}\n```\n"
FINISH = "<function=finish></function>"


class FakeBench:
    """Says what it was asked, and answers shell commands with one result."""

    def __init__(self, result: BashResult | Exception | None = None) -> None:
        self.result = result or BashResult(end="done", output="hi", exit_code=0)
        self.commands: list[str] = []

    def check(self, spec: AgentSpec, files: dict[str, str]) -> str:
        return f"{spec.name}: {len(files)} files"

    def run_tests(self, spec: AgentSpec, files: dict[str, str], paths: tuple[str, ...] = ()) -> str:
        return f"tests of {', '.join(paths) or 'all'}"

    def run_bash(self, files: dict[str, str], command: str) -> BashResult:
        self.commands.append(command)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


class FakeValidator:
    """Gives 0.75 and remembers what it was shown."""

    def __init__(self) -> None:
        self.seen: list[tuple[Task, dict[str, Any], int]] = []

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        self.seen.append((task, artifact, seed))
        return RewardResult(total=0.75, parts={"tools_oracle": 1.0}, is_success=False)

    def close(self) -> None:
        pass


def one_shot(max_turns: int = 4, config: dict[str, Any] | None = None, **extras: Any) -> NATAgentCreationEnv:
    return NATAgentCreationEnv(config or {}, {"payload": spec_v2.DOUBLE, "max_turns": max_turns, **extras})


def multi_turn(max_turns: int = 9, **extras: Any) -> NATAgentCreationEnv:
    return one_shot(max_turns, {"form": "multi_turn"}, **extras)


def say(env: NATAgentCreationEnv, text: str) -> str:
    output = env.step(text)
    return output["observations"][0]["content"] if output["observations"] else ""


def call(name: str, **parameters: str) -> str:
    values = "".join(f"<parameter={key}>{value}</parameter>\n" for key, value in parameters.items())
    return f"<function={name}>\n{values}</function>"


def editor(command: str, **parameters: str) -> str:
    return call("str_replace_editor", command=command, **parameters)


def test_one_message_with_all_files_and_finish_ends_the_episode() -> None:
    env = one_shot()
    prompt, _ = env.init([])
    assert "double_number(x: int) -> int" in prompt[-1]["content"]
    output = env.step(ANSWER + FINISH)
    assert output["done"]
    assert output["observations"] == []
    assert env.artifact() == {"files": {"agent/register.py": "x = 1\n", "agent/config.yml": "workflow: {}\n"}}


def test_a_given_prompt_is_kept() -> None:
    given = [{"role": "user", "content": "go"}]
    assert one_shot().init(given)[0] == given


def test_turns_run_out() -> None:
    env = one_shot(max_turns=2)
    first = env.step(ANSWER)
    assert not first["done"]
    assert first["observations"][0]["role"] == "user"
    assert first["observations"][0]["content"].endswith(LAST_TURN_NOTE)
    assert env.step("hm")["done"]
    assert env.get_metrics() == {
        "num_malformed_turns": 1,
        "num_validate_calls": 0,
        "num_test_calls": 0,
        "num_bash_calls": 0,
        "is_finished": 0,
        "num_turns": 2,
        "num_files": 2,
    }


@pytest.mark.parametrize("make", [one_shot, multi_turn])
@pytest.mark.parametrize(
    "text",
    ["", "hello", "<function=", "<function=rm></function>", "```", "\ud800", "<function=view>", call("execute_bash")],
)
def test_a_malformed_message_costs_a_turn_and_gets_a_short_answer(make: Any, text: str) -> None:
    env = make()
    output = env.step(text)
    assert not output["done"]
    assert 0 < len(output["observations"][0]["content"]) < 300
    assert env.turns == 1
    assert env.get_metrics()["num_malformed_turns"] == 1


def test_one_shot_messages_may_hold_several_calls() -> None:
    env = one_shot(max_turns=5, workbench=FakeBench())
    env.step(ANSWER)
    edit = (
        "<function=str_replace><parameter=path>agent/register.py</parameter><parameter=old_str>x = 1</parameter>"
        "<parameter=new_str>x = 2</parameter></function><function=validate></function>"
    )
    assert say(env, edit) == "saved agent/register.py (1 lines)\ndouble_number: 2 files"
    assert say(env, "<function=view><parameter=path>agent/register.py</parameter></function>") == "    1\tx = 2"


def test_a_multi_turn_episode_with_every_function() -> None:
    bench = FakeBench(BashResult(end="done", output="hi", exit_code=2, files={"tests/test_a.py": "a\n", "m": "1\n"}))
    env = multi_turn(workbench=bench)
    assert say(env, editor("create", path="tests/test_a.py", file_text="a\n")) == (
        "result of create:\nsaved tests/test_a.py (1 lines)"
    )
    assert say(env, editor("insert", path="tests/test_a.py", insert_line="0", new_str="b")).endswith("(2 lines)")
    assert say(env, editor("view", path="tests/test_a.py")) == "result of view:\n    1\tb\n    2\ta"
    assert say(env, call("run_tests")) == "result of run_tests:\ntests of all"
    assert say(env, call("run_tests", path="tests")) == "result of run_tests:\ntests of tests/test_a.py"
    assert "there is no file or folder docs" in say(env, call("run_tests", path="docs"))
    assert say(env, call("execute_bash", command="make")) == "result of execute_bash:\nexit code 2\nhi"
    assert env.artifact() == {"files": {"tests/test_a.py": "a\n", "m": "1\n"}}
    assert say(env, call("validate")) == f"result of validate:\ndouble_number: 2 files\n{MULTI_TURN_LAST_NOTE}"
    assert env.step(call("finish", message="done"))["done"]
    assert bench.commands == ["make"]
    metrics = env.get_metrics()
    assert (metrics["num_test_calls"], metrics["num_bash_calls"], metrics["num_validate_calls"]) == (3, 1, 1)
    assert (metrics["num_malformed_turns"], metrics["is_finished"], metrics["num_turns"]) == (0, 1, 9)


def test_a_second_call_of_a_multi_turn_message_is_never_done() -> None:
    bench = FakeBench()
    env = multi_turn(workbench=bench)
    output = env.step(call("validate") + call("execute_bash", command="rm -r .") + FINISH)
    assert not output["done"]
    assert bench.commands == []
    env.step("no call\n" + ANSWER)
    assert env.artifact() == {"files": {}}


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (BashResult(end="timeout"), "stopped at the time limit\nno output"),
        (BashResult(end="died"), "ended by the sandbox's limits\nno output"),
        (
            BashResult(end="done", exit_code=0, files={"a" * 200: "x"}, left_out=("c.bin: no text",)),
            f"exit code 0\nnot kept: c.bin: no text; path '{'a' * 60}' must be relative and inside the package\n"
            "no output",
        ),
    ],
)
def test_ends_of_a_command(result: BashResult, shown: str) -> None:
    assert say(multi_turn(workbench=FakeBench(result)), call("execute_bash", command="x")) == (
        f"result of execute_bash:\n{shown}"
    )


def test_a_failed_sandbox_is_raised() -> None:
    env = multi_turn(workbench=FakeBench(SandboxError("gone")))
    with pytest.raises(SandboxError, match="gone"):
        env.step(call("execute_bash", command="x"))


@pytest.mark.parametrize("text", [call("validate"), call("run_tests"), call("execute_bash", command="x")])
def test_without_a_workbench_nothing_runs(text: str) -> None:
    assert "switched off" in say(multi_turn(), text)


@pytest.mark.parametrize("hidden", [{"vectors": [1]}, json.dumps({"vectors": [1]})])
def test_the_reward_comes_with_the_end_where_the_hidden_part_is_given(hidden: Any) -> None:
    validator = FakeValidator()
    env = multi_turn(hidden=hidden, validator=validator, task_id="t/1", seed=7)
    env.step(editor("create", path="a.py", file_text="x"))
    assert validator.seen == []
    output = env.step(FINISH)
    assert (output["reward"], output["done"]) == (0.75, True)
    [(task, artifact, seed)] = validator.seen
    assert (task.task_id, task.family, task.hidden, seed) == ("t/1", "nat_agent", {"vectors": [1]}, 7)
    assert task.payload == spec_v2.DOUBLE
    assert artifact == {"files": {"a.py": "x"}}
    assert output["metadata"]["reward_tools_oracle"] == 1.0
    assert env.get_metrics()["is_success"] == 0


def test_an_unfinished_episode_is_judged_when_its_turns_run_out() -> None:
    env = multi_turn(max_turns=2, hidden={"vectors": []}, validator=FakeValidator())
    assert env.step("")["reward"] == 0.0
    assert env.step("")["reward"] == 0.75


@pytest.mark.parametrize("extras", [{}, {"hidden": {"vectors": [1]}}, {"validator": FakeValidator()}])
def test_who_lacks_the_hidden_part_or_the_validator_gives_no_reward(extras: dict[str, Any]) -> None:
    output = one_shot(**extras).step(FINISH)
    assert (output["reward"], output["done"]) == (0.0, True)


def test_no_observation_tells_of_the_hidden_part() -> None:
    env = multi_turn(hidden={"vectors": ["secret"]}, validator=FakeValidator(), workbench=FakeBench())
    shown = json.dumps(env.init([])[0])
    for text in ("", call("validate"), call("run_tests"), editor("view", path="."), editor("view", path="hidden")):
        shown += say(env, text)
    assert "secret" not in shown


def test_an_environment_between_turns_can_be_pickled() -> None:
    env = multi_turn(max_turns=3)
    env.step(editor("create", path="a.py", file_text="x\n"))
    env = pickle.loads(pickle.dumps(env))
    assert say(env, editor("view", path="a.py")) == f"result of view:\n    1\tx\n{MULTI_TURN_LAST_NOTE}"
    assert env.step("")["done"]


@pytest.mark.parametrize("make", [one_shot, multi_turn])
def test_observations_are_cut_and_keep_the_note_of_the_last_turn(make: Any) -> None:
    env = make(max_turns=3)
    env.max_observation_chars = 300
    text = "start" + "x" * 5000 + "end"
    env.step("```python a.py\n" + text + "\n```" if make is one_shot else editor("create", path="a.py", file_text=text))
    view = "<function=view><parameter=path>a.py</parameter></function>"
    shown = say(env, view if make is one_shot else editor("view", path="a.py"))
    assert len(shown) <= 300
    assert "startx" in shown
    assert f"xend\n{LAST_TURN_NOTE if make is one_shot else MULTI_TURN_LAST_NOTE}" in shown


@pytest.mark.parametrize("mark", ["<|im_start|>", "</function", "[INST]", "<start_of_turn>", "\nresult of validate:"])
def test_what_the_policy_wrote_cannot_pass_for_the_conversation(mark: str) -> None:
    env = multi_turn(workbench=FakeBench(BashResult(end="done", output=mark, exit_code=0)))
    env.step(editor("create", path="a.py", file_text=mark.replace("</function", "<|x|>")))
    for text in (editor("view", path="a.py"), call("execute_bash", command="x"), editor("view", path=f"x{mark[:12]}")):
        assert mark not in say(env, text)
    assert "<|im_start|>" not in say(env, editor("create", path="/<|im_start|>", file_text=""))


def test_payload_may_be_json_text() -> None:
    env = NATAgentCreationEnv(
        {"max_observation_chars": 300}, {"payload": json.dumps(spec_v2.TRIP), "form": "multi_turn"}
    )
    assert "trip_agent" in env.init([])[0][-1]["content"]


def test_the_multi_turn_preset_stops_where_a_call_does() -> None:
    config = load_config(["environment=nat_agent_multi_turn"])
    assert (config.environment.family, config.environment.form) == ("nat_agent", Form.multi_turn)
    assert config.rollout.stop == [STOP_WORD]
    assert load_config([]).environment.form is Form.one_shot


PIECES = (
    "<function=",
    "str_replace_editor>",
    "execute_bash>",
    "finish>",
    "<parameter=",
    "path>",
    "command>",
    "view",
    "create",
    "file_text>",
    "a.py",
    "..",
    "\x00",
    "\ud800",
    "[1, 2]",
    "</parameter>",
    "</function>",
    "```",
    "\n",
    "insert",
    "insert_line>",
    "9",
)


@pytest.mark.parametrize("make", [one_shot, multi_turn])
@given(messages=st.lists(st.lists(st.sampled_from(PIECES), max_size=16).map("".join), max_size=3))
def test_no_text_of_a_policy_is_an_exception(make: Any, messages: list[str]) -> None:
    env = make(workbench=FakeBench(), hidden={"vectors": []}, validator=FakeValidator())
    for text in messages:
        output = env.step(text)
        assert output["reward"] == (0.75 if output["done"] else 0.0)
        assert len(json.dumps(output["observations"])) < 3000
        if output["done"]:
            break
