"""The letters, with an environment that takes a moment; both it and the validator can make a fault that is armed."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

from chaos.armed import fail, struck
from letter_family import LetterEnv, LetterValidator
from skyrl_gym.envs.base_text_env import BaseTextEnvStepOutput

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.family import Family
from skyrl_nat.types import RewardResult, Task

NAME = "chaos.family:open_family"
TURN_S = 0.02
"""Of the environment: longer than saving would hide the playing."""
ROOM_MIB = 64
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


class ChaosEnv(LetterEnv):
    """Takes a moment, raises, or hangs."""

    def step(self, action: str) -> BaseTextEnvStepOutput:
        fail(struck("environment", "step"))
        time.sleep(TURN_S)
        return super().step(action)


class ChaosValidator(LetterValidator):
    """Raises, hangs, takes longer than it may, or takes all memory."""

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        fault = struck("reward", "score")
        fail(fault)
        if fault == "slow":
            time.sleep(3600)
        if fault == "out of memory":
            run_out_of_memory()
        return super().validate(task, artifact, seed=seed, is_final=is_final)


def run_out_of_memory() -> None:
    """Take more memory than there is: the kernel ends the process. Where no limit can be set, do what it would do."""
    with contextlib.suppress(OSError):
        group = MEMORY_GROUPS / f"chaos_{os.getpid()}"
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(ROOM_MIB * 2**20))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        for _ in range(4 * ROOM_MIB):
            _kept.append(bytearray(os.urandom(2**20)))
    os.kill(os.getpid(), signal.SIGKILL)


_kept: list[bytearray] = []


def remove_memory_groups() -> None:
    """Remove the limits of processes that are gone."""
    for group in MEMORY_GROUPS.glob("chaos_*"):
        with contextlib.suppress(OSError):
            group.rmdir()


def open_family(config: EnvironmentConfig) -> Family:
    return Family(
        make_environment=lambda task, max_turns: ChaosEnv(task.payload["letter"]),
        make_validator=ChaosValidator,
        close=lambda: None,
    )
