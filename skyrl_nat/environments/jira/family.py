"""How the registry opens this family."""

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.environments.jira.known_answers import known_answers
from skyrl_nat.environments.jira.text import JiraTextEnv
from skyrl_nat.environments.jira.validator import JiraValidator
from skyrl_nat.types import Task


def open_family(config: EnvironmentConfig) -> Family:
    """Return the family; `config.reward_weights` may weigh progress, workflow and economy."""

    def make_environment(task: Task, max_turns: int) -> JiraTextEnv:
        return JiraTextEnv({}, {"payload": task.payload, "max_turns": max_turns})

    return Family(
        make_environment=make_environment,
        make_validator=lambda: JiraValidator(config.reward_weights),
        close=lambda: None,
        known_answers=known_answers,
    )
