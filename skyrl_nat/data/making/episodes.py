"""A full correct episode for a task, played in the environment itself: what imitation learns from."""

from collections.abc import Iterator, Mapping
from typing import Any

from skyrl_nat.config.environment import Form
from skyrl_nat.environments.nat_agent.actions import EDITOR
from skyrl_nat.environments.nat_agent.env import Bench, NATAgentCreationEnv
from skyrl_nat.environments.nat_agent.payload import AgentSpec, parse_spec
from skyrl_nat.errors import DataError
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Message, Task

LANGUAGES = {"py": "python", "yml": "yaml", "toml": "toml", "sh": "bash"}
MAX_TURNS = 24


def play_solution(
    task: Task, form: Form, *, bench: Bench | None = None, validator: Validator | None = None
) -> dict[str, Any]:
    """Return one episode that writes the task's solution: `task_id`, `difficulty`, `messages`, `reward`.

    Args:
        task: With a solution in its hidden part.
        form: How the environment talks.
        bench: Answers the calls that check and test; the multi-turn form makes them.
        validator: Judges the end; without it the solution must have been judged before, and the reward is 1.

    Raises:
        DataError: The environment did not take the solution as it is, or it earned less than 1.
    """
    spec, solution = parse_spec(task.payload), dict(task.hidden["solution"])
    extras = {"payload": task.payload, "max_turns": MAX_TURNS, "workbench": bench, "form": form}
    if validator is not None:
        extras |= {"hidden": task.hidden, "validator": validator, "task_id": task.task_id}
    environment = NATAgentCreationEnv({}, extras)
    messages, _ = environment.init([])
    messages = list(messages)
    reward = 1.0
    for action in solution_actions(spec, solution, form, has_bench=bench is not None):
        answer = environment.step(action)
        messages += [Message(role="assistant", content=action), *answer["observations"]]
        if answer["done"] and validator is not None:
            reward = answer["reward"]
    files = environment.artifact()["files"]
    wrong = sorted(path for path in {*files, *solution} if _body(files, path) != _body(solution, path))
    if wrong or reward != 1.0:
        raise DataError(
            f"{task.task_id}: the environment must take the solution as it is and pay 1, got {reward} and other files "
            f"{wrong}. Report it"
        )
    return {"task_id": task.task_id, "difficulty": task.difficulty, "messages": messages, "reward": reward}


def _body(files: Mapping[str, str], path: str) -> str | None:
    """Return a file's text without blank lines at its end, which a fenced block cannot show."""
    return files[path].rstrip() if path in files else None


def solution_actions(spec: AgentSpec, files: Mapping[str, str], form: Form, *, has_bench: bool) -> Iterator[str]:
    """Yield what an agent says turn by turn that writes the files, checks them where there is a bench, and ends."""
    if form is Form.one_shot:
        yield "\n".join([*(_fenced(path, text) for path, text in files.items()), "<function=finish></function>"])
        return
    for path, text in files.items():
        yield f"I write {path}.\n\n" + _call(EDITOR, command="create", path=path, file_text=text)
    if has_bench:
        yield "All files are there; I check them.\n\n" + _call("validate")
        if spec.integration.num_tests:
            yield "The checks are fine. Now the tests.\n\n" + _call("run_tests")
    yield "Everything asked for is done.\n\n" + _call("finish")


def _fenced(path: str, text: str) -> str:
    language = LANGUAGES.get(path.rpartition(".")[2], "text")
    return f"```{language} {path}\n{text.rstrip()}\n```"


def _call(name: str, **parameters: str) -> str:
    """Return one call as the policy writes it; long values stand on lines of their own."""
    body = "".join(
        f"<parameter={key}>\n{value}</parameter>\n" if "\n" in value else f"<parameter={key}>{value}</parameter>\n"
        for key, value in parameters.items()
    )
    return f"<function={name}>\n{body}</function>"
