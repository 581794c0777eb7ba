import dataclasses

import pytest
from task_plans import GOOD, TASK

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.task_dag.episodes import play_reference, reference_answers, reference_episodes
from skyrl_nat.environments.task_dag.payload import Decomposition
from skyrl_nat.environments.task_dag.protocol import parse_answer
from skyrl_nat.environments.task_dag.validator import TaskDagValidator
from skyrl_nat.errors import DataError


def test_held_out_references_are_full_successes_in_the_environment() -> None:
    tasks = load_tasks(["builtin:task_dag/validation"])
    for task, episode in zip(tasks, reference_episodes(tasks), strict=True):
        assert (episode["task_id"], episode["reward"]) == (task.task_id, 1.0)


def test_a_dialogue_alternates_and_ends_with_the_stop() -> None:
    [episode] = reference_episodes([TASK])
    assert [message["role"] for message in episode["messages"]] == ["system", "user", "assistant", "user", "assistant"]
    assert parse_answer(episode["messages"][2]["content"]) == Decomposition(node="request", subtasks=GOOD)
    assert [episode["messages"][2]["content"], episode["messages"][4]["content"]] == reference_answers(TASK)


def test_a_reference_that_is_no_full_success_is_refused() -> None:
    hidden = TASK.hidden | {"requirements": [*TASK.hidden["requirements"], {"keywords": ["zebra"], "type": "make"}]}
    with pytest.raises(DataError, match="a reference plan must be a full success, it earned"):
        play_reference(dataclasses.replace(TASK, hidden=hidden), TaskDagValidator(EnvironmentConfig()))
