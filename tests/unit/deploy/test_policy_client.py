import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fake_model_server import FakeModelServer
from fakes import FakeEngine
from open_gateway import hermes_codec

from skyrl_nat.deploy.engine_server import make_engine_app
from skyrl_nat.deploy.policy_client import Endpoint, PolicyClient
from skyrl_nat.deploy.prompt_check import check_prompts
from skyrl_nat.errors import ConfigError, EngineError
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams

DIALOGUES: Any = [[{"role": "system", "content": "be short"}, {"role": "user", "content": "add 1 and 2"}]]


@asynccontextmanager
async def asking(app: web.Application, **how: Any) -> AsyncIterator[PolicyClient]:
    async with TestServer(app) as server:
        endpoint = Endpoint(base_url=str(server.make_url("/v1")), model="policy", first_delay_s=0.01, **how)
        async with PolicyClient(endpoint) as client:
            yield client


def request(**how: Any) -> GenerationRequest:
    sampling = {"max_new_tokens": 3, "temperature": 0.7, "seed": 2**55, "stop": ("</end",), **how}
    return GenerationRequest(request_id="r", prompt_token_ids=[7, 8], sampling=SamplingParams(**sampling))


def test_what_the_infrastructure_failed_at_is_asked_again_and_what_was_refused_is_not() -> None:
    async def scenario() -> None:
        server = FakeModelServer()
        async with asking(server.app(), max_tries=3) as client:
            server.failures = [(503, ""), (429, "0.1")]
            assert (await client.generate(request())).token_ids == [5, 5, 5]
            assert (len(server.bodies), client.num_retries) == (3, 2)
            server.failures = [(400, "")]
            with pytest.raises(EngineError, match="after 1 of 3 tries: 400: not now"):
                await client.generate(request())
            server.failures = [(500, "")] * 5
            with pytest.raises(EngineError, match="after 3 of 3 tries"):
                await client.generate(request())
            assert len(server.failures) == 2
            server.failures = [(429, "3000")] * 2
            with pytest.raises(EngineError, match="after 1 of 3 tries: 429"):
                await client.generate(request())

    asyncio.run(scenario())


def test_a_server_that_is_not_there_is_an_engine_error() -> None:
    async def scenario() -> None:
        async with PolicyClient(
            Endpoint(base_url="http://127.0.0.1:9/v1", model="policy", max_tries=2, first_delay_s=0.01)
        ) as client:
            with pytest.raises(EngineError, match="after 2 of 2 tries"):
                await client.models()

    asyncio.run(scenario())


def test_a_prompt_to_which_the_server_adds_tokens_is_refused() -> None:
    async def scenario() -> None:
        async with asking(FakeModelServer(extra_ids=(1,)).app()) as client:
            with pytest.raises(EngineError, match="it used 3 tokens in place of 2"):
                await client.generate(request())

    asyncio.run(scenario())


def test_a_chat_template_of_its_own_is_refused_with_the_place() -> None:
    async def scenario() -> None:
        async with asking(FakeModelServer().app()) as client:
            with pytest.raises(ConfigError, match=r"prompt 0 differs from token 0 on.*Serve the chat template"):
                await check_prompts(client, hermes_codec(), DIALOGUES)

    asyncio.run(scenario())


def test_the_embedded_engine_takes_and_gives_the_tokens_of_training() -> None:
    async def scenario() -> None:
        codec, engine = hermes_codec(), FakeEngine()
        async with asking(make_engine_app(engine, codec, max_model_len=64)) as client:  # type: ignore[arg-type]
            assert await client.models() == ["policy"]
            assert await check_prompts(client, codec, DIALOGUES) == 1
            found = await client.generate(request())
            assert found == Completion(
                token_ids=[7, 8],
                logprobs=[0.0, 0.0],
                finish_reason=FinishReason.LENGTH,
                token_versions=[0, 0],
            )
            long = GenerationRequest(request_id="l", prompt_token_ids=[1] * 64, sampling=request().sampling)
            with pytest.raises(EngineError, match=r"after 1 of 4 tries: 400: .*context_length_exceeded"):
                await client.generate(long)
            engine.error = EngineError("no memory")
            with pytest.raises(EngineError, match=r"503: .*no memory"):
                await client.generate(request())

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_body"),
        (b"[]", 400, "invalid_body"),
        (b'{"prompt": [1, "a"]}', 400, "invalid_request"),
        (b'{"prompt": []}', 400, "invalid_request"),
        (b'{"prompt": [1], "temperature": NaN}', 400, "invalid_body"),
        (b'{"prompt": [1], "temperature": -1}', 400, "invalid_request"),
        (b'{"prompt": [1], "max_tokens": true}', 400, "invalid_request"),
        (b'{"prompt": [1], "model": "other"}', 404, "model_not_found"),
    ],
)
def test_the_embedded_engine_refuses_what_it_cannot_answer(body: bytes, status: int, code: str) -> None:
    async def scenario() -> None:
        app = make_engine_app(FakeEngine(), hermes_codec(), max_model_len=64)  # type: ignore[arg-type]
        async with asking(app) as client:
            assert client._session is not None
            url = f"{client.endpoint.base_url}/completions"
            async with client._session.post(url, data=body) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (status, code)

    asyncio.run(scenario())
