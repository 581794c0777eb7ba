"""The embedded engine behind OpenAI's protocol, with what vLLM adds to it: token ids in and out.

For machines without vLLM. Listens where it is told, has no key: it belongs behind the front of `app.py`.
"""

import asyncio
import os
import time
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from skyrl_nat.config.rollout import EngineKind
from skyrl_nat.config.run import RunConfig
from skyrl_nat.engines.base import Engine
from skyrl_nat.errors import ConfigError, EngineError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.rollouts.chat_request import RefusedError, parse_request
from skyrl_nat.rollouts.chat_response import MODEL_NAME, ChatAnswer, completion_body, models_body, stream_events
from skyrl_nat.rollouts.gateway import MAX_BODY_BYTES, in_openai_shape
from skyrl_nat.strict_json import parse_json
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams

DEFAULT_TOKENS = 512
_WORDS = {FinishReason.LENGTH: "length"}


def make_engine_app(engine: Engine, codec: ChatCodec, *, max_model_len: int) -> web.Application:
    """Return the server of one started engine, whose model is called `policy`.

    Args:
        engine: Stays its owner's to shut down.
        codec: Of the model.
        max_model_len: Context length in tokens.
    """
    desk = _Desk(engine, codec, max_model_len)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[in_openai_shape])
    app.router.add_get("/health", desk.health)
    app.router.add_get("/v1/models", desk.models)
    app.router.add_post("/v1/completions", desk.complete)
    app.router.add_post("/v1/chat/completions", desk.chat)
    return app


async def serve_engine(model: Path, config: RunConfig, *, host: str, port: int) -> None:
    """Load a model into the embedded engine, or a GGUF file into llama.cpp, and serve it until this is cancelled.

    Args:
        model: Folder with weights, or of a GGUF file's tokenizer.
        config: Of the policy's training.
        host: Where to listen; the server has no key.
        port: 0 takes any that is free.

    Raises:
        EngineError: The model cannot be loaded.
        ConfigError: The address cannot be had.
    """
    from skyrl_nat.engines.gguf import GgufEngine
    from skyrl_nat.engines.hf import HfEngine

    kind = GgufEngine if config.engine.kind is EngineKind.gguf else HfEngine
    max_model_len, device = config.rollout.max_total_tokens, str(config.cluster.device)
    threads = max(1, (os.cpu_count() or 1) - 1)
    engine = kind(
        str(model), config.engine, max_model_len=max_model_len, device=device, seed=config.seed, num_threads=threads
    )
    codec = ChatCodec.from_folder(model)
    await engine.start()
    runner = web.AppRunner(
        make_engine_app(engine, codec, max_model_len=max_model_len), handler_cancellation=True, access_log=None
    )
    try:
        await runner.setup()
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    except OSError as error:
        raise ConfigError(
            f"--host and --port must be an address to listen on, found: {error}. Choose another"
        ) from error
    finally:
        await runner.cleanup()
        await engine.shutdown()


class _Desk:
    """The handlers."""

    def __init__(self, engine: Engine, codec: ChatCodec, max_model_len: int) -> None:
        self._engine = engine
        self._codec = codec
        self._max_model_len = max_model_len

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response(models_body())

    async def complete(self, request: web.Request) -> web.Response:
        data = await _read(request)
        prompt = data.get("prompt")
        if isinstance(prompt, str):
            prompt = self._codec.encode(prompt)
        if not isinstance(prompt, list) or not prompt or any(type(item) is not int for item in prompt):
            raise RefusedError(400, "invalid_request", "prompt must be text or token ids. Change the request")
        completion = await self._sample(data, prompt)
        choice: dict[str, Any] = {
            "index": 0,
            "text": self._codec.decode(completion.token_ids),
            "finish_reason": _WORDS.get(completion.finish_reason, "stop"),
            "stop_reason": "stop word" if completion.finish_reason is FinishReason.STOP_WORD else None,
            "logprobs": None if data.get("logprobs") is None else {"token_logprobs": completion.logprobs},
        }
        if data.get("return_token_ids") is True:
            choice |= {"token_ids": completion.token_ids, "prompt_token_ids": prompt}
        body = {"id": f"cmpl-{uuid.uuid4().hex}", "object": "text_completion", "created": int(time.time())}
        usage = _usage(len(prompt), len(completion.token_ids))
        return web.json_response({**body, "model": MODEL_NAME, "choices": [choice], "usage": usage})

    async def chat(self, request: web.Request) -> web.Response:
        data = await _read(request)
        chat = parse_request(await request.read(), _number(data, "temperature", 1.0))
        if chat.tools:
            raise RefusedError(400, "tools_unsupported", "tools must be left out here. Write them into the messages")
        prompt = self._codec.prompt_tokens(chat.messages)
        completion = await self._sample({**data, "max_tokens": chat.max_tokens, "stop": list(chat.stop)}, prompt)
        answer = ChatAnswer(
            answer_id=f"chatcmpl-{uuid.uuid4().hex}",
            created=int(time.time()),
            message={"role": "assistant", "content": self._codec.decode(completion.token_ids)},
            finish_reason=_WORDS.get(completion.finish_reason, "stop"),
            num_prompt_tokens=len(prompt),
            num_completion_tokens=len(completion.token_ids),
            logprobs=None,
        )
        if chat.is_stream:
            return web.Response(text="".join(stream_events(answer, chat)), content_type="text/event-stream")
        ids = {"prompt_token_ids": prompt} if data.get("return_token_ids") is True else {}
        return web.json_response({**completion_body(answer), **ids})

    async def _sample(self, data: Mapping[str, Any], prompt: list[int]) -> Completion:
        if data.get("model") not in (None, MODEL_NAME):
            message = f"model must be {MODEL_NAME}, got {str(data['model'])[:80]!r}. Ask for that"
            raise RefusedError(HTTPStatus.NOT_FOUND, "model_not_found", message)
        stop, seed = data.get("stop") or [], data.get("seed")
        limit = data.get("max_tokens") or DEFAULT_TOKENS
        if type(limit) is not int or limit < 1 or not (seed is None or type(seed) is int):
            raise RefusedError(400, "invalid_request", "max_tokens and seed must be whole numbers. Change the request")
        if len(prompt) >= self._max_model_len:
            message = f"A prompt must have fewer than {self._max_model_len} tokens, got {len(prompt)}. Shorten it"
            raise RefusedError(400, "context_length_exceeded", message)
        words = tuple(str(word) for word in ([stop] if isinstance(stop, str) else stop) if word)
        sampling = SamplingParams(
            max_new_tokens=limit, temperature=_number(data, "temperature", 1.0), seed=seed, stop=words
        )
        asked = GenerationRequest(request_id=f"http-{uuid.uuid4().hex}", prompt_token_ids=prompt, sampling=sampling)
        try:
            return await self._engine.generate(asked)
        except EngineError as error:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "engine_failure", str(error)) from error


async def _read(request: web.Request) -> dict[str, Any]:
    try:
        data = parse_json(await request.read())
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "invalid_body", f"The body must be JSON, found: {error}. Send an object") from error
    if not isinstance(data, dict):
        raise RefusedError(400, "invalid_body", "The body must be a JSON object. Send one")
    return data


def _number(data: Mapping[str, Any], name: str, default: float) -> float:
    value = data.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise RefusedError(400, "invalid_request", f"{name} must be a number >= 0. Change the request")
    return float(value)


def _usage(num_prompt: int, num_completion: int) -> dict[str, int]:
    total = num_prompt + num_completion
    return {"prompt_tokens": num_prompt, "completion_tokens": num_completion, "total_tokens": total}
