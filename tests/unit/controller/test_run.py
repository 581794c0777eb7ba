"""What a run saves and takes back."""

import asyncio
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LocalCalls
from groups import make_group

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.update import Coefficients
from skyrl_nat.rollouts.producer import ProducerState
from skyrl_nat.types import RolloutGroup


class Saver:
    """A policy rank whose weights are one file."""

    def save(self, folder: str) -> None:
        Path(folder).mkdir(parents=True)
        Path(folder, "weights").write_text("w")

    def load(self, folder: str) -> None:
        assert Path(folder, "weights").read_text() == "w"


def test_coefficients_come_back_with_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KL coefficient that has moved to 0.07 goes on from there, not from the config's; so do groups played ahead."""
    ahead = make_group(9, [1.0, None])
    lost = {"t3": {"failures": 2, "step": 3, "reason": "no answer"}}

    class Producer:
        def __init__(self, position: int) -> None:
            self.position = position
            self.restored: list[RolloutGroup] = []

        def state(self) -> ProducerState:
            return ProducerState(position=self.position, finished=[ahead], unfinished=[10], quarantine=lost)

        def restore(self, finished: list[RolloutGroup], quarantine: dict[str, Any]) -> None:
            self.restored, self.lost = finished, quarantine

    monkeypatch.setattr(Run, "_make_producer", lambda run: Producer(run.stream.position))

    def bare_run() -> Run:
        run = object.__new__(Run)
        run.config = SimpleNamespace(seed=1)  # type: ignore[assignment]
        run.checkpoints = CheckpointManager(tmp_path, keep_last=0)
        run.policy = LocalCalls([Saver()])  # type: ignore[assignment]
        run.console = SimpleNamespace(status=lambda text: None)  # type: ignore[assignment]
        run.account = SimpleNamespace(interrupt=lambda: None)  # type: ignore[assignment]
        run.devices = SimpleNamespace(in_phase=lambda name: nullcontext())  # type: ignore[assignment]
        run.stream = SimpleNamespace(position=9)  # type: ignore[assignment]
        run.step, run.coefficients, run.producer = 0, Coefficients(0.1, 0.0), run._make_producer()
        return run

    before = bare_run()
    before.step, before.coefficients = 3, Coefficients(0.07, 0.002)
    saved = asyncio.run(before.save_checkpoint())
    after = bare_run()
    after.stream.position = 0
    asyncio.run(after.load_checkpoint(saved))
    assert (after.step, after.stream.position) == (3, 9)
    assert after.coefficients == Coefficients(0.07, 0.002)
    assert after.producer.restored == [ahead]  # type: ignore[attr-defined]
    assert after.producer.lost == lost  # type: ignore[attr-defined]
    assert after.producer.position == 9  # type: ignore[attr-defined]
