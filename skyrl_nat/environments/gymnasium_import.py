"""Gymnasium, an optional package: import it from here, and one sentence says how to get it where it is missing."""

from skyrl_nat.errors import ConfigError

try:
    import gymnasium
except ImportError as error:
    raise ConfigError(
        "gymnasium must be installed for Gymnasium environments, it cannot be imported "
        f"({error}). Run `pip install 'skyrl-nat[gymnasium]'`"
    ) from error

__all__ = ["gymnasium"]
