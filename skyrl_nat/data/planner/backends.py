"""Services that answer a prompt with JSON: Gemini through its SDK, and every server of OpenAI's protocol.

One call is one HTTP request here: whatever retries is switched off, so that the ledger sees all of them.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from skyrl_nat.config.planner import Backend, PlannerConfig
from skyrl_nat.data.planner.refusals import Billed, Refusal, RefusalKind, read_refusal
from skyrl_nat.errors import ConfigError

STOP, LENGTH = "stop", "length"
"""Finish reasons of an answer that is whole, and of one that hit the limit of tokens; others are block reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came back from one call."""

    text: str
    finish_reason: str = STOP
    block_reason: str = ""
    """Why the service kept its answer, or part of it, to itself; empty where it did not."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """Tokens as the service counts them, thoughts included; None where it does not say."""

    @property
    def is_cut(self) -> bool:
        """Whether the limit of tokens ended it."""
        return self.finish_reason == LENGTH


class PlannerBackend(Protocol):
    """A service that can be asked."""

    async def complete(
        self, prompt: str, schema: dict[str, Any], *, max_tokens: int, temperature: float, seed: int
    ) -> Answer | Refusal:
        """Make one call.

        Args:
            prompt: The whole prompt.
            schema: JSON schema of the answer, already reduced to what the service accepts.
            max_tokens: Limit of the answer.
            temperature: Of the sampling.
            seed: Of the sampling.
        """
        ...


@asynccontextmanager
async def open_backend(config: PlannerConfig, api_key: str) -> AsyncIterator[PlannerBackend]:
    """Give the configured service; its connections are closed afterwards.

    Raises:
        ConfigError: `google-genai` is needed and not installed.
    """
    if config.backend is Backend.openai:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        no_limit = aiohttp.ClientTimeout(total=None)  # ours is around the whole call
        async with aiohttp.ClientSession(headers=headers, timeout=no_limit, trust_env=True) as session:
            yield OpenAIBackend(session, config)
        return
    client = _gemini_client(config, api_key)
    try:
        yield GeminiBackend(client, config)
    finally:
        await client.aio.aclose()
        client.close()


def _gemini_client(config: PlannerConfig, api_key: str) -> Any:
    try:
        from google import genai
        from google.genai import types
    except ImportError as error:
        raise ConfigError(
            "planner.backend = gemini must have the package google-genai, it is not installed. "
            "Install google-genai==3.6.1, or set planner.backend to openai"
        ) from error
    options = types.HttpOptions(
        base_url=config.base_url or None,
        timeout=max(1, round(config.timeout_s * 1000)),  # milliseconds
        # None would not do: the SDK then still repeats a call, once, when the connection breaks.
        retry_options=types.HttpRetryOptions(attempts=1),
    )
    return genai.Client(api_key=api_key, vertexai=False, http_options=options)


class GeminiBackend:
    """Gemini's `generateContent`."""

    def __init__(self, client: Any, config: PlannerConfig) -> None:
        """Keep an open client of the SDK."""
        self._client = client
        self._config = config

    async def complete(
        self, prompt: str, schema: dict[str, Any], *, max_tokens: int, temperature: float, seed: int
    ) -> Answer | Refusal:
        """See `PlannerBackend`."""
        from google.genai import errors, types

        wanted = types.GenerateContentConfig(
            response_mime_type="application/json",
            response_schema=schema,
            max_output_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
        )

        async def call() -> Answer | Refusal:
            models = self._client.aio.models
            try:
                return _read_gemini(
                    await models.generate_content(model=self._config.model, contents=prompt, config=wanted)
                )
            except errors.APIError as error:
                return read_refusal(error.code or 0, getattr(error.response, "headers", {}), error.details)

        return await _in_time(call(), self._config.timeout_s)


class OpenAIBackend:
    """OpenAI's `/chat/completions` with a response format."""

    def __init__(self, session: aiohttp.ClientSession, config: PlannerConfig) -> None:
        """Keep an open session that sends the key."""
        self._session = session
        self._config = config
        self._url = f"{config.base_url.rstrip('/')}/chat/completions"

    async def complete(
        self, prompt: str, schema: dict[str, Any], *, max_tokens: int, temperature: float, seed: int
    ) -> Answer | Refusal:
        """See `PlannerBackend`."""
        wanted = {
            "model": self._config.model,
            "messages": [{"role": "user", "content": prompt}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
        }

        async def call() -> Answer | Refusal:
            async with self._session.post(self._url, json=wanted, allow_redirects=False) as response:
                body = await response.read()
                if response.status == 200:
                    return _read_openai(json.loads(body))
                return read_refusal(response.status, response.headers, _json_or_text(body))

        return await _in_time(call(), self._config.timeout_s)


async def _in_time(call: Awaitable[Answer | Refusal], timeout_s: float) -> Answer | Refusal:
    """Return the result of a call, or what broke it; a cancelled call closes its connection."""
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError:
        kind, message, billed = RefusalKind.timed_out, f"no whole answer in {timeout_s:g} s", Billed.everything
    except aiohttp.ClientConnectorError as error:
        kind, message, billed = RefusalKind.unavailable, f"no connection: {error}", Billed.nothing
    except (aiohttp.ClientError, OSError) as error:
        kind, message, billed = RefusalKind.unavailable, f"connection lost: {error!r}", Billed.everything
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        kind, message, billed = RefusalKind.unreadable, f"no answer of this protocol: {error!r}", Billed.everything
    return Refusal(kind=kind, message=message[:400], billed=billed)


def _read_gemini(response: Any) -> Answer:
    usage, feedback = response.usage_metadata, response.prompt_feedback
    if not (response.candidates or usage or feedback):
        raise ValueError("it holds nothing")
    candidate = (response.candidates or [None])[0]
    finish = candidate.finish_reason.value if candidate and candidate.finish_reason else "STOP"
    parts = (candidate.content.parts if candidate and candidate.content else None) or []
    blocked = feedback.block_reason.value if feedback and feedback.block_reason else ""
    return Answer(
        text="".join(part.text or "" for part in parts if not part.thought),
        finish_reason=LENGTH if finish == "MAX_TOKENS" else finish.lower(),
        block_reason=blocked or ("" if finish in ("STOP", "MAX_TOKENS", "FINISH_REASON_UNSPECIFIED") else finish),
        prompt_tokens=usage.prompt_token_count if usage else None,
        completion_tokens=(usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0) if usage else None,
    )


def _read_openai(body: dict[str, Any]) -> Answer:
    usage = body.get("usage") or {}
    choice: dict[str, Any] = body["choices"][0] if body["choices"] else {}
    message = choice.get("message") or {}
    finish = choice.get("finish_reason") or STOP
    refused = f"refusal: {message['refusal']}" if message.get("refusal") else ""
    return Answer(
        text=message.get("content") or "",
        finish_reason=finish,
        block_reason=refused or ("" if finish in (STOP, LENGTH) else finish),
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
    )


def _json_or_text(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
