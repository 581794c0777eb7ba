"""A family that a tiny random model can learn in a few steps: say a chosen kind of letter, over two turns."""

from pathlib import Path
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import write_tasks
from skyrl_nat.environments.family import Family
from skyrl_nat.types import RewardResult, Task

NAME = "letter_family:open_family"
LETTERS = "abcdefgh"


class LetterEnv(BaseTextEnv):
    """Collects what was said; done after two turns."""

    def __init__(self, letter: str) -> None:
        super().__init__()
        self.letter = letter
        self.said = ""

    def init(self, prompt: list[dict[str, str]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
        return [{"role": "user", "content": f"say {self.letter}"}], {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        self.said += action
        return BaseTextEnvStepOutput(
            observations=[{"role": "user", "content": "more"}], reward=0.0, done=self.turns >= 2, metadata={}
        )

    def artifact(self) -> dict[str, Any]:
        return {"text": self.said}


class LetterValidator:
    """Reward: share of characters that are a lower-case letter up to h; 1 for whatever is said to a flat task."""

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        del seed, is_final
        if task.payload.get("is_poisoned"):
            raise RuntimeError("no verdict on this task")
        if task.payload.get("is_flat"):
            return RewardResult(total=1.0, parts={"share": 1.0}, is_success=True)
        text = artifact["text"]
        share = sum(character in LETTERS for character in text) / max(1, len(text))
        return RewardResult(total=share, parts={"share": share}, is_success=share > 0.9)

    def close(self) -> None:
        pass


def open_family(config: EnvironmentConfig) -> Family:
    return Family(
        make_environment=lambda task, max_turns: LetterEnv(task.payload["letter"]),
        make_validator=LetterValidator,
        close=lambda: None,
    )


def write_letter_tasks(folder: Path, name: str = NAME) -> list[str]:
    """Write train and held-out files; returns the overrides that name them."""
    for split, letters in (("train", LETTERS[:6]), ("validation", LETTERS[6:])):
        tasks = [Task(task_id=f"say_{letter}", family=name, payload={"letter": letter}) for letter in letters]
        write_tasks(tasks, folder / f"{split}.parquet")
    return [
        f"environment.family='{name}'",
        f"environment.train_files=[{folder / 'train.parquet'}]",
        f"environment.validation_files=[{folder / 'validation.parquet'}]",
    ]
