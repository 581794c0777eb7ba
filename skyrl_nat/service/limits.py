"""Bounds for clients that send too much, or too slowly."""

import asyncio
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skyrl_nat.service.routes.errors import ServiceError, answer
from skyrl_nat.service.settings import Limits


class BoundedExchange:
    """Reads a body whole before the app begins, within a size and a time.

    So nothing is begun for a request that never becomes whole.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        """Guard an app."""
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read, run and answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._body(Headers(scope=scope), receive)
        except ServiceError as error:
            found = answer(error.status, error.code, str(error))
            # What is still to come of the body would be taken for the next request.
            found.headers["Connection"] = "close"
            await found(scope, receive, send)
            return
        if body is None:
            return
        pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_read() -> Message:
            return pending.pop() if pending else await receive()

        await self._app(scope, receive_read, send)

    async def _body(self, headers: Headers, receive: Receive) -> bytes | None:
        """Return the body, None where the client has gone.

        Raises:
            ServiceError: It is too large, or too slow.
        """
        limits = self._limits
        announced = headers.get("content-length", "0")
        if not announced.isdecimal() or len(announced) > 12 or int(announced) > limits.max_body_bytes:
            raise _too_large(limits)
        parts: list[bytes] = []
        size, is_more = 0, True
        try:
            async with asyncio.timeout(limits.body_timeout_s):
                while is_more:
                    message: dict[str, Any] = dict(await receive())
                    if message["type"] == "http.disconnect":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    is_more = message.get("more_body", False)
                    if size > limits.max_body_bytes:
                        raise _too_large(limits)
        except TimeoutError:
            raise ServiceError(
                408, "timeout", f"a body must come whole within {limits.body_timeout_s:g} s. Send it again"
            ) from None
        return b"".join(parts)


def _too_large(limits: Limits) -> ServiceError:
    return ServiceError(413, "too_large", f"a body must have at most {limits.max_body_bytes} bytes. Send less")
