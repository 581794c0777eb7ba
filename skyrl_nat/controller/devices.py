"""Who holds the devices: engines or the trainer, and how weights pass from one to the other."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from skyrl_nat.cluster.topology import Topology
from skyrl_nat.config.cluster import Device, Placement, Transport
from skyrl_nat.config.model import Offload
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.accounting import StepAccountant
from skyrl_nat.errors import DeadlineError, EngineError, WeightSyncError, WorkerError
from skyrl_nat.weight_sync.base import WeightTransport, WorkerCalls
from skyrl_nat.weight_sync.direct import DirectTransport
from skyrl_nat.weight_sync.host import HostTransport


@dataclass(slots=True)
class Moved:
    """What one step moved between devices and host memory."""

    offload_s: float = 0.0
    onload_s: float = 0.0
    offload_bytes: float = 0.0
    """Of all ranks."""

    def add_offload(self, ranks: Sequence[Mapping[str, float]]) -> None:
        """Count a move to host memory; ranks move at once, and the slowest is waited for."""
        self.offload_s += max(rank["seconds"] for rank in ranks)
        self.offload_bytes += sum(rank["bytes"] for rank in ranks)

    def add_onload(self, ranks: Sequence[Mapping[str, float]]) -> None:
        """Count a move back."""
        self.onload_s += max(rank["seconds"] for rank in ranks)

    def metrics(self) -> dict[str, float]:
        """Return the step's metrics."""
        return {
            "time/offload_s": self.offload_s,
            "time/onload_s": self.onload_s,
            "offload/gib": self.offload_bytes / 2**30,
        }


