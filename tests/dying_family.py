"""The letters once more, with a validator that takes its process along: `DIES_AT` is the call, `DIES_HOW` the way."""

import os
import sys
from pathlib import Path
from typing import Any

from chaos.family import run_out_of_memory
from letter_family import LetterEnv, LetterValidator

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.types import RewardResult, Task

NAME = "dying_family:open_family"
LAST_WORDS = "the judge gives up"


class DyingValidator(LetterValidator):
    """Counts the calls of its process, and writes a line into `DIES_LOG` when the first one comes."""

    def __init__(self) -> None:
        self.num_calls = 0

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        self.num_calls += 1
        if self.num_calls == 1:
            with Path(os.environ["DIES_LOG"]).open("a") as log:
                log.write(f"{os.getpid()}\n")
        if self.num_calls == int(os.environ["DIES_AT"]):
            print(LAST_WORDS, file=sys.stderr, flush=True)
            if os.environ["DIES_HOW"] == "memory":
                run_out_of_memory()
            os._exit(7)
        return super().validate(task, artifact, seed=seed, is_final=is_final)


def open_family(config: EnvironmentConfig) -> Family:
    return Family(
        make_environment=lambda task, max_turns: LetterEnv(task.payload["letter"]),
        make_validator=DyingValidator,
        close=lambda: None,
    )
