"""Calls to real actors that travel together: same answers and errors as single calls, for less of the caller's time."""

import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import ray
import small_run

from skyrl_nat.cluster.actors import AsyncHost, ThreadedHost
from skyrl_nat.cluster.folders import CACHES
from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.cluster.session import ray_session
from skyrl_nat.config.load import load_config
from skyrl_nat.errors import DeadlineError, LostWorkerError, SilentWorkerError, WorkerError

pytestmark = pytest.mark.slow
NUM_CALLS = 1024


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what runs a scenario with two actors that Ray starts anew when they die."""
    config = load_config(small_run.arguments(tmp_path_factory.mktemp("calls")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", small_run.environment()["PYTHONPATH"])
        for variable in CACHES:
            # torch sets its own in a process that compiles.
            patch.delenv(variable, raising=False)
        patch.setenv("TRITON_CACHE_DIR", "/mine")
        with ray_session(config.cluster):
            yield _play


def _play(scenario: Callable[[ActorGroup], Awaitable[Any]]) -> Any:
    async def work() -> Any:
        host = AsyncHost.options(num_cpus=0, max_restarts=1)
        group = ActorGroup("reward", lambda rank: host.remote("echo_worker:EchoWorker", {}), [0, 1], timeout_s=60)
        await group.wait_ready(120)
        return await scenario(group)

    return asyncio.run(work())


def test_many_calls_at_once_cost_half_of_single_ones_at_most(play: Any) -> None:
    async def seconds(group: ActorGroup, call: Callable[..., Awaitable[Any]]) -> float:
        started = time.process_time()
        found = await asyncio.gather(*(call(n % 2, "echo", [n] * 100) for n in range(NUM_CALLS)))
        spent = time.process_time() - started
        assert [values[0] for values in found] == list(range(NUM_CALLS))
        return spent

    async def scenario(group: ActorGroup) -> list[tuple[float, float]]:
        return [(await seconds(group, group.call_often), await seconds(group, group.call_one)) for _ in range(4)]

    # The first of both warms up.
    pairs = play(scenario)[1:]
    assert min(often for often, _ in pairs) < 0.5 * min(one for _, one in pairs)


def test_a_result_that_stays_there_is_waited_for_where_it_is_made(play: Any) -> None:
    """Who takes it is not to blame while it is made, nor where that fails."""

    async def scenario(takers: ActorGroup) -> None:
        host = ThreadedHost.options(num_cpus=0)
        makers = ActorGroup("policy", lambda rank: host.remote("echo_worker:BlockingWorker", {}), [0], timeout_s=60)
        await makers.wait_ready(120)
        making = asyncio.ensure_future(makers.call_opaque(0, "slow", 1.0))
        await asyncio.sleep(0.3)
        assert [(wait.role, wait.method) for wait in makers.waits] == [("policy", "slow")]
        made = await making
        assert isinstance(made, ray.ObjectRef)
        assert not makers.waits
        assert await takers.call_one(1, "echo", made) == "made"
        with pytest.raises(WorkerError, match=r"^policy 0 on node .* failed in `fail`: ValueError: not today"):
            await makers.call_opaque(0, "fail")

    play(scenario)


def test_errors_are_those_of_single_calls(play: Any) -> None:
    async def scenario(group: ActorGroup) -> None:
        for call in (group.call_often, group.call_one):
            with pytest.raises(WorkerError, match=r"reward 0 on node .* failed in `fail`: ValueError: not today"):
                await call(0, "fail")
            with pytest.raises(DeadlineError, match=r"^the sandbox must answer, it did not$"):
                await call(0, "fail_by_name")
            with pytest.raises(SilentWorkerError, match=r"must answer `sleep` within 0\.3 s"):
                await call(0, "sleep", timeout_s=0.3)
        async with asyncio.timeout(30):
            while await group.call_one(0, "count") != 2:  # noqa: ASYNC110 - it counts in another process
                await asyncio.sleep(0.05)

    play(scenario)


def test_calls_are_lost_with_their_actor_and_its_successor_answers(play: Any) -> None:
    async def scenario(group: ActorGroup) -> None:
        lost = [asyncio.ensure_future(group.call_often(1, "sleep")) for _ in range(3)]
        other = asyncio.ensure_future(group.call_often(0, "echo", "fine"))
        await asyncio.sleep(0.5)
        group.end(1)
        for answer in await asyncio.gather(*lost, return_exceptions=True):
            assert isinstance(answer, LostWorkerError)
        assert await other == "fine"
        async with asyncio.timeout(60):
            while True:
                try:
                    assert await group.call_often(1, "echo", "again") == "again"
                    return
                except LostWorkerError:
                    await asyncio.sleep(0.2)

    play(scenario)


def test_worker_compiles_into_caches_of_its_node_and_the_users_own_choice_stays(play: Any) -> None:
    async def scenario(group: ActorGroup) -> dict[str, str]:
        return await group.call_one(1, "environment")

    environment = play(scenario)
    root = Path(tempfile.gettempdir()) / f"skyrl-nat-cache-{os.getuid()}"
    expected = {variable: str(root / name) for variable, name in CACHES.items()} | {"TRITON_CACHE_DIR": "/mine"}
    assert {variable: environment.get(variable) for variable in CACHES} == expected
