"""How the registry opens this family."""

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.environments.nat_agent.checker import PackageChecker
from skyrl_nat.environments.nat_agent.env import NatAgentEnv
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.types import Task


def open_family(config: EnvironmentConfig) -> Family:
    """Return the family; the sandbox behind `validate` starts with the first call of a policy."""
    checker = PackageChecker(config)

    def make_environment(task: Task, max_turns: int) -> NatAgentEnv:
        return NatAgentEnv(
            {"max_observation_chars": config.max_observation_chars},
            {"payload": task.payload, "max_turns": max_turns, "checker": checker},
        )

    return Family(
        make_environment=make_environment,
        make_validator=lambda: NatAgentValidator(config),
        close=checker.close,
    )
