"""The dashboard: one page and the files it is made of, all from this process."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import FileResponse, Response

from skyrl_nat.service.routes.errors import not_found

STATIC = Path(__file__).parent.parent / "static"
INDEX = "index.html"
HEADERS = {
    # Rollouts are written by a model: nothing that is not a file of this folder may ever run or be loaded.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A new version of the service must not meet an old page.
    "Cache-Control": "no-cache",
}
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def page_router(folder: Path = STATIC) -> APIRouter:
    """Return the routes of the page.

    Args:
        folder: Holds `index.html` and what it loads; its files are those of this moment.
    """
    files = {path.name: path for path in folder.iterdir() if path.suffix in TYPES}
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    def page() -> Response:
        return _answer(files[INDEX])

    @router.get("/static/{name}")
    def part(name: str) -> Response:
        if name not in files:
            raise not_found("the file must be a part of the page, there is none of that name. Load / again")
        return _answer(files[name])

    return router


def _answer(path: Path) -> Response:
    return FileResponse(path, media_type=TYPES[path.suffix], headers=HEADERS)
