"""The plan of an issue played in the environment itself, one tool a turn: what imitation learns from."""

from collections.abc import Iterable, Iterator
from typing import Any

from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.text import JiraTextEnv
from skyrl_nat.environments.jira.validator import JiraValidator
from skyrl_nat.errors import DataError
from skyrl_nat.types import Message, Task


def play_plan(task: Task, validator: JiraValidator) -> dict[str, Any]:
    """Return one episode that does exactly the plan: `task_id`, `difficulty`, `prompt`, `messages`, `reward`.

    The prompt shows the form of an answer by a turn of its own, which is not to be learned: `messages` is what follows.

    Raises:
        DataError: The plan did not earn all that there is.
    """
    environment = JiraTextEnv({}, {"payload": task.payload})
    prompt, _ = environment.init([])
    messages: list[Message] = []
    for tool in Machine(read_issue(task.payload["issue"])).plan:
        output = environment.step(tool)
        observations = [Message(role=item["role"], content=item["content"]) for item in output["observations"]]
        messages += [Message(role="assistant", content=tool), *observations]
    result = validator.validate(task, environment.artifact())
    if not result.is_success or result.total < 1.0:
        raise DataError(
            f"{task.task_id}: a plan must earn 1, it earned {result.total:.3f} ({'; '.join(result.findings)}). "
            "Correct the workflow"
        )
    return {
        "task_id": task.task_id,
        "difficulty": task.difficulty,
        "prompt": prompt,
        "messages": messages,
        "reward": result.total,
    }


def reference_episodes(tasks: Iterable[Task]) -> Iterator[dict[str, Any]]:
    """Yield the episode of every task's plan, for `algorithm=sft`.

    Raises:
        DataError: A plan did not earn all that there is.
    """
    validator = JiraValidator()
    for task in tasks:
        yield play_plan(task, validator)
