"""Workers that died or stand still: found, replaced and, if they are engines, brought up to the current weights."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.cluster.topology import Topology
from skyrl_nat.config.recovery import RecoveryConfig
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.errors import DeadlineError, EngineError, LostNodeError, LostWorkerError, WorkerError

MISSED_PROBES = 2
"""In a row, after which a worker counts as hung: one may be late on a busy machine."""
LONGEST_PAUSE_S = 60.0
STARTED_BY_RAY = ("environment", "reward")
"""Roles whose workers come back by themselves after their death."""


class Keeper:
    """Looks after the workers of a run while `keep` runs.

    An environment or reward worker is killed and started anew by Ray; its rollouts are retried by whoever plays them.
    If its node is lost, it moves to another one.
    An engine is started anew, joins the weight channel and serves only after a push; its requests have failed and are
    retried elsewhere. A policy rank cannot be replaced alone: that is raised.
    """

    def __init__(
        self,
        topology: Topology,
        pool: EnginePool,
        config: RecoveryConfig,
        *,
        push: Callable[[Sequence[int]], Awaitable[None]],
        warn: Callable[[str], None],
        on_change: Callable[[], None],
        start_timeout_s: float = 300.0,
    ) -> None:
        """Start nothing.

        Args:
            topology: All workers.
            pool: Who gets requests.
            config: Bounds.
            push: Takes engines in again and gives all the current weights, when nobody else is pushing or training.
            warn: Tells the user.
            on_change: Called when processes were replaced.
            start_timeout_s: Time that a worker which is started anew may take before it counts as hung again.
        """
        self._topology = topology
        self._engines = topology.engines
        self._pool = pool
        self._config = config
        self._push = push
        self._warn = warn
        self._on_change = on_change
        self._noted: list[dict[int, Any]] = []
        self._num_restarts: Counter[int] = Counter()
        self._missed: Counter[tuple[str, int]] = Counter()
        self._start_timeout_s = start_timeout_s
        self._starting: dict[tuple[str, int], float] = {}
        """Environment and reward workers that Ray starts anew: until when they may be silent."""
        self._lost: set[int] = set()
        """Engines that are given up."""
        self.num_engine_restarts = 0
        """In all."""

    @property
    def missing(self) -> set[tuple[str, int]]:
        """Workers, by role and rank, that gave no sign of life when they were last asked for one."""
        return {place for place, num_missed in list(self._missed.items()) if num_missed}

    async def keep(self) -> None:
        """Look after everything until cancelled.

        Raises:
            EngineError: The last engine is given up.
            LostWorkerError: A rank of policy or reference died or hangs.
        """
        self._pool.is_kept = True
        tasks = [asyncio.ensure_future(work) for work in (self._mend_engines(), self._listen(), self._watch_nodes())]
        try:
            await asyncio.gather(*tasks)
        finally:
            self._pool.is_kept = False
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def on_step(self) -> None:
        """Say that a step was trained: what was restarted before it does not count any more."""
        self._num_restarts.clear()

    async def leave_out_dead(self, asked: Sequence[int], cause: BaseException) -> bool:
        """Ask all engines after a call to them failed; those that are not well are called no more until replaced.

        Args:
            asked: Ranks of the engines that were called.
            cause: Of the failed call.

        Returns:
            Whether any of them is left out: only then is it worth calling the others again.
        """
        if not self._pool.is_kept:
            return False
        ill = await self._engines.probe(self._config.probe_timeout_s, "check_health")
        for rank, reason in ill.items():
            self._engines.leave_out(rank)
            self._pool.mark_unhealthy(rank, f"{reason} (found after: {cause})")
        return not set(asked) <= set(self._engines.ranks)

    async def replace(self, group: ActorGroup, rank: int, cause: str) -> None:
        """Replace a worker that hangs.

        Raises:
            LostWorkerError: It is a rank of policy or reference.
        """
        if group.role == "engine":
            self._engines.leave_out(rank)
            self._pool.mark_unhealthy(rank, cause)
            self._engines.end(rank)
        elif group.role in ("policy", "reference"):
            raise LostWorkerError(f"{group.role} {rank} must answer, it does not: {cause}. Go on with resume=latest")
        else:
            self._warn(f"{group.role} {rank} is started anew: {cause}")
            self._starting.pop((group.role, rank), None)
            self._note_start(group, rank)
            group.end(rank)

    async def _listen(self) -> None:
        """Ask every worker for a sign of life, for ever."""
        limit = self._config.probe_timeout_s
        groups = self._topology.groups
        while True:
            await asyncio.gather(asyncio.sleep(limit), *(self._listen_to(group) for group in groups))
            found = [dict(group.identities) for group in groups]
            if found != self._noted:
                self._noted = found
                self._on_change()

    async def _listen_to(self, group: ActorGroup) -> None:
        ill = await group.probe(self._config.probe_timeout_s)
        for rank in group.identities:
            self._missed[group.role, rank] = self._missed[group.role, rank] + 1 if rank in ill else 0
            if rank not in ill:
                self._starting.pop((group.role, rank), None)
        for rank, cause in ill.items():
            if isinstance(cause, LostWorkerError):
                self._note_start(group, rank)
            is_hung = self._missed[group.role, rank] >= MISSED_PROBES and not self._is_starting(group, rank)
            if is_hung and rank in group.ranks:
                self._missed[group.role, rank] = 0
                await self.replace(group, rank, str(cause))

    def _note_start(self, group: ActorGroup, rank: int) -> None:
        """Give a worker that Ray starts anew time to do so: whoever ends it meanwhile would begin from the start."""
        if group.role in STARTED_BY_RAY:
            self._starting.setdefault((group.role, rank), time.monotonic() + self._start_timeout_s)

    def _is_starting(self, group: ActorGroup, rank: int) -> bool:
        return time.monotonic() < self._starting.get((group.role, rank), 0.0)

    async def _watch_nodes(self) -> None:
        """Look for nodes that are lost, for ever."""
        nodes = self._topology.nodes
        known = await nodes.hosts()
        while True:
            await asyncio.sleep(self._config.probe_timeout_s)
            hosts = await nodes.hosts()
            # Another node may have taken its place by now, or may yet do so.
            lost = [(bundle, host) for bundle, host in enumerate(known) if host and hosts[bundle] != host]
            known = hosts
            for bundle, host in lost:
                there = [bundle] if hosts[bundle] else [other for other, found in enumerate(hosts) if found]
                await self._leave_node(bundle, host.name, there)

    async def _leave_node(self, bundle: int, name: str, others: Sequence[int]) -> None:
        """Give up or move all that was on a lost node; `others` are the bundles that have one."""
        topology = self._topology
        members = topology.members(bundle)
        who = ", ".join(f"{group.role} {rank}" for group, rank in members)
        self._warn(f"node {name} is lost, with {who}: the run goes on with what is left")
        topology.lost_nodes.append(name)
        moves = []
        for number, (group, rank) in enumerate(members):
            if group.role == "engine":
                self._engines.leave_out(rank)
                self._pool.mark_unhealthy(rank, f"its node {name} is lost")
            elif others and group.role not in ("policy", "reference"):
                moves.append(self._move(group, rank, others[number % len(others)]))
        await asyncio.gather(*moves)
        self._on_change()

    async def _move(self, group: ActorGroup, rank: int, bundle: int) -> None:
        try:
            await self._topology.move(group, rank, bundle)
        except (WorkerError, DeadlineError) as error:
            self._warn(f"the run goes on without {group.role} {rank}, which did not start elsewhere: {error}")

    async def _mend_engines(self) -> None:
        while True:
            faults = {rank: why for rank, why in (await self._pool.wait_for_fault()).items() if rank not in self._lost}
            if not faults:
                # Those that are given up stay faulty: nothing to do until another one fails.
                await asyncio.sleep(1.0)
                continue
            ready = await asyncio.gather(*(self._mend(rank, why) for rank, why in faults.items()))
            ranks = [rank for rank, is_ready in zip(faults, ready, strict=True) if is_ready]
            if ranks:
                await self._push(ranks)
                for rank in set(ranks) & set(self._engines.ranks):
                    self._pool.mark_healthy(rank)
                    self._warn(f"engine {rank} serves again, with the current weights")

    async def _mend(self, rank: int, why: str) -> bool:
        """Return whether an engine is well, or well again, and only wants weights."""
        self._engines.leave_out(rank)
        if rank not in self._pool.silent and await self._is_well(rank):
            return True
        if self._num_restarts[rank] >= self._config.max_engine_restarts:
            limit = self._config.max_engine_restarts
            self._give_up(rank, f"was started anew {limit} times without a trained step, then: {why}")
            return False
        number = self._num_restarts[rank]
        self._num_restarts[rank] += 1
        self.num_engine_restarts += 1
        if number:
            await asyncio.sleep(min(2.0**number, LONGEST_PAUSE_S))
        self._warn(f"engine {rank} is started anew: {why}")
        try:
            await self._topology.restart_engine(rank)
        except LostNodeError as error:
            self._give_up(rank, f"has no node: {error}")
            return False
        except (WorkerError, EngineError, DeadlineError) as error:
            self._warn(f"engine {rank} did not start: {error}")
            return False
        return True

    async def _is_well(self, rank: int) -> bool:
        try:
            await self._engines.call_one(rank, "check_health", timeout_s=self._config.probe_timeout_s)
        except (WorkerError, EngineError, DeadlineError):
            return False
        return True

    def _give_up(self, rank: int, why: str) -> None:
        self._lost.add(rank)
        self._topology.lost_engines = sorted(self._lost)
        self._on_change()
        text = f"engine {rank}, which {why}"
        if len(self._lost) == len(self._engines.identities):
            raise EngineError(f"At least one engine must stay alive, but {text}. Mend the cause, then resume=latest")
        self._warn(f"the run goes on without {text}")
