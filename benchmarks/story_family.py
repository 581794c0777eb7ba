"""The benchmark's family: one turn of free text, rewarded by the share of vowels. Cheap, so that it hides nothing."""

from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.types import RewardResult, Task

NAME = "story_family:open_family"
MANY = 0.3
"""Share of vowels from which on a story counts as a success, near that of English: some do, some do not."""
SUBJECTS = (
    "a lighthouse",
    "an old train",
    "two foxes",
    "a lost key",
    "the first snow",
    "a quiet library",
    "a storm",
    "a violin",
)


def prompt(subject: str) -> str:
    """Return the text of one task; long enough an answer is asked for to fill 64 tokens."""
    return f"Write a long story about {subject}. Begin at once and describe every detail."


def share_of_vowels(text: str) -> float:
    """Return the reward of a text, in [0, 1]."""
    return sum(character in "aeiou" for character in text) / max(1, len(text))


class StoryEnv(BaseTextEnv):
    """Done after one turn."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self._subject = subject
        self._text = ""

    def init(self, prompt_messages: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        """Return the prompt."""
        return [{"role": "user", "content": prompt(self._subject)}], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Take the story."""
        self._text = action
        return BaseTextEnvStepOutput(observations=[], reward=0.0, done=True, metadata={})

    def artifact(self) -> dict[str, Any]:
        """Return what was written."""
        return {"text": self._text}


class StoryValidator:
    """Counts vowels."""

    def validate(self, task: Task, artifact: dict[str, Any], **_: Any) -> RewardResult:
        """Score one story."""
        share = share_of_vowels(artifact["text"])
        return RewardResult(total=share, parts={"vowels": share}, is_success=share > MANY)

    def close(self) -> None:
        """Nothing to release."""


def open_family(config: EnvironmentConfig) -> Family:
    """Return the family."""
    return Family(
        make_environment=lambda task, max_turns: StoryEnv(task.payload["subject"]),
        make_validator=StoryValidator,
        close=lambda: None,
    )
