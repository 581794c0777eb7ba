"""What a request is told that cannot be met: always `{"error": {"code", "message", "field"}}`."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

_PLACES = ("body", "query", "path", "header")


class RefusalError(Exception):
    """A request cannot be met, and why."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        """Say what the answer is.

        Args:
            status: HTTP status.
            code: For programs, for instance `not_found`.
            message: For people: what must hold, what was found, what to do.
            field: Of the request, with dots; None where it is not about one.
        """
        super().__init__(message)
        self.status = status
        self.code = code
        self.field = field

    def answer(self) -> JSONResponse:
        """Return the HTTP response."""
        error = {"code": self.code, "message": str(self), "field": self.field}
        return JSONResponse({"error": error}, status_code=self.status)


def not_found(message: str, field: str | None = None) -> RefusalError:
    """Return the refusal of something that is not there."""
    return RefusalError(404, "not_found", message, field)


class RefusingRoute(APIRoute):
    """A route whose refusals have the one shape, whatever app it is part of."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler with refusals turned into answers."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except RefusalError as error:
                return error.answer()
            except RequestValidationError as error:
                return _invalid(error).answer()

        return answer


def _invalid(error: RequestValidationError) -> RefusalError:
    """Return the refusal of a request whose form is wrong, about its first fault."""
    first = error.errors()[0]
    place = [str(part) for part in first.get("loc", ()) if part not in _PLACES]
    field = ".".join(place) or None
    return RefusalError(422, "invalid", f"{field or 'the request'}: {first.get('msg', 'is not valid')}", field)
