"""A run that does not move is noticed, explained and acted upon."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.cluster.group import Wait
from skyrl_nat.config.recovery import ENDING_S, OnStall, RecoveryConfig
from skyrl_nat.controller import watchdog
from skyrl_nat.controller.watchdog import Watchdog, describe
from skyrl_nat.errors import StalledError

LIMIT_S = 0.05


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what a watchdog needs of a run: an environment is waited for, and what is done is noted."""

    async def stacks_of(groups: Any) -> dict[str, str]:
        return {"environment 0": "in sleep"}

    async def replace(group: Any, rank: int, cause: str) -> None:
        noted.append(f"replace {group.role} {rank}")

    monkeypatch.setattr(watchdog, "stacks_of", stacks_of)
    noted: list[str] = []
    now = time.monotonic()
    waits = {
        Wait("environment", 0, "step", now),
        Wait("environment", 1, "step", now + 3600),
        Wait("environment", 0, "identity", now - 9),
    }
    return SimpleNamespace(
        step=3,
        folder=tmp_path,
        config=SimpleNamespace(
            recovery=RecoveryConfig(stall_timeout_s=LIMIT_S), cluster=SimpleNamespace(call_timeout_s=1800.0)
        ),
        devices=SimpleNamespace(phase="rollout"),
        runner=SimpleNamespace(num_finished=0),
        account=SimpleNamespace(slowest_step_s=0.0),
        topology=SimpleNamespace(groups=[SimpleNamespace(role="environment", waits=waits)]),
        console=SimpleNamespace(warn=noted.append),
        keeper=SimpleNamespace(replace=replace),
        producer=SimpleNamespace(drop_oldest=lambda: noted.append("drop")),
        noted=noted,
    )


async def looks(dog: Watchdog, times: int) -> None:
    """Look once to know where things are, then after each limit."""
    await dog.look()
    for _ in range(times):
        await asyncio.sleep(LIMIT_S * 1.2)
        await dog.look()


@pytest.mark.parametrize("moved", ["rollout", "step", "phase"])
def test_a_finished_rollout_a_step_or_another_phase_is_progress(run: Any, moved: str) -> None:
    async def scenario() -> None:
        dog = Watchdog(run)
        await dog.look()
        for number in range(3):
            await asyncio.sleep(LIMIT_S * 1.2)
            run.runner.num_finished += moved == "rollout"
            run.step += moved == "step"
            run.devices.phase = f"phase {number}" if moved == "phase" else "rollout"
            await dog.look()

    asyncio.run(scenario())
    assert run.noted == []


def test_stall_is_told_with_who_is_waited_for_and_the_one_is_replaced(run: Any) -> None:
    asyncio.run(looks(Watchdog(run), 1))
    assert run.noted[0].startswith("STALL: no progress for 0 s in phase rollout of step 4: the controller waits for ")
    assert "for environment 0 in `step` since 0 s (1 calls), environment 1 in" in run.noted[0]
    assert run.noted[1:] == ["replace environment 0"]
    (file,) = (run.folder / "stalls").iterdir()
    text = file.read_text()
    assert "environment 0: in sleep" in text
    assert "== controller, task" in text


def test_second_stall_in_a_row_ends_the_run(run: Any) -> None:
    with pytest.raises(StalledError, match=r"must move within 0 s .* the controller waits for environment 0 in `step`"):
        asyncio.run(looks(Watchdog(run), 2))


def test_stall_of_which_nobody_is_the_cause_ends_the_run_at_once(run: Any) -> None:
    run.topology.groups[0].waits.clear()
    with pytest.raises(StalledError, match="nobody is waited for, the controller itself stands still"):
        asyncio.run(looks(Watchdog(run), 1))


@pytest.mark.parametrize(("phase", "done"), [("rollout", "drop"), ("train", "replace environment 0")])
def test_refill_drops_the_oldest_group_where_rollouts_are_played(run: Any, phase: str, done: str) -> None:
    run.config.recovery.on_stall, run.devices.phase = OnStall.refill, phase
    asyncio.run(looks(Watchdog(run), 1))
    assert run.noted[1:] == [done]


def test_limit_comes_from_the_slowest_step(run: Any) -> None:
    """1800 s before the first step; then 10 x 2 s is under the five minutes, and 10 x 60 s is not."""
    run.config.recovery.stall_timeout_s = 0.0
    limits = []
    for seconds in (0.0, 2.0, 60.0):
        run.account.slowest_step_s = seconds
        limits.append(Watchdog(run).limit_s)
    assert limits == [1800.0, 300.0, 600.0]


def test_what_comes_after_the_watchdog_is_ended_too_if_it_outlasts_all_deadlines(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 + 3 x 300 s of starts, 2 engines on a GPU x 600 s, 6 calls x 1800 s, 90 s of grace and the end itself."""
    armed: list[tuple[float, bool]] = []

    def arm(limit_s: float, *, exit: bool, **_: Any) -> None:
        armed.append((limit_s, exit))

    async def watch_and_end() -> None:
        watching = asyncio.create_task(Watchdog(run).watch())
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    monkeypatch.setattr(watchdog.faulthandler, "dump_traceback_later", arm)
    run.config.cluster = SimpleNamespace(call_timeout_s=1800.0, start_timeout_s=300.0, num_engines_per_gpu=2)
    run.config.engine = SimpleNamespace(start_timeout_s=600.0)
    asyncio.run(watch_and_end())
    assert armed == [(2 * LIMIT_S, True), (120 + 3 * 300 + 2 * 600 + 6 * 1800 + 90 + ENDING_S, True)]


def test_longest_waits_are_named_first() -> None:
    now = time.monotonic()
    waits = [Wait("engine", rank, "generate", now - 50 + rank) for rank in range(6)]
    text = describe(waits)
    assert text.startswith("the controller waits for engine 0 in `generate` since 50 s (1 calls), engine 1 in")
    assert text.endswith("and 2 others")
