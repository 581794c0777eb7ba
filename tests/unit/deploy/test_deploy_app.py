import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from skyrl_nat.deploy.admission import Admission
from skyrl_nat.deploy.agent_folder import write_agent
from skyrl_nat.deploy.app import Front, make_app, require_safe
from skyrl_nat.deploy.feedback import AGENTS, FeedbackFile
from skyrl_nat.deploy.flag import FlagFile, TrainedSwitch
from skyrl_nat.deploy.log import logging_to
from skyrl_nat.deploy.pipeline import AgentRequest, Progress
from skyrl_nat.errors import ConfigError, DataError, EngineError, StoppedError

WANTED = {"request": "Add two numbers.", "user_id": "u"}
VALIDATION: dict[str, Any] = {"reward": 1.0, "is_success": True, "parts": {}, "findings": [], "stages": []}
KEY = "the-key"


class Creating:
    """In place of the pipeline: writes an agent, waits, or fails."""

    def __init__(self, folder: Path, *, error: Exception | None = None, waits: bool = False) -> None:
        self.folder, self.error = folder, error
        self.goes_on = asyncio.Event()
        self.cancelled = 0
        if not waits:
            self.goes_on.set()

    async def __call__(self, request: AgentRequest, agent_id: str, progress: Progress) -> dict[str, Any]:
        with progress.entered("write"):
            try:
                await self.goes_on.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
            if self.error:
                raise self.error
        record = {"agent_id": agent_id, "name": "adder", "description": "d", "outcome": "trained"}
        record |= {"validation": VALIDATION, "seconds": dict(progress.seconds)}
        (self.folder / AGENTS).mkdir(exist_ok=True)
        write_agent(self.folder / AGENTS / agent_id, {"agent/register.py": "pass\n"}, record, [])
        return record


def serve(
    folder: Path,
    scenario: Callable[[TestClient, Creating], Awaitable[None]],
    *,
    error: Exception | None = None,
    waits: bool = False,
    **how: Any,
) -> None:
    creating = Creating(folder, error=error, waits=waits)
    limits = {"max_running": 1, "max_waiting": 1} | {k: how.pop(k) for k in ("max_running",) if k in how}
    front = Front(
        create=creating,
        switch=TrainedSwitch(FlagFile(folder / "flag.json"), timeout_s=1, max_concurrent=1),
        admission=Admission(**limits),
        folder=folder,
        **{"deadline_s": 20.0, "describe_model": lambda: {"is_alive": True}, **how},
    )

    async def run() -> None:
        async with TestClient(TestServer(make_app(front), handler_cancellation=True)) as client:
            await scenario(client, creating)

    asyncio.run(run())


async def post(client: TestClient, path: str = "/agents", body: Any = WANTED, **headers: str) -> tuple[int, Any, Any]:
    async with client.post(path, json=body, headers=headers) as response:
        return response.status, await response.json(), response.headers


async def until(client: TestClient, **numbers: int) -> dict[str, Any]:
    """Return what /health says once it says these numbers."""
    async with asyncio.timeout(20):
        while True:
            async with client.get("/health") as response:
                health = await response.json()
            if health | numbers == health:
                return health
            await asyncio.sleep(0.02)


def test_prometheus_is_told_of_answers_refusals_faults_and_users(tmp_path: Path) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        _, made, _ = await post(client)
        await post(client, f"/agents/{made['agent_id']}/feedback", {"user_id": "u", "rating": "bad"})
        for creating.error in (DataError("no plan"), EngineError("no engine")):
            await post(client)
        async with client.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        for outcome in ("answered", "no_sound_plan", "error"):
            assert f'skyrl_nat_deploy_requests_total{{outcome="{outcome}"}} 1.0' in lines
        assert 'skyrl_nat_deploy_verdicts_total{verdict="passed"} 1.0' in lines
        assert 'skyrl_nat_deploy_feedback_total{rating="bad"} 1.0' in lines
        assert 'skyrl_nat_deploy_phase_seconds_count{phase="write"} 1.0' in lines
        assert "skyrl_nat_deploy_in_flight 0.0" in lines

    serve(tmp_path, scenario)


def test_an_agent_is_created_shown_fetched_and_rated(tmp_path: Path) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        status, made, headers = await post(client)
        assert (status, made["status"], made["name"]) == (201, "done", "adder")
        path = f"/agents/{made['agent_id']}"
        assert (headers["Location"], headers["X-Request-ID"]) == (path, made["agent_id"])
        async with client.get(path) as response:
            assert (await response.json())["validation"] == VALIDATION
        async with client.get(f"{path}/archive") as response:
            assert (response.status, (await response.read())[:2]) == (200, b"\x1f\x8b")
            assert response.headers["Content-Disposition"] == 'attachment; filename="adder.tar.gz"'
        status, said, _ = await post(client, f"{path}/feedback", {"user_id": "u", "rating": "good", "comment": "ok"})
        assert (status, said["rating"]) == (201, "good")
        assert [(each.agent_id, each.comment) for each in FeedbackFile(tmp_path).read()] == [(made["agent_id"], "ok")]

    with logging_to(tmp_path / "log.jsonl"):
        serve(tmp_path, scenario)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["request", "phase over", "feedback"]
    assert len({line["request_id"] for line in lines}) == 1 and lines[0]["request_id"]
    assert WANTED["request"] not in json.dumps(lines), "what users write is not logged"


