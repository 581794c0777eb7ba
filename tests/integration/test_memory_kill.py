"""Ray ends a worker to save its node's memory: the call is lost, the run is not."""

import asyncio

import psutil
import pytest
import small_run

from skyrl_nat.cluster.actors import AsyncHost
from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.cluster.session import ray_session
from skyrl_nat.config.load import load_config
from skyrl_nat.errors import LostWorkerError

pytestmark = pytest.mark.long
MIB = 2**20
ROOM_MIB = 2048
"""What may be taken beside what is in use now; Ray and an actor take half of it."""


@pytest.fixture
def session(tmp_path, monkeypatch):
    memory = psutil.virtual_memory()
    threshold = (memory.total - memory.available + ROOM_MIB * MIB) / memory.total
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{threshold:.4f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "100")
    monkeypatch.setenv("PYTHONPATH", small_run.environment()["PYTHONPATH"])
    with ray_session(load_config(small_run.arguments(tmp_path)).cluster):
        yield


@pytest.mark.usefixtures("session")
def test_worker_that_is_ended_for_its_nodes_memory_is_lost_and_its_successor_answers():
    """As engines and ranks of the policy are, which Ray does not start anew."""

    async def scenario() -> None:
        host = AsyncHost.options(num_cpus=0, max_restarts=0)
        group = ActorGroup("engine", lambda rank: host.remote("echo_worker:EchoWorker", {}), [0], timeout_s=60)
        await group.wait_ready(120)
        for call in (group.call_often, group.call_one):
            with pytest.raises(LostWorkerError, match=r"engine 0 on .*ran out of memory. Give each worker more memory"):
                await call(0, "hoard", 2 * ROOM_MIB)
            await group.restart(0, 60)
            assert await group.call_often(0, "echo", "again") == "again"

    asyncio.run(scenario())
