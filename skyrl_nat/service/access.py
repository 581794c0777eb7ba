"""Who may ask: everyone who knows the token, which lies in a file for this user alone."""

import os
import secrets
import stat
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from skyrl_nat.errors import ConfigError
from skyrl_nat.service.routes.errors import answer

TOKEN_VARIABLE = "SKYRL_NAT_SERVICE_TOKEN"
COOKIE = "skyrl_nat_token"
MIN_LETTERS = 16
OPEN_PATHS = frozenset({"/health"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def read_token(file: Path) -> tuple[str, bool]:
    """Return the token of the environment, else of the file, and whether the file was made just now.

    Raises:
        ConfigError: The token is short, or others may read its file.
    """
    if token := os.environ.get(TOKEN_VARIABLE):
        return _checked(token, TOKEN_VARIABLE), False
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _checked(_read_private(file), str(file)), False
    token = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(token + "\n")
        opened.flush()
        os.fsync(descriptor)
    return token, True


def _read_private(file: Path) -> str:
    found = file.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077 or found.st_uid != os.getuid():
        raise ConfigError(
            f"{file} must be a file that this user alone may read, it has mode {stat.S_IMODE(found.st_mode):o}. "
            f"Run `chmod 600 {file}`, or delete it for a new token"
        )
    return file.read_text(encoding="utf-8").strip()


def _checked(token: str, place: str) -> str:
    if len(token) < MIN_LETTERS or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(
            f"{place} must hold a token of at least {MIN_LETTERS} printable ASCII letters without blanks. Make one "
            "with `python -c 'import secrets; print(secrets.token_urlsafe(32))'`"
        )
    return token


class RequireToken:
    """Answers 401 for everything but `/health` where the client does not show the token; nothing of a body is read."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        """Guard an app."""
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await (self._app(scope, receive, send) if scope["type"] == "lifespan" else _refuse_socket(send))
            return
        refusal = None if scope["path"] in OPEN_PATHS else self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if entered := self._entering(scope):
            return entered
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(shown.strip()):
            return None
        if self._is_token(_cookie(headers.get("cookie", ""))):
            return None if _is_from_here(scope["method"], headers) else _not_from_here()
        text = "the header Authorization must be `Bearer TOKEN` with the service's token. A browser opens /?token=TOKEN"
        found = answer(401, "unauthorized", text)
        found.headers["WWW-Authenticate"] = "Bearer"
        return found

    def _entering(self, scope: Scope) -> Response | None:
        """Give a browser that shows the token in the address a cookie, and take it out of the address."""
        if scope["path"] != "/" or scope["method"] != "GET":
            return None
        shown = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not self._is_token(shown):
            return None
        found = RedirectResponse("/", 303, {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})
        found.set_cookie(COOKIE, shown, httponly=True, samesite="strict", secure=scope["scheme"] == "https")
        return found

    def _is_token(self, shown: str) -> bool:
        return secrets.compare_digest(shown.encode("utf-8", "surrogatepass"), self._token)


def _cookie(header: str) -> str:
    try:
        found = SimpleCookie(header).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _is_from_here(method: str, headers: Headers) -> bool:
    """Say whether a page of this service asks: a cookie is sent for pages of other ports too."""
    origin = headers.get("origin")
    return method in SAFE_METHODS or origin is None or urlsplit(origin).netloc == headers.get("host", "")


def _not_from_here() -> Response:
    return answer(403, "forbidden", "what changes something must come from this service's own page, or with a header.")


async def _refuse_socket(send: Send) -> None:
    await send({"type": "websocket.close", "code": 1008})
