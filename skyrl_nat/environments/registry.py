"""Task families by name. A new family is a new folder and one line here."""

import importlib
from collections.abc import Callable

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.errors import ConfigError

FAMILIES: dict[str, str] = {
    "nat_agent": "skyrl_nat.environments.nat_agent.family:open_family",
    "task_dag": "skyrl_nat.environments.task_dag.family:open_family",
    "jira": "skyrl_nat.environments.jira.family:open_family",
}
"""Name -> `module:function` of `(EnvironmentConfig) -> Family`, imported when it is asked for."""
VISIBLE_PARTS: dict[str, str] = {
    "nat_agent": "skyrl_nat.environments.nat_agent.rewards:VISIBLE_PARTS",
    "task_dag": "skyrl_nat.environments.task_dag.rewards:VISIBLE_PARTS",
}
"""Name -> `module:constant` of the reward parts that a policy can earn without a hidden test; all others need one."""
FOREIGN_PREFIX = "skyrl_gym/"
GYMNASIUM_PREFIX = "gymnasium/"


def open_family(name: str, config: EnvironmentConfig) -> Family:
    """Return a family by name.

    `skyrl_gym/<id>` is any environment registered with skyrl-gym, `gymnasium/<id>` any Gymnasium environment with
    discrete actions, `module:function` an opener of one's own.

    Raises:
        ConfigError: There is no such family.
    """
    if name.startswith(FOREIGN_PREFIX):
        from skyrl_nat.environments.foreign import (
            open_foreign,
        )  # imports skyrl-gym's built-in environments

        return open_foreign(name.removeprefix(FOREIGN_PREFIX))
    if name.startswith(GYMNASIUM_PREFIX):
        from skyrl_nat.environments.gymnasium_text import open_gymnasium  # needs an optional package

        return open_gymnasium(name.removeprefix(GYMNASIUM_PREFIX))
    module, _, attribute = FAMILIES.get(name, name).partition(":")
    try:
        opener: Callable[[EnvironmentConfig], Family] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"environment.family must be one of {', '.join(FAMILIES)}, {FOREIGN_PREFIX}<id>, {GYMNASIUM_PREFIX}<id> "
            f"or module:function, got {name!r} ({error}). Correct the name, or put its folder on PYTHONPATH"
        ) from error
    return opener(config)


def visible_parts(name: str) -> frozenset[str] | None:
    """Return the reward parts of a family that need no hidden test, None where the family does not say."""
    module, _, attribute = VISIBLE_PARTS.get(name, "").partition(":")
    return frozenset(getattr(importlib.import_module(module), attribute)) if module else None