class Devices:
    """The devices of a run, and their hand-over."""

    def __init__(
        self,
        config: RunConfig,
        topology: Topology,
        account: StepAccountant,
        *,
        leave_out_dead: Callable[[Sequence[int], BaseException], Awaitable[bool]],
    ) -> None:
        """Connect nothing yet.

        Args:
            config: The run.
            topology: All workers.
            account: Notes the time of every phase.
            leave_out_dead: Called when a call to engines failed; says whether some were left out, so that a second
                call may succeed.
        """
        self._config = config
        self._policy, self._reference, self._engines = topology.policy, topology.reference, topology.engines
        self._account = account
        self._leave_out_dead = leave_out_dead
        self._transport = _make_transport(config, topology)
        self._is_connected = False
        self._are_asleep = False
        """Whether colocated engines have given their memory back."""
        self._turn = asyncio.Lock()
        """Held by whoever uses the policy: a step, or a push."""
        self._moved = Moved()
        self.phase = "start"
        """What is being done, for messages: rollout, train, push, save or evaluate."""
        self.pushed_version = 0
        """Policy version that the engines serve."""
        self.is_in_step = False
        """Whether the policy may be ahead of the run's step, or what belongs to that step is not yet written."""

    @contextlib.contextmanager
    def in_phase(self, name: str) -> Iterator[None]:
        """Name what is being done."""
        before, self.phase = self.phase, name
        try:
            yield
        finally:
            self.phase = before

    @contextlib.asynccontextmanager
    async def rollout_phase(self, name: str) -> AsyncIterator[None]:
        """Hold the devices for engines: they are theirs already, only the time is noted."""
        with self.in_phase(name), self._account.phase("rollout"):
            yield

    @contextlib.asynccontextmanager
    async def training_phase(self) -> AsyncIterator[None]:
        """Hold the devices for training: engines that sleep give their GPU memory back meanwhile."""
        async with self._turn:
            with self.in_phase("train"), self._account.phase("train"):
                if self._takes_turns and not self._are_asleep:
                    await self._call_engines("pause")
                    await self._call_engines("sleep")
                    self._are_asleep = True
                self._moved = Moved()
                for workers in self._offloading():
                    self._moved.add_onload(await workers.call_all("onload"))
                self.is_in_step = True
                yield
                await self._offload(Offload.optimizer)
                if self._takes_turns:
                    await self._policy.call_all("release_memory")

    async def push(self, version: int) -> None:
        """Give the engines the policy's weights as `version`; they serve nothing meanwhile."""
        async with self._turn:
            with self.in_phase("push"), self._account.phase("push"):
                await self._push_until_all_live(version)

    async def push_to_new(self, ranks: Sequence[int], version: int) -> None:
        """Take engines in that were away, and give all the current weights."""
        async with self._turn:
            for rank in ranks:
                self._engines.take_in(rank)
            self._is_connected = False
            await self._push_until_all_live(version)

    def forget_policy(self) -> None:
        """Say that the policy's ranks are new: no channel leads to them, and they have trained nothing."""
        self._is_connected = False
        self.is_in_step = False

    def moved(self) -> Mapping[str, float]:
        """Return the metrics of what the last step moved to host memory and back; nothing where that is off."""
        return self._moved.metrics() if self._offloading() else {}

    async def _push_until_all_live(self, version: int) -> None:
        """Push until no engine dies of it; those that did are brought up to date when they are replaced."""
        while self._engines.ranks:
            engines = self._engines.snapshot()
            try:
                await self._push_to(engines, version)
                self.pushed_version = version
                return
            except (WeightSyncError, WorkerError, EngineError, DeadlineError) as error:
                self._is_connected = False
                if not await self._leave_out_dead(engines.ranks, error):
                    raise

    async def _push_to(self, engines: WorkerCalls, version: int) -> None:
        if self._are_asleep:
            await engines.call_all("wake", ["weights"])
        if not self._is_connected:
            await self._transport.connect(self._policy, engines)
            self._is_connected = True
        await engines.call_all("pause")
        self._account.num_pushed_bytes = await self._transport.push(self._policy, engines, version)
        await self._offload(self._config.model.offload)
        if self._are_asleep:
            await engines.call_all("wake", ["kv_cache"])
            self._are_asleep = False
        if self._config.weight_sync.verify_checksums:
            await self._verify_checksums(engines)
        await engines.call_all("resume")

    async def _call_engines(self, method: str) -> None:
        """Call all engines that are there; those that die of it are left out."""
        while self._engines.ranks:
            engines = self._engines.snapshot()
            try:
                await engines.call_all(method)
                return
            except (WorkerError, DeadlineError) as error:
                if not await self._leave_out_dead(engines.ranks, error):
                    raise

    async def _verify_checksums(self, engines: WorkerCalls) -> None:
        expected = (await self._policy.call_all("checksums", self._config.engine.dtype))[0]
        for rank, found in zip(engines.ranks, await engines.call_all("checksums"), strict=True):
            wrong = sorted(name for name in expected if found.get(name) != expected[name])
            if wrong:
                raise WeightSyncError(
                    f"Engine {rank} must hold the policy's weights bit for bit after a push, {len(wrong)} tensors "
                    f"differ: {', '.join(wrong[:5])}. Restart the run and report this"
                )

    @property
    def _takes_turns(self) -> bool:
        """Whether engines and policy hold the memory of the same GPUs one after the other."""
        cluster = self._config.cluster
        is_shared = cluster.device is Device.cuda and cluster.placement is Placement.colocated
        return is_shared and self._config.engine.sleep

    async def _offload(self, what: Offload) -> None:
        """Move what may wait in host memory there, if the config asks for it."""
        for workers in self._offloading():
            self._moved.add_offload(await workers.call_all("offload", what))

    def _offloading(self) -> list[WorkerCalls]:
        """Return the workers that give up memory: none, or the policy and a reference with a model of its own."""
        if self._config.model.offload is Offload.none:
            return []
        if self._reference is None or self._config.model.lora.rank:
            return [self._policy]
        return [self._policy, self._reference]


def _make_transport(config: RunConfig, topology: Topology) -> WeightTransport:
    sync = config.weight_sync
    if sync.transport is Transport.host:
        return HostTransport(sync.timeout_s, dtype=config.engine.dtype)
    return DirectTransport(
        sync.timeout_s,
        kind=sync.transport,
        dtype=config.engine.dtype,
        device=str(config.cluster.device),
        senders=topology.plan.neighbours(),
        bucket_mib=sync.bucket_mib,
    )
