"""How the registry opens this family."""

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.environments.nat_agent.env import NATAgentCreationEnv
from skyrl_nat.environments.nat_agent.known_answers import known_answers
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.environments.nat_agent.workbench import Workbench
from skyrl_nat.types import Task


def open_family(config: EnvironmentConfig) -> Family:
    """Return the family; the sandbox behind checks, tests and shell starts with the first call of a policy."""
    workbench = Workbench(config)

    def make_environment(task: Task, max_turns: int) -> NATAgentCreationEnv:
        return NATAgentCreationEnv(
            {"max_observation_chars": config.max_observation_chars, "form": config.form},
            {"payload": task.payload, "max_turns": max_turns, "workbench": workbench},
        )

    return Family(
        make_environment=make_environment,
        make_validator=lambda: NatAgentValidator(config),
        close=workbench.close,
        known_answers=known_answers,
        runs_code=True,
    )
