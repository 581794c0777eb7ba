"""What shows that a task is sound, judged by the real validator."""

import random

from skyrl_nat.environments.nat_agent.known_answers import wrong_answers
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.properties import broken_laws
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.types import Task

MAX_WRONG_REWARD = 0.3
"""A wrong answer whose form is perfect must stay under it."""


def prove(task: Task, validator: NatAgentValidator, oracle: ReferenceOracle) -> list[str]:
    """Return what is wrong with a task, judged by the real validator."""
    spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
    faults = [f"{task.task_id}: {text}" for text in broken_laws(oracle, spec, hidden, random.Random(0))]
    result = validator.validate(task, {"files": task.hidden["solution"]})
    if result.total != 1.0 or not result.is_success or result.suspicions:
        faults.append(
            f"{task.task_id}: the solution must earn 1.0, got {result.total} {result.parts}: {result.findings} "
            f"{result.suspicions}"
        )
    for what, files in wrong_answers(task).items():
        wrong = validator.validate(task, {"files": files})
        if wrong.total > MAX_WRONG_REWARD or wrong.is_success:
            faults.append(
                f"{task.task_id}: {what} must earn at most {MAX_WRONG_REWARD}, got {wrong.total} {wrong.parts}"
            )
    return faults
