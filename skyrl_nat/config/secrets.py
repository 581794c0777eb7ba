"""No secret in a config: it is saved beside the run, printed, and shown by trackers."""

import os
import re
from collections.abc import Iterator
from typing import Any, cast

from skyrl_nat.config.run import RunConfig
from skyrl_nat.errors import ConfigError

SECRET_NAME = re.compile(r"(^|_)(key|token|secret|password|passwd|credentials?)$", re.IGNORECASE)
"""Names of keys and of environment variables whose values are secrets."""
MIN_LENGTH = 8
"""Shorter values of environment variables are found in innocent text too."""


def refuse_secrets(config: RunConfig) -> None:
    """Refuse a value under a secret's name, and one that holds what an environment variable keeps secret.

    Raises:
        ConfigError: With the path, never with the value.
    """
    known = {value: name for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= MIN_LENGTH}
    for path, value in _texts(config.to_dict(), ""):
        name = path.rpartition(".")[2]
        if SECRET_NAME.search(name):
            raise ConfigError(
                f"{path} must not be in a config, which is saved and shown, got {len(value)} characters. "
                f"Export an environment variable before the start instead"
            )
        for secret, variable in known.items():
            if secret in value:
                raise ConfigError(
                    f"{path} must not hold a secret, since a config is saved and shown, got the value of the "
                    f"environment variable {variable}. What needs it reads the variable itself: leave {path} out"
                )


def _texts(node: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict):
        for name, item in cast("dict[str, Any]", node).items():
            yield from _texts(item, f"{path}.{name}".lstrip("."))
    elif isinstance(node, list | tuple):
        for item in cast("list[Any]", node):
            yield from _texts(item, path)
    elif isinstance(node, str) and node:
        yield path, str(node)
