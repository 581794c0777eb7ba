import asyncio
import os
import signal
import sys
from pathlib import Path

import fake_model_server
import pytest
from toy_run import free_port

from skyrl_nat.deploy.policy_client import Endpoint, PolicyClient
from skyrl_nat.deploy.server import Deployment, ModelServer, ServerPlan, prove_model
from skyrl_nat.errors import ConfigError, EngineError


def plan(folder: Path, behaviour: str, **how: float) -> ServerPlan:
    """A plan of this server as a process."""
    port = free_port()
    return ServerPlan(
        command=(sys.executable, fake_model_server.__file__, str(port), behaviour),
        endpoint=Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="policy", timeout_s=10, first_delay_s=0.05),
        log=folder / "server.log",
        about={"name": behaviour},
        **{"start_timeout_s": 20.0, "probation_s": 0.2, **how},
    )


async def accept(client: PolicyClient) -> None:
    await prove_model(client)


def pid_of(server: ModelServer) -> int:
    assert server._process is not None
    return server._process.pid


@pytest.mark.parametrize(
    ("behaviour", "how", "sentence"),
    [
        ("no_models", {"start_timeout_s": 2.5}, r"must list the model policy, it lists \[\]"),
        ("not_loaded", {"start_timeout_s": 2.5}, "The model `policy` does not exist"),
        ("hangs", {"start_timeout_s": 2.5}, "within 2.5 s"),
        ("dies", {"probation_s": 5.0}, "must run, it ended with 7"),
        ("no_start", {}, "no memory left for the weights"),
    ],
)
def test_a_server_that_only_says_it_is_ready_never_gets_the_traffic_and_the_old_one_keeps_it(
    tmp_path: Path, behaviour: str, how: dict[str, float], sentence: str
) -> None:
    """DP-02: an empty list of models, an adapter that was never loaded, a death after "ready"; with the log's end."""

    async def scenario() -> None:
        deployment = Deployment()
        await deployment.switch(plan(tmp_path / "old", "good"), accept)
        old = deployment.current
        assert old is not None
        with pytest.raises(EngineError, match=sentence) as caught:
            await deployment.switch(plan(tmp_path / "new", behaviour, **how), accept)
        if behaviour != "hangs":
            assert f"this is the server called {behaviour}" in str(caught.value) or behaviour == "no_models"
        assert deployment.current is old and old.is_alive
        await old.prove()
        await deployment.close()

    asyncio.run(scenario())


def test_the_check_decides_before_the_traffic_is_switched(tmp_path: Path) -> None:
    async def refuse(client: PolicyClient) -> None:
        raise ConfigError("not this one")

    async def scenario() -> None:
        deployment = Deployment()
        await deployment.switch(plan(tmp_path, "good"), accept)
        first = deployment.current
        assert first is not None
        with pytest.raises(ConfigError, match="not this one"):
            await deployment.switch(plan(tmp_path, "good"), refuse)
        assert deployment.current is first and first.is_alive
        await deployment.switch(plan(tmp_path, "good"), accept)
        second = deployment.current
        assert second is not None and second is not first
        assert second.is_alive and not first.is_alive
        assert deployment.previous == first.plan
        await deployment.close()
        assert not second.is_alive

    asyncio.run(scenario())


def test_a_server_that_is_killed_is_started_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        deployment = Deployment(restart_delay_s=0.01)
        await deployment.switch(plan(tmp_path, "good"), accept)
        first = deployment.current
        assert first is not None
        supervising = asyncio.create_task(deployment.supervise())
        os.kill(pid_of(first), signal.SIGKILL)
        async with asyncio.timeout(30):
            while deployment.current is first:  # noqa: ASYNC110 - nobody says when
                await asyncio.sleep(0.05)
        assert deployment.current is not None and deployment.current.is_alive
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
        await deployment.close()

    asyncio.run(scenario())


def test_a_server_that_cannot_be_started_again_gives_way_to_the_one_before(tmp_path: Path) -> None:
    """DP-02, rollback: the new one dies later, and its weights are gone by then."""

    async def scenario() -> None:
        deployment = Deployment(max_restarts=1, restart_delay_s=0.01)
        await deployment.switch(plan(tmp_path / "old", "good"), accept)
        broken = plan(tmp_path / "new", "dies")
        await deployment.switch(broken, accept)
        assert deployment.current is not None and deployment.current.plan is broken
        supervising = asyncio.create_task(deployment.supervise())
        async with asyncio.timeout(40):
            while deployment.current.plan.about["name"] != "good":  # noqa: ASYNC110 - nobody says when
                await asyncio.sleep(0.05)
        await deployment.current.prove()
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)
        await deployment.close()

    asyncio.run(scenario())
