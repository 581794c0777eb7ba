"""A service that plays scripted answers over real HTTP, in Gemini's protocol and in OpenAI's, and counts everything."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from skyrl_nat.config.planner import Backend, PlannerConfig

KEY = "right-key-of-the-fake-server"
KEY_NAME = "FAKE_PLANNER_KEY"
GEMINI_WORDS = {"type", "description", "enum", "items", "nullable", "properties", "required", "minimum", "maximum"} | {
    *("minItems", "min_items", "maxItems", "max_items", "propertyOrdering", "property_ordering")
}
"""Google's servers read both spellings of a name; the SDK sends the one with underscores."""
FINISH = {"stop": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}


@dataclass(kw_only=True)
class Reply:
    """What one call gets."""

    text: str | None = "{}"
    """None: no parts at all."""
    finish: str = "stop"
    """In OpenAI's words."""
    blocks_prompt: str = ""
    """Why there is no candidate."""
    usage: tuple[int, int] | None = (100, 50)
    """Tokens of prompt and answer."""
    status: int = 200
    message: str = "no"
    name: str = "ERROR"
    retry_delay: str = ""
    """Of Gemini's RetryInfo."""
    quota_id: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    raw: bytes | None = None
    """The body, in place of any other."""
    how: str = "whole"
    """`whole`, `slow` (after 0.5 s), `never`, `trickle` (a byte each 0.2 s) or `hang_up`."""


@dataclass(kw_only=True, eq=False)
class Call:
    """One call as the server saw it."""

    prompt: str
    schema: dict[str, Any]
    max_tokens: int
    temperature: float
    seed: int
    at: float
    headers: dict[str, str]


