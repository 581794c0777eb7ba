"""The solution of every shipped task as an episode of the environment."""

import copy
import dataclasses

import pytest
from mini_nat import MiniNat, open_oracle
from nat_tasks import answer, make_task

from skyrl_nat.config.environment import EnvironmentConfig, Form
from skyrl_nat.data.making.episodes import play_solution
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.errors import DataError


@pytest.mark.parametrize("form", list(Form))
def test_every_shipped_solution_can_be_written_in_the_environment(form: Form) -> None:
    for task in load_tasks(["builtin:nat_agent/train", "builtin:nat_agent/validation"]):
        row = play_solution(task, form)
        roles = [message["role"] for message in row["messages"]]
        assert (row["task_id"], row["reward"]) == (task.task_id, 1.0)
        assert roles[-1] == "assistant"
        assert roles.count("assistant") == (2 if form is Form.one_shot else len(task.hidden["solution"]) + 1)


def test_validator_confirms_the_end() -> None:
    task = make_task(num_tests=2)
    task = dataclasses.replace(task, hidden=task.hidden | {"solution": answer(task)})
    validator = NatAgentValidator(EnvironmentConfig(), MiniNat(), open_oracle())
    assert play_solution(task, Form.one_shot, validator=validator)["reward"] == 1.0
    wrong = copy.deepcopy(task.hidden)
    wrong["solution"]["agent/register.py"] = wrong["solution"]["agent/register.py"].replace("x * ", "x + ")
    with pytest.raises(DataError, match=r"must take the solution as it is and pay 1, got 0\.\d+ and other files \[\]"):
        play_solution(dataclasses.replace(task, hidden=wrong), Form.one_shot, validator=validator)


def test_solution_that_the_environment_does_not_take_is_refused() -> None:
    task = make_task(num_tests=2)
    files = answer(task) | {"agent/picture.png": "x"}
    with pytest.raises(DataError, match=r"other files \['agent/picture\.png'\]"):
        play_solution(dataclasses.replace(task, hidden=task.hidden | {"solution": files}), Form.multi_turn)


class Bench:
    """Says yes."""

    def check(self, spec: object, files: dict[str, str]) -> str:
        return f"{len(files)} files are fine"

    def run_tests(self, spec: object, files: dict[str, str], paths: tuple[str, ...] = ()) -> str:
        return "2 of 2 tests pass"


def test_turns_hold_one_call_each_and_show_what_the_checks_say() -> None:
    task = make_task(num_tests=2)
    task = dataclasses.replace(task, hidden=task.hidden | {"solution": answer(task)})
    messages = play_solution(task, Form.multi_turn, bench=Bench())["messages"]  # type: ignore[arg-type]
    said = [message["content"] for message in messages if message["role"] == "assistant"]
    assert all(text.count("<function=") == 1 and text.endswith("</function>") for text in said)
    assert [text.partition("<function=")[2].partition(">")[0] for text in said] == [
        *["str_replace_editor"] * len(answer(task)), "validate", "run_tests", "finish",
    ]  # fmt: skip
    heard = [message["content"] for message in messages[2:] if message["role"] == "user"]
    assert heard[-2:] == [
        f"result of validate:\n{len(answer(task))} files are fine",
        "result of run_tests:\n2 of 2 tests pass",
    ]
