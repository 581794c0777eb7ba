"""One call is one HTTP request that ends in time (PL-04), and no key is ever shown."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest
from planner_server import KEY_NAME, PlannerServer, Reply, VirtualClock

from skyrl_nat.data.planner.ask import Answered, Failed, Outcome, Planner
from skyrl_nat.data.planner.backends import open_backend
from skyrl_nat.data.planner.limits import Limiter
from skyrl_nat.data.planner.refusals import RefusalKind
from skyrl_nat.errors import ConfigError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"b": {"type": "integer"}, "a": {"type": ["string", "null"]}},
    "required": ["b"],
}


def ask(server: PlannerServer, backend: str, folder: Path, **how: Any) -> tuple[Outcome, Planner]:
    async def run() -> tuple[Outcome, Planner]:
        clock = VirtualClock()
        limiter = Limiter(60, 1e9, clock=clock, sleep=clock.sleep)
        async with server, Planner(server.config(backend, **how), folder, limiter=limiter) as planner:
            outcome = await planner.ask("p", SCHEMA)
            for _ in range(50):  # the server needs a moment to notice
                if server.left or not server.busy:
                    break
                await asyncio.sleep(0.02)
            return outcome, planner

    return asyncio.run(run())


@pytest.mark.parametrize("how", ["never", "trickle"])
def test_pl_04_a_call_ends_at_its_limit_in_seconds_and_its_connection_is_closed(backend: str, tmp_path: Path, how: str):
    server = PlannerServer(Reply(how=how))
    start = time.monotonic()
    outcome, planner = ask(server, backend, tmp_path, timeout_s=1.0, max_tries=1)
    assert 0.95 < time.monotonic() - start < 3
    assert outcome == Failed(RefusalKind.timed_out, "no whole answer in 1 s")
    assert (len(server.calls), server.left) == (1, 1)
    assert planner.ledger.totals.results == {"timed_out": 1}


def test_pl_04_the_limit_is_not_taken_for_milliseconds(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text='{"b": 1}', how="slow"))
    start = time.monotonic()
    outcome, _ = ask(server, backend, tmp_path, timeout_s=30.0, max_tries=1)
    assert outcome == Answered({"b": 1})
    assert time.monotonic() - start >= 0.5


def test_pl_04_time_outs_are_tried_again_and_bounded(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(how="never"))
    outcome, _ = ask(server, backend, tmp_path, timeout_s=0.3, max_tries=3)
    assert outcome == Failed(RefusalKind.timed_out, "no whole answer in 0.3 s")
    assert len(server.calls) == 3


def test_pl_01_a_broken_connection_is_one_call_on_both_sides(backend: str, tmp_path: Path):
    """The SDK repeats such a call by itself unless its retries are set to one attempt."""
    server = PlannerServer(Reply(how="hang_up"))
    outcome, planner = ask(server, backend, tmp_path, max_tries=2)
    assert isinstance(outcome, Failed)
    assert outcome.kind is RefusalKind.unavailable
    assert outcome.reason.startswith("connection lost")
    assert len(server.calls) == planner.ledger.totals.calls == 2


def test_a_server_that_is_not_there_costs_nothing(backend: str, tmp_path: Path):
    async def run() -> tuple[Outcome, float]:
        async with PlannerServer() as gone:
            config = gone.config(backend, max_tries=1)
        async with Planner(config, tmp_path) as planner:
            return await planner.ask("p", SCHEMA), planner.ledger.spent

    outcome, spent = asyncio.run(run())
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.reason[:13], spent) == (RefusalKind.unavailable, "no connection", 0)


@pytest.mark.parametrize("raw", [b"<html>busy</html>", b"[]", b'{"choices": 3, "candidates": 3}', b""])
def test_an_answer_that_is_not_of_the_protocol_is_tried_again(backend: str, tmp_path: Path, raw: bytes):
    server = PlannerServer(Reply(raw=raw), Reply(text='{"b": 1}'))
    outcome, planner = ask(server, backend, tmp_path)
    assert outcome == Answered({"b": 1})
    assert planner.ledger.totals.results == {"unreadable": 1, "answer": 1}


@pytest.mark.parametrize("status", [400, 401, 403])
def test_a_denied_request_stops_the_run_at_once_with_one_sentence(backend: str, tmp_path: Path, status: int):
    async def run() -> None:
        async with server, Planner(server.config(backend), tmp_path) as planner:
            for _ in range(3):
                with pytest.raises(ConfigError, match=f"it said {status} SOME_NAME: not you. Check the key in"):
                    await planner.ask("p", SCHEMA)

    server = PlannerServer(Reply(status=status, name="SOME_NAME", message="not you"))
    asyncio.run(run())
    assert len(server.calls) == 1


def test_a_wrong_key_stops_at_once_and_is_shown_nowhere(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv(KEY_NAME, "wrong-key-123")
    caplog.set_level(logging.DEBUG)
    server = PlannerServer()
    with pytest.raises(
        ConfigError, match=r"400 INVALID_ARGUMENT: API key not valid|401 .*Wrong key: Bearer \*\*\*"
    ) as e:
        ask(server, backend, tmp_path)
    assert len(server.calls) == 1
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "denied" in written
    assert all("wrong-key-123" not in text for text in (str(e.value), written, caplog.text))


def test_without_a_key_nothing_starts(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(KEY_NAME)
    server = PlannerServer()
    with pytest.raises(ConfigError, match=f"the environment variable {KEY_NAME} must hold the planner's API key"):
        ask(server, backend, tmp_path)
    assert server.calls == []


def test_a_local_server_may_do_without_a_key(tmp_path: Path):
    async def run() -> dict[str, str]:
        async with PlannerServer() as server:
            config = server.config("openai")
            config.api_key_env = ""
            async with open_backend(config, config.read_api_key()) as service:
                await service.complete("p", SCHEMA, max_tokens=1, temperature=0, seed=0)
            return server.calls[0].headers

    assert "Authorization" not in asyncio.run(run())


def test_pl_07_the_schema_arrives_as_each_service_wants_it(backend: str, tmp_path: Path):
    server = PlannerServer(Reply(text='{"b": 1, "a": null}'))
    outcome, _ = ask(server, backend, tmp_path)
    assert outcome == Answered({"b": 1, "a": None})
    gemini = {
        "type": "OBJECT",
        "properties": {"b": {"type": "INTEGER"}, "a": {"type": "STRING", "nullable": True}},
        "required": ["b"],
        "property_ordering": ["b", "a"],
    }
    openai = {
        "type": "object",
        "properties": {"b": {"type": "integer"}, "a": {"type": ["string", "null"]}},
        "required": ["b"],
    }
    assert server.calls[0].schema == (gemini if backend == "gemini" else openai)
    assert list(server.calls[0].schema["properties"]) == ["b", "a"]
