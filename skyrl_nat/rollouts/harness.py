"""What a harness owes: whoever plays an episode outside, as an OpenAI client of the gateway."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import ConfigError
from skyrl_nat.rollouts.environment_player import Environments
from skyrl_nat.types import Task


class Harness(Protocol):
    """Plays episodes; many at once."""

    async def play(self, *, task: Task, base_url: str, api_key: str, model: str) -> dict[str, Any]:
        """Play one episode and return its artifact: what the validator judges.

        When a limit of the rollout is met the gateway refuses (status 400, code `rollout_limit` or
        `context_length_exceeded`); the harness then returns what exists. Whatever is raised counts as an
        infrastructure failure: the rollout is played again.

        Three keys of the artifact are optional and taken out: `environment_reward` (a number, the reward where the
        family has no validator), `policy_failure` (a text: why the policy's own output made going on impossible) and
        `is_done` (True: the task's own end was reached, even if the last answer was cut).

        Args:
            task: Its visible part.
            base_url: Of the gateway, for this rollout.
            api_key: Of this rollout.
            model: Name to ask for.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HarnessContext:
    """What a harness may use of a run."""

    environments: Environments
    """The environment workers of the run's family."""
    environment: EnvironmentConfig
    rollout: RolloutConfig


HarnessFactory = Callable[[HarnessContext], Harness]


def find_harness(name: str) -> HarnessFactory:
    """Return the factory that `rollout.harness` names.

    Raises:
        ConfigError: There is none.
    """
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"rollout.harness must be module:function of a function from HarnessContext to Harness, got {name!r} "
            f"({error}). Check the name and PYTHONPATH"
        ) from error
