"""What the gateway refuses, in OpenAI's shape: strangers, bad bodies, met limits, failed engines, ended rollouts."""

import asyncio
from typing import Any

import aiohttp
import openai
import pytest
from open_gateway import ScriptedEngine, client_of, dialogue, open_gateway, open_session, run, says, user
from tiny_model import make_tiny_tokenizer

from skyrl_nat.errors import EngineError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.gateway import MAX_BODY_BYTES


@pytest.mark.parametrize(
    ("how", "error", "code"),
    [
        ({"api_key": "wrong"}, openai.AuthenticationError, "invalid_api_key"),
        ({"base_url": "{host}/v1", "api_key": "wrong"}, openai.AuthenticationError, "invalid_api_key"),
        ({"base_url": "{host}/rollouts/other/v1"}, openai.NotFoundError, "unknown_rollout"),
        ({"base_url": "{host}/v2"}, openai.NotFoundError, "http_error"),
    ],
)
def test_strangers_get_nothing(how: dict[str, str], error: Any, code: str) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("x"))
        async with open_gateway(engine) as gateway:
            session = open_session(gateway)
            host = gateway.base_url(session).split("/rollouts")[0]
            how_here = {name: value.format(host=host) for name, value in how.items()}
            async with client_of(gateway, session, **how_here) as client:
                with pytest.raises(error) as caught:
                    await client.chat.completions.create(model="m", messages=[user("go")])  # type: ignore[list-item]
                assert caught.value.code == code
        assert engine.requests == []

    run(scenario())


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "must be JSON"),
        (b"[" * 100_000, 400, "must be JSON"),
        (b"\xff\xfe\x00", 400, "must be JSON"),
        (b"[]", 400, "body must be an object"),
        (b'{"messages": []}', 400, "at least one message"),
        (b'{"messages": "x"}', 400, "messages must be a list"),
        (b'{"messages": [3]}', 400, "messages must be an object"),
        (b'{"messages": [{"role": "root", "content": "x"}]}', 400, "role must be one of"),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', 400, "text parts only"),
        (b'{"messages": [{"role": "user", "content": "x"}], "n": 2}', 400, "n must be 1"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": true}', 400, "whole number"),
        (b'{"messages": [{"role": "user", "content": "x"}], "stop": [""]}', 400, "stop must be at most"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": [{}]}', 400, "tools.function must be an object"),
        (b'{"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "json_object"}}', 400, "text"),
        (b"x" * (MAX_BODY_BYTES + 1), 413, "Too Large"),
    ],
)
def test_bad_bodies_are_refused_in_openais_shape_and_nothing_is_sampled(body: bytes, status: int, text: str) -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("x"))
        async with open_gateway(engine) as gateway:
            session = open_session(gateway)
            url = f"{gateway.base_url(session)}/chat/completions"
            headers = {"Authorization": f"Bearer {session.api_key}"}
            async with aiohttp.ClientSession() as http, http.post(url, data=body, headers=headers) as reply:
                assert reply.status == status
                error = (await reply.json())["error"]
            assert text in error["message"]
            assert error["type"] == "invalid_request_error"
        assert engine.requests == []
        assert session.limit == "", "a bad request says nothing about the rollout's limits"

    run(scenario())


def test_turns_and_tokens_are_limited_and_the_client_is_told_in_openais_words() -> None:
    async def scenario() -> None:
        async with dialogue(ScriptedEngine(says("x")), max_turns=1) as (session, ask):
            await ask([user("go")])
            with pytest.raises(openai.BadRequestError) as caught:
                await ask([user("go")])
            assert caught.value.code == "rollout_limit"
            assert session.limit == "turn limit"
        engine = ScriptedEngine(says("x"))
        async with dialogue(engine, max_total_tokens=40, max_new_tokens=8) as (session, ask):
            with pytest.raises(openai.BadRequestError) as caught:
                await ask([user("q" * 100)])
            assert caught.value.code == "context_length_exceeded"
            assert session.limit == "token limit of the rollout"
            assert engine.requests == []

    run(scenario())


@pytest.mark.parametrize("error", [EngineError("it burns"), RuntimeError("what")])
def test_an_engine_failure_is_a_503_that_no_client_repeats(error: Exception) -> None:
    """Row 18."""

    async def scenario() -> None:
        engine = ScriptedEngine(says("x"), error=error)
        async with dialogue(engine) as (session, ask):
            for _ in range(2):
                with pytest.raises(openai.InternalServerError) as caught:
                    await ask([user("go")])
                assert caught.value.status_code == 503
                assert caught.value.code == "engine_failure"
        assert len(engine.requests) == 1
        assert str(error) in session.fault
        assert session.draft.token_ids == []

    run(scenario())


def test_a_client_that_goes_away_cancels_its_generation_and_nothing_of_it_is_recorded() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("x"), delay_s=20)
        async with open_gateway(engine) as gateway:
            session = open_session(gateway)
            async with client_of(gateway, session) as client:
                asking = asyncio.create_task(client.chat.completions.create(model="m", messages=[user("go")]))
                await engine.asked.wait()
                asking.cancel()
                await asyncio.wait({asking})
            await engine.cancelled.wait()
            assert engine.num_cancelled == 1
            engine.delay_s = 0
            async with client_of(gateway, session) as client:
                await client.chat.completions.create(model="m", messages=[user("go")])  # type: ignore[list-item]
        assert session.fault == ""
        assert len(session.draft.turns) == 1

    run(scenario())


def test_the_end_of_a_session_ends_what_runs_and_refuses_what_comes() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(says("x"), delay_s=20)
        async with dialogue(engine) as (session, ask):
            running = asyncio.create_task(ask([user("go")]))
            await engine.asked.wait()
            session.end("rollout deadline of 1 s")
            for request in (running, ask([user("go")])):
                with pytest.raises(openai.BadRequestError, match="rollout deadline of 1 s"):
                    await request
        assert engine.num_cancelled == 1
        assert session.draft.token_ids == []

    run(scenario())


def test_messages_that_the_template_refuses_are_the_clients_fault() -> None:
    async def scenario() -> None:
        import copy

        tokenizer = copy.copy(make_tiny_tokenizer())
        refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
        tokenizer.chat_template = refusing + tokenizer.chat_template
        async with dialogue(ScriptedEngine(says("x")), ChatCodec(tokenizer)) as (_, ask):
            with pytest.raises(openai.BadRequestError, match="no system here"):
                await ask([{"role": "developer", "content": "x"}, user("go")])

    run(scenario())
