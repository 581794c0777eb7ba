"""What saving needs of a run, on a policy whose weights are one number."""

import asyncio
import contextlib
import errno
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from fakes import LocalCalls
from groups import make_group

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.config.outputs import CheckpointConfig
from skyrl_nat.config.recovery import RecoveryConfig
from skyrl_nat.controller.saving import Saver
from skyrl_nat.controller.update import Coefficients
from skyrl_nat.errors import CheckpointError
from skyrl_nat.rollouts.producer import ProducerState
from skyrl_nat.types import RolloutGroup

AHEAD = make_group(9, [1.0, None])
LOST = {"t3": {"failures": 2, "step": 3, "reason": "no answer"}}


class Producer:
    """Has one finished group beyond the stream's position, and one that is being played."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.restored: list[RolloutGroup] = []
        self.lost: dict[str, Any] = {}

    def state(self) -> ProducerState:
        return ProducerState(position=self.position, finished=[AHEAD], unfinished=[10], quarantine=LOST)

    def restore(self, finished: list[RolloutGroup], quarantine: dict[str, Any]) -> None:
        self.restored, self.lost = finished, quarantine


class Rank:
    """A policy rank whose weights are one number; its disk may be full."""

    def __init__(self) -> None:
        self.weights = 0
        self.copy = 0
        self.is_full: Callable[[], bool] = lambda: False
        self.may_write = threading.Event()
        """Holds up writing in the background."""
        self.may_write.set()

    def save(self, folder: str) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "weights").write_text(str(self.weights))
        if self.is_full():
            raise CheckpointError("the checkpoint must be written, got: OSError: [Errno 28] No space left on device.")

    def snapshot(self) -> None:
        self.copy = self.weights

    def write(self, folder: str) -> None:
        assert self.may_write.wait(30)
        now, self.weights = self.weights, self.copy
        try:
            self.save(folder)
        finally:
            self.weights = now

    def load(self, folder: str) -> None:
        self.weights = int(Path(folder, "weights").read_text())


class Run:
    """What saving needs of a run."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.rank = Rank()
        self.policy = LocalCalls([self.rank])
        self.config = SimpleNamespace(
            name="run",
            seed=1,
            checkpoint=CheckpointConfig(**settings),
            recovery=RecoveryConfig(grace_s=20),
            cluster=SimpleNamespace(call_timeout_s=20),
        )
        self.said: list[str] = []
        self.devices = SimpleNamespace(phase="start", in_phase=self.in_phase)
        self.console = SimpleNamespace(status=lambda text: None, warn=self.said.append)
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.tracker = SimpleNamespace(
            run_ids=lambda: {"wandb": "abc"}, log=lambda *entry: self.logged.append(entry), rewind=lambda step: None
        )
        self.stream = SimpleNamespace(position=9)
        self.step, self.total_steps, self.coefficients = 0, 100, Coefficients(0.1, 0.0)
        self.rewards: dict[int, float] = {}
        self.checkpoints = CheckpointManager(folder, keep_last=self.config.checkpoint.keep_last, keep_best=1)
        self.saver = Saver(self, self.checkpoints)  # type: ignore[arg-type]
        self.renew_producer()

    @contextlib.contextmanager
    def in_phase(self, name: str) -> Iterator[None]:
        """Name what is being done, as `Devices` does."""
        before, self.devices.phase = self.devices.phase, name
        try:
            yield
        finally:
            self.devices.phase = before

    def renew_producer(self) -> None:
        self.producer = Producer(self.stream.position)

    async def step_and_save(self, *steps: int) -> None:
        """Save some steps, whose weights are their numbers."""
        for step in steps:
            self.step = self.rank.weights = step
            await self.saver.save()

    def train_and_save(self, *steps: int) -> None:
        """Save some steps, whose weights are their numbers, and end."""

        async def work() -> None:
            await self.step_and_save(*steps)
            await self.saver.finish()

        asyncio.run(work())


def saved_weights(folder: Path) -> dict[str, str]:
    """Return the weights in every folder that bears a step's name."""
    return {path.name: (path / "policy" / "weights").read_text() for path in sorted(folder.iterdir())}


def refuse(*arguments: Any, **options: Any) -> None:
    """Stand in for what writes, on a full disk."""
    raise OSError(errno.ENOSPC, "No space left on device")
