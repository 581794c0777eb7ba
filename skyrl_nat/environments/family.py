"""What a task family hands to the workers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv

from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Task

Artifact = Mapping[str, Any]
"""What an environment hands over and a validator judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownAnswers:
    """Artifacts of one task that are known to be right or wrong without judging them, by what they are."""

    right: Mapping[str, Artifact]
    """Must earn 1 and be a success."""
    wrong: Mapping[str, Artifact]
    """Must earn less than 1 and be no success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One opened family; belongs to one worker."""

    make_environment: Callable[[Task, int], BaseTextEnv]
    """Task (visible part) and number of turns -> a fresh environment."""
    make_validator: Callable[[], Validator | None]
    """The judge of what was made; None where the sum of the steps' rewards is the reward."""
    close: Callable[[], None]
    """Releases what the environments share."""
    known_answers: Callable[[Task], KnownAnswers] | None = None
    """Task with its hidden part -> answers by which the judge is tried; None where the family knows none."""
    runs_code: bool = False
    """Whether what the policy writes is run, in the sandbox of `environment.sandbox`."""
