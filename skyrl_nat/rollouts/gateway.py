"""An OpenAI-compatible server before the policy: whoever plays an episode through it is trained on exact tokens."""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Self
from urllib.parse import quote

from aiohttp import web

from skyrl_nat.errors import WorkerError
from skyrl_nat.rollouts.chat_request import RefusedError, parse_request
from skyrl_nat.rollouts.chat_response import completion_body, error_body, models_body, stream_events
from skyrl_nat.rollouts.gateway_session import GatewaySession
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess

MAX_BODY_BYTES = 4 * 1024**2
SHUTDOWN_S = 5.0
IGNORED_HEADER = "x-skyrl-nat-ignored"
"""Names the sampling settings of a request in whose place the run's own were used."""

_logger = logging.getLogger(__name__)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """The server and its sessions; an async context manager.

    A session is named by the path (`/rollouts/NAME/v1`) or, under the plain `/v1`, by its key alone.
    """

    def __init__(self, policy: PolicyAccess) -> None:
        """Take the policy; listens on `rollout.gateway_host` and `rollout.gateway_port` once entered."""
        self._policy = policy
        self._sessions: dict[str, GatewaySession] = {}
        self._runner: web.AppRunner | None = None
        self._address = ""

    async def __aenter__(self) -> Self:
        """Start to listen.

        Raises:
            WorkerError: The address cannot be had.
        """
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[in_openai_shape])
        for prefix in ("/v1", "/rollouts/{name}/v1"):
            app.router.add_post(f"{prefix}/chat/completions", self._complete)
            app.router.add_get(f"{prefix}/models", self._list_models)
        # A client that goes away cancels its handler, and with it the generation.
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=SHUTDOWN_S)
        config = self._policy.config
        await runner.setup()
        self._runner = runner
        try:
            await web.TCPSite(runner, config.gateway_host, config.gateway_port).start()
        except OSError as error:
            await runner.cleanup()
            raise WorkerError(
                f"rollout.gateway_host and rollout.gateway_port must be an address to listen on, found: {error}. "
                "Choose another or set gateway_port=0"
            ) from error
        host = f"[{config.gateway_host}]" if ":" in config.gateway_host else config.gateway_host
        self._address = f"http://{host}:{runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *exception: object) -> None:
        """End all sessions and stop listening."""
        for session in list(self._sessions.values()):
            self.close(session)
        if self._runner is not None:
            await self._runner.cleanup()

    def open(self, attempt: Attempt) -> GatewaySession:
        """Open a session for an attempt, whose name must be unique among the open ones."""
        if attempt.name in self._sessions:
            raise WorkerError(f"A session's name must be unique, got {attempt.name!r} again. Close it first")
        session = GatewaySession(self._policy, attempt)
        self._sessions[attempt.name] = session
        return session

    def close(self, session: GatewaySession) -> None:
        """End a session: what still runs is cancelled, and nothing more is recorded."""
        session.end()
        self._sessions.pop(session.attempt.name, None)

    def base_url(self, session: GatewaySession) -> str:
        """Return the base URL that an OpenAI client takes."""
        return f"{self._address}/rollouts/{quote(session.attempt.name, safe='')}/v1"

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        session = self._find(request)
        chat = parse_request(await request.read(), session.attempt.temperature)
        answer = await session.answer(chat)
        headers = {IGNORED_HEADER: ",".join(chat.ignored)} if chat.ignored else {}
        if not chat.is_stream:
            return web.json_response(completion_body(answer), headers=headers)
        events = "".join(stream_events(answer, chat))
        return web.Response(text=events, content_type="text/event-stream", headers=headers)

    async def _list_models(self, request: web.Request) -> web.StreamResponse:
        self._find(request)
        return web.json_response(models_body())

    def _find(self, request: web.Request) -> GatewaySession:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ").encode(errors="replace")
        name = request.match_info.get("name")
        candidates = list(self._sessions.values()) if name is None else [self._sessions.get(name)]
        if candidates == [None]:
            raise RefusedError(404, "unknown_rollout", f"The rollout must be open, {name!r} is not. Check the URL")
        for session in candidates:
            if session is not None and hmac.compare_digest(session.api_key.encode(), key):
                return session
        raise RefusedError(401, "invalid_api_key", "The API key must be the rollout's own, and is not. Check it")


@web.middleware
async def in_openai_shape(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Turn whatever goes wrong into OpenAI's error object."""
    try:
        return await handler(request)
    except RefusedError as error:
        refused = error
    except web.HTTPException as error:
        refused = RefusedError(error.status, "http_error", f"{error.reason} at {request.method} {request.path}")
    except Exception:
        _logger.exception("the gateway failed on %s", request.path)
        refused = RefusedError(500, "gateway_failure", "The gateway must answer, and failed. See the run's log")
    # OpenAI's client asks again after a 5xx; what failed here stays failed.
    return web.json_response(error_body(refused), status=refused.status, headers={"x-should-retry": "false"})
