"""What is on the disk when a step fails."""

import asyncio
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from group_player import TASKS, rollout

from skyrl_nat.controller import loop
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.rollouts.recorder import RolloutRecorder, rollout_file
from skyrl_nat.types import RolloutGroup


def failing_run(folder: Path, groups: list[RolloutGroup]) -> Any:
    """Return a run that has trained six steps and plays the seventh."""

    async def nothing(*_: Any) -> None:
        pass

    async def take() -> list[RolloutGroup]:
        return groups

    @asynccontextmanager
    async def phase():
        yield

    return SimpleNamespace(
        step=6,
        total_steps=9,
        is_over=lambda: False,
        evaluations=[SimpleNamespace(step=6)],
        push_weights=nothing,
        begin_step=nothing,
        producer=SimpleNamespace(start_at=lambda step: None, take=take),
        console=SimpleNamespace(status=lambda text: None),
        rollout_phase=phase,
        training_phase=phase,
        recorder=RolloutRecorder(folder),
        record=None,
    )


@pytest.mark.parametrize("is_push_due", [True, False])
def test_the_next_batch_starts_while_requests_are_held_for_the_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_push_due: bool
):
    """What it samples comes from the pushed weights; what is not sampled, such as environments, need not wait."""
    done: list[str] = []

    async def update_policy(run: Any, groups: list[RolloutGroup], record: None) -> dict[str, float]:
        return {}

    async def push() -> None:
        done.append("push")

    async def end_step(*_: Any) -> None:
        raise RuntimeError("seen enough")

    @contextmanager
    def hold():
        done.append("hold")
        yield
        done.append("let go")

    monkeypatch.setattr(loop, "update_policy", update_policy)
    run = failing_run(tmp_path, [])
    run.producer.advance = lambda version: done.append(f"start after {version}")
    run.pool, run.end_step = SimpleNamespace(hold=hold), end_step
    run.push_weights, run.is_push_due = push, lambda: is_push_due
    with pytest.raises(RuntimeError, match="seen enough"):
        asyncio.run(loop.train(run))
    assert done == ["push", "hold", "start after 7", *["push"] * is_push_due, "let go"]


def test_rollouts_of_a_step_that_fails_in_training_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async def update_policy(run: Any, groups: list[RolloutGroup], record: None) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(loop, "update_policy", update_policy)
    groups = [RolloutGroup(task=TASKS[3], index=12, rollouts=[rollout(TASKS[3].visible(), 6)] * 2)]
    run = failing_run(tmp_path, groups)
    with pytest.raises(RuntimeError, match="out of memory"):
        asyncio.run(loop.train(run))
    assert read_groups(rollout_file(tmp_path, 7)) == groups
    assert run.step == 6
