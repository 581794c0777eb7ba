"""The letters once more, with an environment that takes its time: engines and trainer wait meanwhile."""

import time

from letter_family import LetterEnv, LetterValidator
from skyrl_gym.envs.base_text_env import BaseTextEnvStepOutput

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family

NAME = "sleepy_family:open_family"
SLEEP_S = 0.5
"""Of every turn; a rollout whose first one is cut has no second."""


class SleepyEnv(LetterEnv):
    """Sleeps before it answers."""

    def step(self, action: str) -> BaseTextEnvStepOutput:
        time.sleep(SLEEP_S)
        return super().step(action)


def open_family(config: EnvironmentConfig) -> Family:
    return Family(
        make_environment=lambda task, max_turns: SleepyEnv(task.payload["letter"]),
        make_validator=LetterValidator,
        close=lambda: None,
    )