class PlannerServer:
    """Plays replies in order, the last one again and again; or asks a function of the prompt for them."""

    def __init__(
        self,
        *replies: Reply,
        of_prompt: Callable[[str], Reply] | None = None,
        clock: Callable[[], float] = time.monotonic,
        port: int = 0,
    ) -> None:
        self.replies = list(replies) or [Reply()]
        self.of_prompt = of_prompt
        self.clock = clock
        self.port = port
        self._arrived = asyncio.Condition()
        self.calls: list[Call] = []
        self.usage = [0, 0]
        self.left = 0
        """Calls whose client went away before the answer."""
        self.busy = self.most_busy = 0

    async def __aenter__(self):
        app = web.Application()
        app.router.add_post("/{version}/models/{model}:generateContent", self._gemini)
        app.router.add_post("/v1/chat/completions", self._openai)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: Any) -> None:
        await self._runner.cleanup()

    async def wait_for_calls(self, count: int) -> None:
        """Return when so many calls have arrived."""
        async with self._arrived:
            await asyncio.wait_for(self._arrived.wait_for(lambda: len(self.calls) >= count), 60)

    def config(self, backend: str, **how: Any) -> PlannerConfig:
        """A configuration for this server, without noticeable waits between calls."""
        base_url = self.url if backend == "gemini" else f"{self.url}/v1"
        fast: dict[str, Any] = {"requests_per_minute": 1_000_000, "tokens_per_minute": 10**12, "timeout_s": 20.0}
        return PlannerConfig(
            backend=Backend(backend), base_url=base_url, api_key_env=KEY_NAME, **{**fast, "max_cost": 100.0, **how}
        )

    async def _gemini(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        wanted = body["generationConfig"]
        assert wanted["responseMimeType"] == "application/json"
        call = await self._note(
            request,
            prompt=body["contents"][0]["parts"][0]["text"],
            schema=wanted["responseSchema"],
            max_tokens=wanted["maxOutputTokens"],
            temperature=wanted["temperature"],
            seed=wanted["seed"],
        )
        if request.headers.get("x-goog-api-key") != KEY:
            wrong = Reply(
                status=400, name="INVALID_ARGUMENT", message="API key not valid. Please pass a valid API key."
            )
            return await self._send(request, wrong, _gemini_error(wrong))
        if found := _unknown(wanted["responseSchema"]):
            wrong = Reply(status=400, name="INVALID_ARGUMENT", message=f"response_schema: {found}")
            return await self._send(request, wrong, _gemini_error(wrong))
        reply = self._reply(call)
        return await self._send(request, reply, _gemini_body(reply) if reply.status == 200 else _gemini_error(reply))

    async def _openai(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        assert body["response_format"]["type"] == "json_schema"
        call = await self._note(
            request,
            prompt=body["messages"][0]["content"],
            schema=body["response_format"]["json_schema"]["schema"],
            max_tokens=body["max_tokens"],
            temperature=body["temperature"],
            seed=body["seed"],
        )
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            wrong = Reply(
                status=401, name="invalid_api_key", message=f"Wrong key: {request.headers.get('Authorization')}"
            )
            return await self._send(request, wrong, _openai_error(wrong))
        reply = self._reply(call)
        return await self._send(request, reply, _openai_body(reply) if reply.status == 200 else _openai_error(reply))

    async def _note(self, request: web.Request, **seen: Any) -> Call:
        call = Call(**seen, at=self.clock(), headers=dict(request.headers))
        self.calls.append(call)
        async with self._arrived:
            self._arrived.notify_all()
        return call

    def _reply(self, call: Call) -> Reply:
        if self.of_prompt:
            return self.of_prompt(call.prompt)
        return self.replies[min(self.calls.index(call), len(self.replies) - 1)]

    async def _send(self, request: web.Request, reply: Reply, body: Any) -> web.StreamResponse:
        data = reply.raw if reply.raw is not None else json.dumps(body).encode()
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            response = await self._play(request, reply, data)
        except (asyncio.CancelledError, ConnectionResetError):
            self.left += 1
            raise
        finally:
            self.busy -= 1
        if reply.status == 200 and reply.usage:
            self.usage = [sum(pair) for pair in zip(self.usage, reply.usage, strict=True)]
        return response

    async def _play(self, request: web.Request, reply: Reply, data: bytes) -> web.StreamResponse:
        if reply.how == "never":
            await asyncio.sleep(60)
        if reply.how == "hang_up":
            assert request.transport
            request.transport.abort()
        if reply.how == "trickle":
            response = web.StreamResponse(
                headers={"Content-Type": "application/json", "Content-Length": str(len(data))}
            )
            await response.prepare(request)
            for i in range(len(data)):
                await response.write(data[i : i + 1])
                await asyncio.sleep(0.2)
            return response
        await asyncio.sleep(0.5 if reply.how == "slow" else 0.01)
        return web.Response(status=reply.status, body=data, content_type="application/json", headers=reply.headers)


def _gemini_body(reply: Reply) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if reply.blocks_prompt:
        body["promptFeedback"] = {"blockReason": reply.blocks_prompt}
    else:
        content: dict[str, Any] = {"role": "model"}
        if reply.text is not None:
            content["parts"] = [{"text": reply.text}]
        body["candidates"] = [{"content": content, "finishReason": FINISH[reply.finish]}]
    if reply.usage:
        thoughts = min(10, reply.usage[1])  # a part of what is billed as answer
        counts = {"candidatesTokenCount": reply.usage[1] - thoughts, "thoughtsTokenCount": thoughts}
        body["usageMetadata"] = {"promptTokenCount": reply.usage[0], **counts, "totalTokenCount": sum(reply.usage)}
    return body


def _gemini_error(reply: Reply) -> dict[str, Any]:
    details: list[dict[str, Any]] = []
    if reply.quota_id:
        details.append(
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": reply.quota_id}]}
        )
    if reply.retry_delay:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": reply.retry_delay})
    return {"error": {"code": reply.status, "message": reply.message, "status": reply.name, "details": details}}


def _openai_body(reply: Reply) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.blocks_prompt:
        message = {"role": "assistant", "content": None, "refusal": reply.blocks_prompt}
    body: dict[str, Any] = {"choices": [{"index": 0, "message": message, "finish_reason": reply.finish}]}
    if reply.usage:
        body["usage"] = {"prompt_tokens": reply.usage[0], "completion_tokens": reply.usage[1]}
    return body


def _openai_error(reply: Reply) -> dict[str, Any]:
    return {"error": {"message": f"{reply.message} {reply.quota_id}".strip(), "code": reply.name}}


def _unknown(node: dict[str, Any]) -> str:
    """Return what Gemini would not take in a schema."""
    words = sorted(node.keys() - GEMINI_WORDS)
    if words:
        return f"Unknown name {words[0]}"
    if node["type"] not in ("OBJECT", "ARRAY", "STRING", "INTEGER", "NUMBER", "BOOLEAN"):
        return f"Unknown type {node['type']}"
    if node["type"] == "OBJECT" and not node.get("properties"):
        return "properties should be non-empty for OBJECT type"
    parts = [*node.get("properties", {}).values(), *([node["items"]] if "items" in node else [])]
    return next((found for part in parts if (found := _unknown(part))), "")


class VirtualClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        wakes = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, wakes)
