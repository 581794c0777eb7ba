"""The plan of an issue played in the environment itself, one tool a turn: what imitation learns from."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.text import JiraTextEnv
from skyrl_nat.environments.jira.validator import JiraValidator
from skyrl_nat.errors import DataError
from skyrl_nat.types import Message, RewardResult, Task


def play_tools(
    task: Task, validator: JiraValidator, choose: Callable[[Machine, str], str]
) -> tuple[dict[str, Any], RewardResult]:
    """Return one episode (`task_id`, `difficulty`, `prompt`, `messages`, `reward`) and its verdict.

    The prompt shows the form of an answer by a turn of its own, which is not to be learned: `messages` is what follows.

    Args:
        task: The issue.
        validator: Judges the end.
        choose: Returns a turn's tool, given the machine and the tool that its plan wants next; once all of the plan is
            done, that is its last one.
    """
    machine = Machine(read_issue(task.payload["issue"]))
    state, is_done = machine.start(), False
    environment = JiraTextEnv({}, {"payload": task.payload})
    prompt, _ = environment.init([])
    messages: list[Message] = []
    while not is_done:
        tool = choose(machine, machine.plan[min(state.num_progress, len(machine.plan) - 1)])
        state = machine.apply(state, tool).state
        output = environment.step(tool)
        is_done = output["done"]
        observations = [Message(role=item["role"], content=item["content"]) for item in output["observations"]]
        messages += [Message(role="assistant", content=tool), *observations]
    result = validator.validate(task, environment.artifact())
    episode = {
        "task_id": task.task_id,
        "difficulty": task.difficulty,
        "prompt": prompt,
        "messages": messages,
        "reward": result.total,
    }
    return episode, result


def play_plan(task: Task, validator: JiraValidator) -> dict[str, Any]:
    """Return the episode that does exactly the plan; see `play_tools`.

    Raises:
        DataError: The plan did not earn all that there is.
    """
    episode, result = play_tools(task, validator, lambda _, wanted: wanted)
    if not result.is_success or result.total < 1.0:
        raise DataError(
            f"{task.task_id}: a plan must earn 1, it earned {result.total:.3f} ({'; '.join(result.findings)}). "
            "Correct the workflow"
        )
    return episode


def reference_episodes(tasks: Iterable[Task]) -> Iterator[dict[str, Any]]:
    """Yield the episode of every task's plan, for `algorithm=sft`.

    Raises:
        DataError: A plan did not earn all that there is.
    """
    validator = JiraValidator()
    for task in tasks:
        yield play_plan(task, validator)
