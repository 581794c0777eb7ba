"""What a task family hands to the workers."""

from collections.abc import Callable
from dataclasses import dataclass

from skyrl_gym.envs.base_text_env import BaseTextEnv

from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One opened family; belongs to one worker."""

    make_environment: Callable[[Task, int], BaseTextEnv]
    """Task (visible part) and number of turns -> a fresh environment."""
    make_validator: Callable[[], Validator | None]
    """The judge of what was made; None where the sum of the steps' rewards is the reward."""
    close: Callable[[], None]
    """Releases what the environments share."""
