"""Environments registered with skyrl-gym, played as they are: the reward is the sum of their steps' rewards."""

import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv
from skyrl_gym.envs.registration import registry

from skyrl_nat.environments.family import Family
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import Task


def open_foreign(environment_id: str) -> Family:
    """Return a family around one skyrl-gym id.

    A task's payload becomes the environment's `extras`; its `prompt`, a list of messages, opens the episode.

    Raises:
        ConfigError: The id is not registered in this process.
    """
    if environment_id not in registry:
        raise ConfigError(
            f"environment.family must name an environment that skyrl-gym knows ({', '.join(sorted(registry))}), got "
            f"{environment_id!r}. Call skyrl_gym.register in the process of the environment worker"
        )

    def make_environment(task: Task, max_turns: int) -> BaseTextEnv:
        extras = {**task.payload, "max_turns": max_turns}
        environment = skyrl_gym.make(environment_id, env_config={}, extras=extras)
        if not isinstance(environment, BaseTextEnv):
            raise ConfigError(
                f"environment.family must name a text environment (BaseTextEnv), {environment_id} is a "
                f"{type(environment).__name__}. Choose another"
            )
        return environment

    return Family(make_environment=make_environment, make_validator=lambda: None, close=lambda: None)
