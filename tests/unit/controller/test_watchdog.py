"""A run that does not move is noticed, explained and acted upon; one that moves, or waits for what may last, is not."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.cluster.group import Wait
from skyrl_nat.config.recovery import ENDING_S, OnStall, RecoveryConfig
from skyrl_nat.controller import watchdog
from skyrl_nat.controller.watchdog import Watchdog, describe
from skyrl_nat.errors import StalledError

LIMIT_S = 60.0


class Clock:
    """Time that only a test lets pass."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def strftime(self, form: str) -> str:
        return "120000"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what a watchdog needs of a run: an environment is waited for, and what is done is noted."""

    async def stacks_of(groups: Any) -> dict[str, str]:
        found.while_writing()
        return {"environment 0": "in sleep"}

    async def replace(group: Any, rank: int, cause: str) -> None:
        noted.append(f"replace {group.role} {rank}")

    clock = Clock()
    monkeypatch.setattr(watchdog, "stacks_of", stacks_of)
    monkeypatch.setattr(watchdog, "time", clock)
    noted: list[str] = []
    waits = {
        Wait("environment", 0, "step", clock.now),
        Wait("environment", 1, "step", clock.now + 10),
        Wait("environment", 0, "identity", clock.now - 9),
    }
    found = SimpleNamespace(
        step=3,
        folder=tmp_path,
        config=SimpleNamespace(
            recovery=RecoveryConfig(stall_timeout_s=LIMIT_S),
            cluster=SimpleNamespace(call_timeout_s=1800.0, start_timeout_s=300.0),
        ),
        devices=SimpleNamespace(phase="rollout"),
        runner=SimpleNamespace(num_finished=0),
        account=SimpleNamespace(slowest_step_s=0.0),
        saver=SimpleNamespace(waits=set()),
        topology=SimpleNamespace(
            groups=[
                SimpleNamespace(role="environment", waits=waits, progress={}),
                SimpleNamespace(role="engine", waits=set(), progress={}),
                SimpleNamespace(role="policy", waits=set(), progress={0: 7, 1: 7}),
            ]
        ),
        console=SimpleNamespace(warn=noted.append),
        keeper=SimpleNamespace(replace=replace),
        producer=SimpleNamespace(drop_oldest=lambda: noted.append("drop")),
        noted=noted,
        clock=clock,
        while_writing=lambda: None,
    )
    return found


async def look(run: Any, dog: Watchdog, seconds: float, *, every: float = 5.0) -> None:
    """Let time pass, in which the watchdog looks again and again."""
    for _ in range(int(seconds / every)):
        run.clock.now += every
        await dog.look()


def watched(run: Any, *intervals: float) -> None:
    """Look once to know where things are, then for some seconds."""

    async def scenario() -> None:
        dog = Watchdog(run)
        await dog.look()
        for seconds in intervals:
            await look(run, dog, seconds)

    asyncio.run(scenario())


def start(run: Any, rank: int = 0) -> Wait:
    """Start an engine anew, which nobody asks for anything meanwhile."""
    wait = Wait("engine", rank, "start", run.clock.now)
    run.topology.groups[1].waits.add(wait)
    return wait


def more_rollouts(run: Any) -> None:
    run.runner.num_finished += 1


def next_step(run: Any) -> None:
    run.step += 1


def next_phase(run: Any) -> None:
    run.devices.phase += "'"


def more_micro_batches(run: Any) -> None:
    run.topology.groups[2].progress[1] += 1


def next_commit(run: Any) -> None:
    """Begin to write a manifest, or end it."""
    if run.saver.waits:
        run.saver.waits.clear()
    else:
        run.saver.waits.add(Wait("checkpoint", 3, "commit", run.clock.now))


@pytest.mark.parametrize("move", [more_rollouts, next_step, next_phase, more_micro_batches, next_commit])
def test_what_counts_as_progress(run: Any, move: Callable[[Any], None]) -> None:
    """One mark in 50 of 60 allowed seconds is enough, however long all of it takes."""

    async def scenario() -> None:
        dog = Watchdog(run)
        await dog.look()
        for _ in range(5):
            await look(run, dog, 50)
            move(run)
        await look(run, dog, 50)

    asyncio.run(scenario())
    assert run.noted == []


def test_stall_is_told_with_who_is_waited_for_and_the_one_is_replaced(run: Any) -> None:
    watched(run, LIMIT_S + 5)
    assert run.noted[0].startswith(
        "STALL: no progress for 65 s in phase rollout of step 4: the controller waits for environment 0 in `step` "
        "since 65 s (1 calls), environment 1 in `step` since 55 s (1 calls). Stacks are in "
    )
    assert run.noted[1:] == ["replace environment 0"]
    (file,) = (run.folder / "stalls").iterdir()
    assert file.name == "step_000004_120000.txt"
    text = file.read_text()
    assert "environment 0: in sleep" in text
    assert "== controller, task" in text


def test_a_disk_that_takes_no_stacks_keeps_nobody_from_being_replaced(run: Any) -> None:
    (run.folder / "stalls").write_text("no folder")
    watched(run, LIMIT_S + 5)
    assert "could not be written in full" in run.noted[0]
    assert run.noted[-1] == "replace environment 0"


def test_second_stall_in_a_row_ends_the_run(run: Any) -> None:
    with pytest.raises(
        StalledError, match=r"must move within 60 s .* the controller waits for environment 0 in `step`"
    ):
        watched(run, 2 * LIMIT_S + 10)


def test_stall_of_which_nobody_is_the_cause_ends_the_run_at_once(run: Any) -> None:
    run.topology.groups[0].waits.clear()
    with pytest.raises(StalledError, match="nobody is waited for, the controller itself stands still"):
        watched(run, LIMIT_S + 5)
    assert run.noted[0].endswith("action: stop")


@pytest.mark.parametrize(("phase", "done"), [("rollout", "drop"), ("train", "replace environment 0")])
def test_refill_drops_the_oldest_group_where_rollouts_are_played(run: Any, phase: str, done: str) -> None:
    run.config.recovery.on_stall, run.devices.phase = OnStall.refill, phase
    watched(run, LIMIT_S + 5)
    assert run.noted[1:] == [done]


def test_the_only_engine_may_take_longer_to_start_than_the_limit(run: Any) -> None:
    """600 s for a limit of 60; the limit counts from the start's end, and what hung before is replaced then."""

    async def scenario() -> None:
        dog = Watchdog(run)
        await dog.look()
        wait = start(run)
        await look(run, dog, 600)
        run.topology.groups[1].waits.remove(wait)
        await look(run, dog, LIMIT_S)
        assert run.noted == []
        await look(run, dog, 5)
        assert run.noted[1:] == ["replace environment 0", "replace environment 1"]

    asyncio.run(scenario())


