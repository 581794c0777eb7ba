"""The reward worker of a family, by name: what the cluster part starts."""

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.registry import open_family
from skyrl_nat.errors import ConfigError
from skyrl_nat.rewards.worker import RewardWorker


def has_validator(family: str, config: EnvironmentConfig) -> bool:
    """Return whether a family judges artifacts; otherwise the sum of its step rewards counts."""
    return open_family(family, config).make_validator() is not None


def make_reward_worker(family: str, config: EnvironmentConfig, *, timeout_s: float, num_threads: int) -> RewardWorker:
    """Return a worker that owns the family's validator.

    Args:
        family: Name in `environments.registry`.
        config: Section `environment`.
        timeout_s: Deadline of one validation.
        num_threads: Validations at once.

    Raises:
        ConfigError: The family has no validator.
    """
    validator = open_family(family, config).make_validator()
    if validator is None:
        raise ConfigError(f"environment.family must have a validator to be scored, {family} has none. Use its rewards")
    return RewardWorker(
        validator,
        timeout_s=timeout_s,
        num_threads=num_threads,
        screen=config.screen,
        slow_checks=config.slow_checks,
    )
