"""The log of a deployment: JSON lines, each with the id of the request that it belongs to.

Whatever any part of the package logs while a request is served gets that request's id. Texts of users are not logged.
"""

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request that is being served; empty outside of one."""
_ROOT = "skyrl_nat"
_logger = logging.getLogger(__name__)


def say(event: str, **fields: Any) -> None:
    """Log an event with its fields."""
    _logger.info(event, extra={"fields": fields})


@contextlib.contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Write what the package logs to a file that only grows."""
    handler = _JsonLines(path)
    root = logging.getLogger(_ROOT)
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


@contextlib.contextmanager
def serving(name: str) -> Iterator[None]:
    """Give everything logged inside a request's id."""
    token = request_id.set(name)
    try:
        yield
    finally:
        request_id.reset(token)


class _JsonLines(logging.Handler):
    """Writes records as JSON lines; a full disk must not end a request."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = open_lines(path)
        mend_lines(self._file, path)

    def emit(self, record: logging.LogRecord) -> None:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "request_id": request_id.get(),
            "event": record.getMessage(),
            "where": record.name,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = logging.Formatter().formatException(record.exc_info)
        try:
            append_lines(self._file, encode_line(line))
        except (OSError, TypeError, ValueError):
            self.handleError(record)

    def close(self) -> None:
        self._file.close()
        super().close()
