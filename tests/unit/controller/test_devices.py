"""The order in which a run asks things of its engines, judged by the engines' own life cycle."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LocalCalls

from skyrl_nat.config.cluster import ClusterConfig, Device, Placement, WeightSyncConfig
from skyrl_nat.config.model import ModelConfig, Offload
from skyrl_nat.config.rollout import EngineConfig
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.devices import Devices
from skyrl_nat.engines.lifecycle import Lifecycle, Memory
from skyrl_nat.errors import WeightSyncError


class SleepyEngine:
    """Gives its memory back like vLLM on a GPU; refuses whatever comes in a wrong order."""

    def __init__(self) -> None:
        self.life = Lifecycle()
        self.life.is_started = True
        self.calls: list[str] = []

    async def pause(self) -> None:
        self.life.require_alive("pause")
        self.life.is_paused = True
        self.calls.append("pause")

    async def resume(self) -> None:
        self.life.require_resume()
        self.life.is_paused = False
        self.calls.append("resume")

    async def sleep(self) -> None:
        self.life.require_sleep()
        self.life.memory, self.life.fault = Memory.NONE, "weights were given back"
        self.calls.append("sleep")

    async def wake(self, tags: list[str]) -> None:
        self.life.require_wake(tags)
        self.life.memory = Memory.ALL if "kv_cache" in tags else Memory.WEIGHTS
        self.calls.append(f"wake {tags[0]}")

    async def update_weights(self) -> None:
        with self.life.update():
            self.calls.append("update")


class Transport:
    """Pushes nothing, in the right place."""

    async def connect(self, policy: Any, engines: LocalCalls) -> None:
        pass

    async def push(self, policy: Any, engines: LocalCalls, version: int) -> None:
        await engines.call_all("update_weights")


class Freeing:
    """A policy rank that notes when it gives memory back, among the engine's calls."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def release_memory(self) -> None:
        self.calls.append("release")

    def offload(self, what: Offload) -> dict[str, float]:
        self.calls.append(f"offload {what}")
        return {"seconds": 0.5, "bytes": 2.0**29}

    def onload(self) -> dict[str, float]:
        self.calls.append("onload")
        return {"seconds": 0.25, "bytes": 2.0**30}


class NoAccount:
    """Notes nothing."""

    def phase(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def interrupt(self) -> None:
        pass


def devices_of(
    engine: SleepyEngine, placement: Placement, offload: Offload = Offload.none, *, sleep: bool = True
) -> Devices:
    """Return the devices of a run with one engine and one policy rank."""
    config = RunConfig.__new__(RunConfig)
    config.cluster = ClusterConfig(device=Device.cuda, num_gpus_per_node=2, placement=placement)
    config.weight_sync = WeightSyncConfig()
    config.model, config.engine = ModelConfig(offload=offload), EngineConfig(sleep=sleep)
    topology: Any = SimpleNamespace(
        engines=LocalCalls([engine]), policy=LocalCalls([Freeing(engine.calls)]), reference=None
    )
    account: Any = NoAccount()
    devices = Devices(config, topology, account, leave_out_dead=nobody_is_dead)
    devices._transport = Transport()  # type: ignore[assignment]
    return devices


def test_push_that_lost_an_engine_is_made_again_over_a_new_channel() -> None:
    """The old channel counts an end that is not there any more."""
    events: list[str] = []

    class Breaking(Transport):
        async def connect(self, policy: Any, engines: LocalCalls) -> None:
            events.append("connect")

        async def push(self, policy: Any, engines: LocalCalls, version: int) -> None:
            events.append("push")
            if events.count("push") == 2:
                raise WeightSyncError("an engine died")
            await super().push(policy, engines, version)

    async def was_left_out(asked: Sequence[int], cause: BaseException) -> bool:
        events.append(f"left out of {asked}")
        return True

    devices = devices_of(SleepyEngine(), Placement.disaggregated)
    devices._transport, devices._leave_out_dead = Breaking(), was_left_out  # type: ignore[assignment]

    async def scenario() -> None:
        await devices.push(1)
        await devices.push(2)

    asyncio.run(scenario())
    assert events == ["connect", "push", "push", "left out of [0]", "connect", "push"]


async def nobody_is_dead(asked: Sequence[int], cause: BaseException) -> bool:
    return False


IN_TURN = ["pause", "sleep", "release", "wake weights", "pause", "update", "wake kv_cache", "resume"]


@pytest.mark.parametrize(
    ("placement", "sleep", "expected"),
    [
        (Placement.colocated, True, IN_TURN),
        (Placement.colocated, False, ["pause", "update", "resume"]),
        (Placement.disaggregated, True, ["pause", "update", "resume"]),
    ],
)
def test_a_step_gives_memory_back_only_where_it_is_shared(
    placement: Placement, sleep: bool, expected: list[str]
) -> None:
    """WS-04, EN-08: pause, push, wake the cache, resume; an engine refuses any other order."""
    engine = SleepyEngine()

    async def step() -> None:
        devices = devices_of(engine, placement, sleep=sleep)
        async with devices.training_phase():
            assert engine.life.memory is (Memory.NONE if expected is IN_TURN else Memory.ALL)
        await devices.push(1)
        engine.life.require_generate()

    asyncio.run(step())
    assert engine.calls == expected


@pytest.mark.parametrize("offload", [Offload.optimizer, Offload.all])
def test_offloaded_state_leaves_before_engines_wake_and_returns_after_they_sleep(offload: Offload) -> None:
    """Weights leave the device only after the push, and before the KV cache takes its place."""
    engine = SleepyEngine()
    devices = devices_of(engine, Placement.colocated, offload)

    async def step() -> None:
        async with devices.training_phase():
            engine.calls.append("train")
        await devices.push(1)

    asyncio.run(step())
    before = ["pause", "sleep", "onload", "train", "offload optimizer", "release", "wake weights"]
    assert engine.calls == [*before, "pause", "update", f"offload {offload}", "wake kv_cache", "resume"]
    assert devices.moved() == {"time/offload_s": 1.0, "time/onload_s": 0.25, "offload/gib": 1.0}
