"""The order in which a run asks things of its engines, judged by the engines' own life cycle."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LocalCalls
from groups import make_group

from skyrl_nat.checkpoint.manager import CheckpointManager
from skyrl_nat.config.cluster import ClusterConfig, Device, Placement, WeightSyncConfig
from skyrl_nat.config.model import ModelConfig, Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.run import Moved, Run
from skyrl_nat.controller.update import Coefficients
from skyrl_nat.engines.lifecycle import Lifecycle, Memory
from skyrl_nat.rollouts.producer import ProducerState
from skyrl_nat.types import RolloutGroup


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


def run_of(engine: SleepyEngine, placement: Placement, offload: Offload = Offload.none) -> Run:
    """Return a run that has what a step asks of engines, and nothing else."""
    run = object.__new__(Run)
    cluster = ClusterConfig(device=Device.cuda, num_gpus_per_node=2, placement=placement)
    config = RunConfig.__new__(RunConfig)
    config.cluster = cluster
    config.weight_sync = WeightSyncConfig()
    config.model = ModelConfig(offload=offload)
    run.config, run.reference, run._moved = config, None, Moved()
    run.engines, run.policy = LocalCalls([engine]), LocalCalls([Freeing(engine.calls)])  # type: ignore[assignment]
    run.account = NoAccount()  # type: ignore[assignment]
    run._transport, run._is_connected, run.step = Transport(), False, 1  # type: ignore[assignment]
    return run


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (
            Placement.colocated,
            ["pause", "sleep", "release", "wake weights", "pause", "update", "wake kv_cache", "resume"],
        ),
        (Placement.disaggregated, ["pause", "update", "resume"]),
    ],
)
def test_a_step_gives_memory_back_only_where_it_is_shared(placement: Placement, expected: list[str]) -> None:
    """WS-04, EN-08: pause, push, wake the cache, resume; an engine refuses any other order."""
    engine = SleepyEngine()

    async def step() -> None:
        run = run_of(engine, placement)
        async with run.training_phase():
            assert engine.life.memory is (Memory.NONE if placement is Placement.colocated else Memory.ALL)
        await run.push_weights()
        engine.life.require_generate()

    asyncio.run(step())
    assert engine.calls == expected


@pytest.mark.parametrize("offload", [Offload.optimizer, Offload.all])
def test_offloaded_state_leaves_before_engines_wake_and_returns_after_they_sleep(offload: Offload) -> None:
    """Weights leave the device only after the push, and before the KV cache takes its place."""
    engine = SleepyEngine()
    run = run_of(engine, Placement.colocated, offload)

    async def step() -> None:
        async with run.training_phase():
            engine.calls.append("train")
        await run.push_weights()

    asyncio.run(step())
    before = ["pause", "sleep", "onload", "train", "offload optimizer", "release", "wake weights"]
    assert engine.calls == [*before, "pause", "update", f"offload {offload}", "wake kv_cache", "resume"]
    assert run._moved.metrics() == {"time/offload_s": 1.0, "time/onload_s": 0.25, "offload/gib": 1.0}


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

    class Producer:
        def __init__(self, position: int) -> None:
            self.position = position
            self.restored: list[RolloutGroup] = []

        def state(self) -> ProducerState:
            return ProducerState(position=self.position, finished=[ahead], unfinished=[10])

        def restore(self, finished: list[RolloutGroup]) -> None:
            self.restored = finished

    monkeypatch.setattr(Run, "_make_producer", lambda run: Producer(run.stream.position))

    def bare_run() -> Run:
        run = object.__new__(Run)
        run.config = SimpleNamespace(seed=1)  # type: ignore[assignment]
        run.checkpoints = CheckpointManager(tmp_path, keep_last=0)
        run.policy = LocalCalls([Saver()])  # type: ignore[assignment]
        run.console = SimpleNamespace(status=lambda text: None)  # type: ignore[assignment]
        run.account = NoAccount()  # type: ignore[assignment]
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
    assert after.producer.position == 9  # type: ignore[attr-defined]
