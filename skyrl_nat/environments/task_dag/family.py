"""How the registry opens this family."""

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.environments.task_dag.env import TaskDagEnv
from skyrl_nat.environments.task_dag.known_answers import known_answers
from skyrl_nat.environments.task_dag.validator import TaskDagValidator
from skyrl_nat.types import Task


def open_family(config: EnvironmentConfig) -> Family:
    """Return the family; its environments share nothing."""

    def make_environment(task: Task, max_turns: int) -> TaskDagEnv:
        return TaskDagEnv({}, {"payload": task.payload, "max_turns": max_turns, "task_id": task.task_id})

    return Family(
        make_environment=make_environment,
        make_validator=lambda: TaskDagValidator(config),
        close=lambda: None,
        known_answers=known_answers,
    )
