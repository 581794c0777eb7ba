"""Configs with some values changed, checked like every config but without composing it anew."""

import copy
from collections.abc import Mapping
from typing import Any

from skyrl_nat.config.run import RunConfig

Change = Mapping[str, Any]
"""Config path -> value."""


def changed(config: RunConfig, change: Change) -> RunConfig:
    """Return a copy with these values.

    Raises:
        ConfigError: They do not go together.
    """
    found = copy.deepcopy(config)
    sections = [found]
    for path, value in change.items():
        *parents, name = path.split(".")
        section: Any = found
        for parent in parents:
            section = getattr(section, parent)
            sections.append(section)
        setattr(section, name, value)
    for section in reversed(list({id(each): each for each in sections}.values())):
        section.__post_init__()
    return found


def as_overrides(change: Change) -> str:
    """Return a change as it is written on a command line."""
    return " ".join(f"{path}={_text(value)}" for path, value in change.items())


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
