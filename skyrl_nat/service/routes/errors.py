"""Errors as clients see them: one shape for all, a sentence, and never a stack."""

import logging
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException

logger = logging.getLogger(__name__)
CONFIG_KEY = re.compile(r"([a-z_]\w*(?:\.\w+)*) must ")
MAX_TEXT = 600


class ErrorBody(BaseModel):
    """What went wrong."""

    code: str
    """A word for programs."""
    message: str
    """A sentence for people."""
    field: str | None
    """Path in the body, or the config key, where there is one."""


class ErrorAnswer(BaseModel):
    """Every answer that is an error."""

    error: ErrorBody


class ServiceError(Exception):
    """An answer of 4xx or 5xx."""

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        """Say what.

        Args:
            status: HTTP's.
            code: A word.
            message: What must hold, what was found, what to do.
            field: Path in the body, or a config key.
        """
        super().__init__(message)
        self.status, self.code, self.field = status, code, field


class NotFoundError(ServiceError):
    """There is no such thing, or it is not the client's: the same answer for both."""

    def __init__(self, what: str) -> None:
        """Name the kind of thing, not the one that was asked for."""
        super().__init__(404, "not_found", f"{what} must exist, there is none of this name. List them first")


def not_found(message: str, field: str | None = None) -> ServiceError:
    """Return the answer for something that is not there, in words of its own."""
    return ServiceError(404, "not_found", message, field)


def answer(status: int, code: str, message: str, field: str | None = None) -> JSONResponse:
    """Return an error in the shape of all."""
    body = ErrorAnswer(error=ErrorBody(code=code, message=message[:MAX_TEXT], field=field))
    return JSONResponse(body.model_dump(), status)


def config_field(message: str, default: str) -> str:
    """Return the config key that an error of the config begins with."""
    found = CONFIG_KEY.match(message)
    return found[1] if found else default


def refusal(errors: list[ErrorDetails]) -> ServiceError:
    """Return what pydantic found first; values are not repeated, since they may be anything."""
    first = errors[0]
    place = ".".join(str(part) for part in first["loc"])
    return ServiceError(422, "invalid", f"{place or 'the body'} cannot be taken: {first['msg']}", place or None)


def documented(*statuses: int) -> dict[int | str, dict[str, object]]:
    """Return OpenAPI's description of errors."""
    return {status: {"model": ErrorAnswer, "description": HTTPStatus(status).phrase} for status in statuses}


def install_handlers(app: FastAPI) -> None:
    """Let every error of an app have the one shape."""

    async def on_service_error(_: Request, error: ServiceError) -> Response:
        return answer(error.status, error.code, str(error), error.field)

    async def on_http_error(_: Request, error: HTTPException) -> Response:
        found = answer(error.status_code, HTTPStatus(error.status_code).name.lower(), f"{error.detail}.")
        found.headers.update(error.headers or {})
        return found

    async def on_invalid(_: Request, error: RequestValidationError) -> Response:
        found = [{**each, "loc": tuple(each["loc"])[1:]} for each in error.errors()]
        refused = refusal(found)  # pyright: ignore[reportArgumentType]
        return answer(refused.status, refused.code, str(refused), refused.field)

    async def on_fault(request: Request, error: Exception) -> Response:
        logger.error("a request of %s failed", request.url.path, exc_info=error)
        return answer(500, "internal", "the service must answer, but has a fault here. Its log says which")

    handlers: dict[type[Exception], Callable[..., Awaitable[Response]]] = {
        ServiceError: on_service_error,
        HTTPException: on_http_error,
        RequestValidationError: on_invalid,
        Exception: on_fault,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