def test_a_start_is_no_progress_between_two_stalls(run: Any) -> None:
    """An engine that hangs again after its start would otherwise be started for ever."""

    async def scenario() -> None:
        dog = Watchdog(run)
        await dog.look()
        await look(run, dog, LIMIT_S + 5)
        wait = start(run)
        await look(run, dog, 20)
        run.topology.groups[1].waits.remove(wait)
        await look(run, dog, LIMIT_S + 5)

    with pytest.raises(StalledError):
        asyncio.run(scenario())


def test_who_answers_or_is_started_while_stacks_are_written_is_not_replaced(run: Any) -> None:
    def engine_starts() -> None:
        run.topology.groups[1].waits.clear()
        start(run)

    run.topology.groups[0].waits.clear()
    run.topology.groups[1].waits.add(Wait("engine", 0, "generate", run.clock.now))
    run.while_writing = engine_starts
    watched(run, LIMIT_S + 5)
    assert "engine 0 in `generate` since 65 s" in run.noted[0]
    assert run.noted[1:] == []


def test_a_save_that_waits_for_the_disk_is_named_and_nobody_is_blamed_for_it(run: Any) -> None:
    run.topology.groups[0].waits.clear()
    run.saver.waits.add(Wait("checkpoint", 3, "commit", run.clock.now))
    with pytest.raises(StalledError, match="the controller waits for checkpoint 3 in `commit` since 65 s"):
        watched(run, LIMIT_S + 5)


def test_a_save_in_the_background_is_named_beside_the_worker_that_is_replaced(run: Any) -> None:
    run.saver.waits.add(Wait("checkpoint", 3, "commit", run.clock.now - 9))
    watched(run, LIMIT_S + 5)
    assert "waits for checkpoint 3 in `commit` since 74 s (1 calls), environment 0 in" in run.noted[0]
    assert run.noted[1:] == ["replace environment 0"]


def test_limit_comes_from_the_slowest_step(run: Any) -> None:
    """1800 s before the first step; then 10 x 2 s is under the five minutes, and 10 x 60 s is not."""
    run.config.recovery.stall_timeout_s = 0.0
    limits = []
    for seconds in (0.0, 2.0, 60.0):
        run.account.slowest_step_s = seconds
        limits.append(Watchdog(run).limit_s)
    assert limits == [1800.0, 300.0, 600.0]


def test_a_worker_may_take_its_time_to_start_anew(run: Any) -> None:
    """Ray starts environment workers, and no call waits for that."""
    run.config.recovery.stall_timeout_s, run.account.slowest_step_s = 0.0, 2.0
    run.config.cluster.start_timeout_s = 900.0
    assert Watchdog(run).limit_s == 900.0


def test_a_save_may_take_as_long_as_its_call(run: Any) -> None:
    """Steps of 2 s allow 300 s of silence; a save of 1790 s, and then as long for its checksums, ends no run."""
    run.config.recovery.stall_timeout_s, run.account.slowest_step_s = 0.0, 2.0
    run.devices.phase = "save"
    policy = run.topology.groups[2].waits
    run.topology.groups[0].waits.clear()

    async def scenario() -> None:
        dog = Watchdog(run)
        await dog.look()
        policy.add(Wait("policy", 0, "save", run.clock.now))
        await look(run, dog, 1790)
        policy.clear()
        run.saver.waits.add(Wait("checkpoint", 4, "commit", run.clock.now))
        await look(run, dog, 1790)
        run.saver.waits.clear()
        run.devices.phase = "rollout"
        await look(run, dog, 300)
        assert run.noted == []
        with pytest.raises(StalledError, match="must move within 300 s"):
            await look(run, dog, 10)

    asyncio.run(scenario())


def test_a_limit_of_the_config_holds_in_a_save_too(run: Any) -> None:
    run.devices.phase, run.account.slowest_step_s = "save", 2.0
    assert Watchdog(run).limit_s == LIMIT_S


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
