"""This environment for anyone who plays by skyrl-gym's rules: `skyrl_gym.make("nat_agent_creation", ...)`.

Importing this module registers the id. Where `extras` bring the hidden half of the task, the last step's reward is
the validator's; workbench and validator are made once per process and settings, and end with the process.
"""

import atexit
import functools
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import skyrl_gym
from skyrl_gym.envs.registration import registry

from skyrl_nat.config.environment import EnvironmentConfig, Form, SandboxConfig
from skyrl_nat.environments.nat_agent.env import NATAgentCreationEnv
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.prompts import build_prompt
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.environments.nat_agent.workbench import Workbench
from skyrl_nat.errors import ConfigError
from skyrl_nat.types import Task

ENVIRONMENT_ID = "nat_agent_creation"


def register() -> None:
    """Register the environment with skyrl-gym in this process; safe to call twice."""
    if ENVIRONMENT_ID not in registry:
        skyrl_gym.register(ENVIRONMENT_ID, entry_point=f"{__name__}:make_environment")


def make_environment(
    env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None
) -> NATAgentCreationEnv:
    """Return an environment that can check, test and judge; what `skyrl_gym.make` calls.

    Args:
        env_config: Keys of section `environment`, such as `form`, `max_observation_chars` and `sandbox`; a dict or an
            OmegaConf node.
        extras: The task: `payload`, and what else `NATAgentCreationEnv` takes.

    Raises:
        ConfigError: A key of `env_config` is unknown, or a value impossible.
    """
    config, given = plain(env_config or {}), plain(extras or {})
    if given.get("workbench") is None:
        given["workbench"] = _workbench(json.dumps(config, sort_keys=True))
    if given.get("hidden") and given.get("validator") is None:
        given["validator"] = _validator(json.dumps(config, sort_keys=True))
    return NATAgentCreationEnv(config, given)


def to_skyrl_rows(tasks: Iterable[Task], *, form: Form = Form.multi_turn, max_turns: int = 12) -> list[dict[str, Any]]:
    """Return tasks as rows of a SkyRL data set, for instance for `datasets.Dataset.from_list(rows).to_parquet`.

    `prompt` and `env_class` are SkyRL's own columns, all others reach the environment as `extras`. Nested values are
    JSON text: parquet would give every row the union of all rows' keys.

    Args:
        tasks: With their hidden part.
        form: The protocol that the prompt describes.
        max_turns: What the prompt says; must be SkyRL's `generator.max_turns`.
    """
    return [
        {
            "prompt": build_prompt(parse_spec(task.payload), form, max_turns),
            "env_class": ENVIRONMENT_ID,
            "task_id": task.task_id,
            "form": form.value,
            "payload": json.dumps(task.payload),
            "hidden": json.dumps(task.hidden),
        }
        for task in tasks
    ]


def plain(value: Any) -> Any:
    """Return mappings and sequences of any kind as dicts and lists; everything else as it is."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item) for item in value]
    return value


@functools.cache
def _workbench(config: str) -> Workbench:
    workbench = Workbench(_settings(config))
    atexit.register(workbench.close)
    return workbench


@functools.cache
def _validator(config: str) -> NatAgentValidator:
    validator = NatAgentValidator(_settings(config))
    atexit.register(validator.close)
    return validator


def _settings(config: str) -> EnvironmentConfig:
    values: dict[str, Any] = json.loads(config)
    try:
        return EnvironmentConfig(**{**values, "sandbox": SandboxConfig(**values.get("sandbox", {}))})
    except TypeError as error:
        raise ConfigError(f"env_config must hold keys of section environment only: {error}. Remove others") from error


register()
