"""Who is replaced, when, how often, and that nobody serves before he has the weights."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.cluster.nodes import Host
from skyrl_nat.config.recovery import RecoveryConfig
from skyrl_nat.controller.keeper import Keeper
from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.errors import EngineError, LostNodeError, LostWorkerError, SilentWorkerError


class Group:
    """A group of workers of which some are ill."""

    def __init__(self, role: str, size: int) -> None:
        self.role = role
        self.ranks = list(range(size))
        self.identities = {rank: {"pid": rank} for rank in range(size)}
        self.ill: set[int] = set()
        self.ended: list[int] = []
        self.failure: type[Exception] = SilentWorkerError
        self.starts_slowly = False

    async def probe(self, timeout_s: float, method: str | None = None) -> dict[int, BaseException]:
        return {rank: self.failure(f"{self.role} {rank} is silent") for rank in self.ranks if rank in self.ill}

    async def call_one(self, rank: int, method: str, timeout_s: float) -> None:
        if rank in self.ill:
            raise LostWorkerError(f"{self.role} {rank} died")

    def end(self, rank: int) -> None:
        self.ended.append(rank)
        if not self.starts_slowly:
            self.ill.discard(rank)

    def leave_out(self, rank: int) -> None:
        self.ranks = [other for other in self.ranks if other != rank]


class World:
    """Two engines, two environments and a policy rank, and a keeper that looks after them."""

    def __init__(self, *, max_engine_restarts: int = 3) -> None:
        self.groups = {role: Group(role, size) for role, size in (("engine", 2), ("environment", 2), ("policy", 1))}
        self.engines = self.groups["engine"]
        self.events: list[str] = []
        self.start_fails = False
        self.pool = EnginePool([SimpleNamespace(), SimpleNamespace()], request_timeout_s=5)  # type: ignore[list-item]
        self.hosts: list[Host | None] = [Host("id-a", "a"), Host("id-b", "b")]
        topology: Any = SimpleNamespace(
            groups=list(self.groups.values()),
            engines=self.engines,
            restart_engine=self.restart_engine,
            nodes=SimpleNamespace(hosts=self.look),
            members=lambda bundle: [(self.engines, bundle), (self.groups["environment"], bundle)],
            move=self.move,
            lost_nodes=[],
            lost_engines=[],
        )
        self.topology = topology
        config = RecoveryConfig(probe_timeout_s=0.01, max_engine_restarts=max_engine_restarts)
        self.keeper = Keeper(
            topology, self.pool, config, push=self.push, warn=self.events.append, on_change=lambda: None
        )

    async def look(self) -> list[Host | None]:
        return list(self.hosts)

    async def move(self, group: Group, rank: int, bundle: int) -> None:
        self.events.append(f"move {group.role} {rank} to {bundle}")

    async def restart_engine(self, rank: int) -> None:
        self.events.append(f"restart {rank}")
        if self.hosts[rank] is None:
            raise LostNodeError("no room")
        if self.start_fails:
            raise EngineError("no memory")
        self.engines.ill.discard(rank)

    async def push(self, ranks: Sequence[int]) -> None:
        assert not set(ranks) & set(self.pool.healthy), "nobody may serve before the push"
        self.events.append(f"push to {list(ranks)}")
        self.engines.ranks = sorted({*self.engines.ranks, *ranks})

    def keep(self, seconds: float) -> None:
        """Look after everything for a while; what the keeper raises is raised."""

        async def scenario() -> None:
            keeping = asyncio.ensure_future(self.keeper.keep())
            done, _ = await asyncio.wait([keeping], timeout=seconds)
            if done:
                keeping.result()
            keeping.cancel()

        asyncio.run(scenario())


def test_dead_engine_is_started_anew_and_serves_only_after_a_push() -> None:
    world = World()
    world.engines.ill = {1}
    world.pool.mark_unhealthy(1, "it died")
    world.keep(0.3)
    assert [event for event in world.events if "anew" not in event] == [
        "restart 1",
        "push to [1]",
        "engine 1 serves again, with the current weights",
    ]
    assert (world.pool.healthy, world.engines.ranks) == ([0, 1], [0, 1])


def test_engine_that_failed_one_request_but_is_well_only_gets_the_weights() -> None:
    world = World()
    world.pool.mark_unhealthy(0, "EngineError: a bad request")
    world.keep(0.3)
    assert world.events[0] == "push to [0]"
    assert world.pool.healthy == [0, 1]


def test_engine_that_let_a_request_wait_for_ever_is_started_anew_though_it_answers() -> None:
    world = World()
    world.pool.silent.add(0)
    world.pool.mark_unhealthy(0, "no answer")
    world.keep(0.3)
    assert "restart 0" in world.events


def test_run_goes_on_without_an_engine_that_cannot_be_started_and_ends_with_the_last() -> None:
    world = World(max_engine_restarts=1)
    world.start_fails, world.engines.ill = True, {0}
    world.pool.mark_unhealthy(0, "it died")
    world.keep(0.3)
    assert world.events.count("restart 0") == 1
    assert any(event.startswith("the run goes on without engine 0") for event in world.events)
    assert world.pool.healthy == [1]
    world.engines.ill = {0, 1}
    world.pool.mark_unhealthy(1, "it died too")
    with pytest.raises(
        EngineError, match=r"At least one engine must stay alive, but engine 1, which was started anew 1 times"
    ):
        world.keep(3)


def test_lost_node_is_said_in_one_line_its_workers_move_and_its_engine_is_given_up_once() -> None:
    world = World()

    async def lose_node() -> None:
        keeping = asyncio.ensure_future(world.keeper.keep())
        await asyncio.sleep(0.05)
        world.hosts[1] = None
        world.engines.ill = {1}
        await asyncio.wait([keeping], timeout=0.4)
        keeping.cancel()

    asyncio.run(lose_node())
    assert [event for event in world.events if "anew" not in event] == [
        "node b is lost, with engine 1, environment 1: the run goes on with what is left",
        "move environment 1 to 0",
        "restart 1",
        "the run goes on without engine 1, which has no node: no room",
    ]
    assert (world.topology.lost_nodes, world.topology.lost_engines) == (["b"], [1])
    assert (world.pool.healthy, world.engines.ranks) == ([0], [0])


def test_trained_step_forgives_earlier_restarts() -> None:
    world = World(max_engine_restarts=1)
    for _ in range(2):
        world.engines.ill = {1}
        world.pool.mark_unhealthy(1, "it died")
        world.keep(0.2)
        world.keeper.on_step()
    assert world.events.count("restart 1") == 2
    assert world.pool.healthy == [0, 1]


def test_worker_that_is_late_once_is_left_alone_and_one_that_misses_two_probes_is_replaced() -> None:
    world = World()
    environments = world.groups["environment"]
    asyncio.run(late(world, environments, 1))
    assert environments.ended == []
    asyncio.run(late(world, environments, 2))
    assert environments.ended == [1]


async def late(world: World, group: Group, times: int) -> None:
    group.ill = {1}
    for _ in range(times):
        await world.keeper._listen_to(group)  # type: ignore[arg-type]
    group.ill = set()
    await world.keeper._listen_to(group)  # type: ignore[arg-type]


@pytest.mark.parametrize("failure", [SilentWorkerError, LostWorkerError])
def test_worker_that_is_started_anew_is_not_ended_again_while_it_starts(failure: type[Exception]) -> None:
    """A start may take longer than two probes; each end would begin it from the start and lose what waits for it."""
    world = World()
    environments = world.groups["environment"]
    environments.failure, environments.starts_slowly, environments.ill = failure, True, {1}

    async def listen(times: int) -> None:
        for _ in range(times):
            await world.keeper._listen_to(environments)  # type: ignore[arg-type]

    asyncio.run(listen(9))
    expected = [] if failure is LostWorkerError else [1]
    assert environments.ended == expected, "one that died is started by Ray"
    world.keeper._start_timeout_s = 0.0
    world.keeper._starting.clear()
    asyncio.run(listen(1))
    assert environments.ended == [*expected, 1], "one that does not come up in its time is ended again"


def test_silent_policy_rank_is_raised_since_it_cannot_be_replaced_alone() -> None:
    world = World()
    world.groups["policy"].ill = {0}
    with pytest.raises(LostWorkerError, match="policy 0 must answer, it does not: policy 0 is silent"):
        world.keep(3)


def test_failed_call_is_worth_repeating_only_if_somebody_was_left_out() -> None:
    world = World()

    async def scenario() -> tuple[bool, bool, bool]:
        cause = LostWorkerError("pause")
        nobody_keeps = await world.keeper.leave_out_dead([0, 1], cause)
        world.pool.is_kept = True
        all_well = await world.keeper.leave_out_dead([0, 1], cause)
        world.engines.ill = {1}
        return nobody_keeps, all_well, await world.keeper.leave_out_dead([0, 1], cause)

    assert asyncio.run(scenario()) == (False, False, True)
    assert (world.engines.ranks, list(world.pool.faults)) == ([0], [1])