def test_a_full_queue_is_told_when_to_come_again(tmp_path: Path) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        first, second = (asyncio.create_task(post(client)) for _ in range(2))
        await until(client, running=1, waiting=1)
        for headers in ({}, {"Prefer": "respond-async"}):
            status, body, answered = await post(client, **headers)
            assert (status, body["error"]["code"]) == (429, "busy")
            assert int(answered["Retry-After"]) >= 1
        await until(client, running=1, waiting=1, refused=2)
        creating.goes_on.set()
        assert [(await task)[0] for task in (first, second)] == [201, 201]

    serve(tmp_path, scenario, waits=True)


def test_a_deadline_says_which_phase_was_under_way_and_ends_it(tmp_path: Path) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        first = asyncio.create_task(post(client))
        await until(client, running=1)
        queued = asyncio.create_task(post(client))
        status, body, _ = await first
        assert (status, body["error"]["code"], body["error"]["phase"]) == (504, "deadline", "write")
        status, body, _ = await queued
        assert (status, body["error"]["code"]) == (504, "deadline")
        assert body["error"]["phase"] in ("queue", "write")
        assert creating.cancelled >= 1
        await until(client, running=0, waiting=0)

    serve(tmp_path, scenario, waits=True, deadline_s=1.5)


def test_a_client_that_leaves_ends_its_creation(tmp_path: Path) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        leaving = asyncio.create_task(post(client))
        await until(client, running=1)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await until(client, running=0)
        assert creating.cancelled == 1

    serve(tmp_path, scenario, waits=True)


def test_who_does_not_want_to_wait_asks_later(tmp_path: Path) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        status, body, headers = await post(client, Prefer="respond-async")
        assert (status, body["status"]) == (202, "running")
        await until(client, running=1)
        async with client.get(headers["Location"]) as response:
            assert (await response.json())["phase"] == "write"
        creating.goes_on.set()
        await until(client, running=0)
        async with client.get(headers["Location"]) as response:
            found = await response.json()
        assert (found["status"], found["error"]["code"], found["error"]["phase"]) == (
            "failed",
            "no_sound_plan",
            "write",
        )

    serve(tmp_path, scenario, waits=True, error=DataError("no plan"))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (DataError("no plan"), 422, "no_sound_plan"),
        (StoppedError("budget"), 503, "planner_unavailable"),
        (ConfigError("key"), 503, "planner_unavailable"),
        (EngineError("code"), 502, "creation_failed"),
        (KeyError("secret detail"), 500, "internal"),
    ],
)
def test_what_goes_wrong_has_one_shape(tmp_path: Path, error: Exception, status: int, code: str) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        found, body, _ = await post(client)
        assert (found, body["error"]["code"], body["error"]["phase"]) == (status, code, "write")
        assert "secret detail" not in json.dumps(body) and "Traceback" not in json.dumps(body)

    serve(tmp_path, scenario, error=error)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"{", 400),
        (b'{"request": NaN, "user_id": "u"}', 400),
        (b'{"request": "\\ud800", "user_id": "u"}', 400),
        (b"[" * 10_000, 400),
        (b"[]", 422),
        (b"{}", 422),
        (json.dumps({**WANTED, "extra": 1}).encode(), 422),
        (json.dumps({**WANTED, "request": " "}).encode(), 422),
        (json.dumps({**WANTED, "request": "x" * 8001}).encode(), 422),
        (json.dumps({**WANTED, "user_id": 7}).encode(), 422),
        (json.dumps({**WANTED, "difficulty": True}).encode(), 422),
        (json.dumps({**WANTED, "difficulty": 6}).encode(), 422),
        (b'{"request": "' + b"x" * 70_000, 413),
    ],
)
def test_a_body_that_is_no_request_is_refused(tmp_path: Path, data: bytes, status: int) -> None:
    async def scenario(client: TestClient, creating: Creating) -> None:
        async with client.post("/agents", data=data, headers={"Content-Type": "application/json"}) as response:
            assert response.status == status
            assert set((await response.json())["error"]) >= {"code", "message"}

    serve(tmp_path, scenario)


def test_nobody_gets_in_without_the_key_and_no_other_host_without_one(tmp_path: Path) -> None:
    async def with_key(client: TestClient, creating: Creating) -> None:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer "}):
            assert (await post(client, **headers))[0] == 401
        assert (await client.get("/health")).status == 200
        assert (await post(client, Authorization=f"Bearer {KEY}"))[0] == 201

    async def without(client: TestClient, creating: Creating) -> None:
        assert (await post(client, Host="evil.example"))[0] == 403
        async with client.post("/agents", data=json.dumps(WANTED), headers={"Content-Type": "text/plain"}) as response:
            assert response.status == 415, "a page of another site may send that without asking"

    serve(tmp_path, with_key, key=KEY)
    serve(tmp_path, without)
    require_safe("127.0.0.1", "")
    require_safe("0.0.0.0", KEY)
    with pytest.raises(ConfigError, match="--host must be an address of this machine"):
        require_safe("0.0.0.0", "")


@pytest.mark.parametrize("agent_id", ["nope", "..%2f..%2fsecret", "%2e%2e", "0" * 32, "A" * 32, "0" * 5000, "%00"])
def test_an_unknown_agent_is_a_404(tmp_path: Path, agent_id: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "record.json").write_text("{}")

    async def scenario(client: TestClient, creating: Creating) -> None:
        for path in (f"/agents/{agent_id}", f"/agents/{agent_id}/archive"):
            async with client.get(path) as response:
                assert response.status == 404
                assert set((await response.json())["error"]) >= {"code", "message"}
        assert (await post(client, f"/agents/{agent_id}/feedback", {"user_id": "u", "rating": "good"}))[0] == 404

    serve(tmp_path, scenario)
