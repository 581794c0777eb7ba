"""A reference plan played in the environment itself, turn by turn: what imitation learns from."""

from collections.abc import Iterable, Iterator
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.task_dag.env import TaskDagEnv
from skyrl_nat.environments.task_dag.payload import parse_hidden
from skyrl_nat.environments.task_dag.protocol import answer_text
from skyrl_nat.environments.task_dag.validator import TaskDagValidator
from skyrl_nat.errors import DataError
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Message, Task

MAX_TURNS = 8
"""What the prompt says; that of `rollout.max_turns`, unless it was changed."""


def reference_answers(task: Task) -> list[str]:
    """Return what a policy says turn by turn that makes the reference plan.

    Raises:
        DataError: The hidden part is not whole.
    """
    return [*map(answer_text, parse_hidden(task.hidden).reference), answer_text(None)]


def play_answers(
    task: Task, validator: Validator, answers: Iterable[str], *, max_turns: int = MAX_TURNS
) -> dict[str, Any]:
    """Return the episode in which these answers are given, with its `reward` and `is_success`.

    Args:
        task: With its hidden part.
        validator: Judges the end.
        answers: One a turn; the last one must end the episode.
        max_turns: Turns that the prompt grants.

    Raises:
        DataError: An answer breaks the protocol, or the plan has a fault.
    """
    environment = TaskDagEnv(
        {},
        {
            "payload": task.payload,
            "hidden": task.hidden,
            "task_id": task.task_id,
            "validator": validator,
            "max_turns": max_turns,
        },
    )
    prompt, _ = environment.init([])
    messages = list(prompt)
    reward = 0.0
    for answer in answers:
        output = environment.step(answer)
        messages += [Message(role="assistant", content=answer), *map(_message, output["observations"])]
        reward = output["reward"]
    if failure := environment.artifact()["failure"]:
        raise DataError(f"{task.task_id}: answers must keep to the protocol, found: {failure}. Correct them")
    return {
        "task_id": task.task_id,
        "difficulty": task.difficulty,
        "messages": messages,
        "reward": reward,
        "is_success": bool(environment.get_metrics().get("is_success")),
    }


def play_reference(task: Task, validator: Validator, *, max_turns: int = MAX_TURNS) -> dict[str, Any]:
    """Return one episode that makes the reference plan; see `play_answers`.

    Raises:
        DataError: The plan was not a full success.
    """
    episode = play_answers(task, validator, reference_answers(task), max_turns=max_turns)
    if not episode["is_success"]:
        raise DataError(
            f"{task.task_id}: a reference plan must be a full success, it earned {episode['reward']:.3f}. Build the "
            "file again"
        )
    return episode


def reference_episodes(tasks: Iterable[Task], *, max_turns: int = MAX_TURNS) -> Iterator[dict[str, Any]]:
    """Yield the reference episode of every task, for `algorithm=sft`.

    Raises:
        DataError: A reference plan was not a full success.
    """
    validator = TaskDagValidator(EnvironmentConfig())
    for task in tasks:
        yield play_reference(task, validator, max_turns=max_turns)


def _message(item: dict[str, str]) -> Message:
    return Message(role=item["role"], content=item["content"])
