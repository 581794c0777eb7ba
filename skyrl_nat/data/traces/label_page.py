"""A page for labelling traces by hand, served on this machine."""

import base64
import getpass
import hashlib
import ipaddress
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from skyrl_nat.data.traces.auto_label import CONFIDENCE, REASON
from skyrl_nat.data.traces.labels import LabelEvent, LabelFile, Mark
from skyrl_nat.data.traces.record import Trace, TraceStep
from skyrl_nat.data.traces.verdicts import PARTS, SUGGESTED, label_of, parse_reward
from skyrl_nat.errors import ConfigError, DataError

PAGE = Path(__file__).with_suffix(".html")
DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8390
MAX_LISTED_CHARS = 160
MAX_BODY_BYTES = 65_536
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_logger = logging.getLogger(__name__)


def serve_labels(
    traces: Sequence[Trace], labels_file: Path, *, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, by: str = ""
) -> None:
    """Serve the page until it is interrupted.

    Args:
        traces: In the order in which they are shown; see `auto_label.review_order`.
        labels_file: Where marks are added, at once.
        host: The page has no password; anything but this machine's own address lets others read and label.
        port: 0 takes any that is free.
        by: Who labels; empty takes the name of the user.

    Raises:
        DataError: There are no traces, two have one id, or the file cannot be read.
        ConfigError: The address cannot be had.
    """
    app = make_app(traces, LabelFile(labels_file), by=by or getpass.getuser(), is_local=names_this_machine(host))
    if not names_this_machine(host):
        _logger.warning("%s is no address of this machine alone: whoever reaches it can read and label traces", host)
    try:
        web.run_app(app, host=host, port=port, access_log=None)
    except OSError as error:
        raise ConfigError(f"host and port must be an address to listen on, found: {error}. Choose another") from error


def make_app(traces: Sequence[Trace], labels: LabelFile, *, by: str, is_local: bool = True) -> web.Application:
    """Return the page and what it asks for: `/api/traces`, `/api/traces/<index>` and `/api/marks`.

    Args:
        traces: Shown in this order.
        labels: Where marks are added.
        by: Who labels.
        is_local: Whether requests that name another host are refused, so that no foreign page can reach this one.

    Raises:
        DataError: There are no traces, two have one id, or the file cannot be read.
    """
    twice = [trace_id for trace_id, count in Counter(trace.trace_id for trace in traces).items() if count > 1]
    if not traces or twice:
        found = f"{len(twice)} ids twice ({', '.join(twice[:3])})" if twice else "none"
        raise DataError(f"There must be traces to label, each with an id of its own, got {found}. Collect them first")
    desk = _Desk(traces, labels, by)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guard(is_local)])
    app.router.add_get("/", desk.page)
    app.router.add_get("/api/traces", desk.list_traces)
    app.router.add_get("/api/traces/{index:[0-9]{1,9}}", desk.show_trace)
    app.router.add_post("/api/marks", desk.mark)
    return app


class _Desk:
    """The handlers."""

    def __init__(self, traces: Sequence[Trace], labels: LabelFile, by: str) -> None:
        self._traces = traces
        self._ids = {trace.trace_id for trace in traces}
        self._labels = labels
        self._by = by
        labels.marks()  # a file that cannot be read is refused before anything is shown
        self._page = PAGE.read_text(encoding="utf-8")
        self._policy = _content_policy(self._page)

    async def page(self, request: web.Request) -> web.Response:
        headers = {"Content-Security-Policy": self._policy, "Cache-Control": "no-store"}
        return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def list_traces(self, request: web.Request) -> web.Response:
        marks = self._labels.marks()
        listed = [_line(trace, marks.get(trace.trace_id)) for trace in self._traces]
        return web.json_response({"by": self._by, "traces": listed})

    async def show_trace(self, request: web.Request) -> web.Response:
        index = int(request.match_info["index"])
        if index >= len(self._traces):
            return _refuse(404, f"There are {len(self._traces)} traces, got index {index}")
        trace = self._traces[index]
        return web.json_response(_whole(trace, self._labels.marks().get(trace.trace_id)))

    async def mark(self, request: web.Request) -> web.Response:
        try:
            values = await request.json()
            trace_id, mark = values["trace_id"], Mark(values["mark"])
        except (ValueError, KeyError, TypeError):
            return _refuse(400, f"A mark must be JSON with trace_id and mark ({', '.join(Mark)})")
        if not isinstance(trace_id, str) or trace_id not in self._ids:
            return _refuse(404, f"No trace is called {str(trace_id)[:80]!r}")
        try:
            self._labels.add(trace_id, mark, by=self._by)
        except (DataError, OSError) as error:
            return _refuse(409, f"The mark was not saved: {error}")
        standing = self._labels.marks().get(trace_id)
        return web.json_response({"mark": standing and _mark(standing)})


def _guard(is_local: bool) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse what another page of the same browser may have sent."""
        named = urlsplit(f"//{request.host}").hostname or ""
        if is_local and not names_this_machine(named):
            return _refuse(403, f"The page is for this machine alone, got the host {named!r}")
        origin = request.headers.get("Origin")
        is_foreign = origin is not None and urlsplit(origin).netloc != request.host
        if request.method == "POST" and (is_foreign or request.content_type != "application/json"):
            return _refuse(403, "A mark must come from this page, as application/json")
        return await handler(request)

    return guard


def names_this_machine(host: str) -> bool:
    """Return whether a host is an address of this machine that no other one reaches."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _content_policy(page: str) -> str:
    """Allow the page's own script and style, by their hashes, and nothing else."""
    allowed = {
        tag: " ".join(f"'sha256-{_digest(text)}'" for text in re.findall(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL))
        for tag in ("script", "style")
    }
    return (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _line(trace: Trace, event: LabelEvent | None) -> dict[str, Any]:
    return {
        "trace_id": trace.trace_id,
        "source": trace.source,
        "outcome": trace.outcome,
        "request": " ".join(trace.request[: 2 * MAX_LISTED_CHARS].split())[:MAX_LISTED_CHARS],
        "mark": event.mark if event else None,
    }


def _whole(trace: Trace, event: LabelEvent | None) -> dict[str, Any]:
    parts = trace.labels.get(PARTS)
    suggested = label_of(trace, SUGGESTED)
    facts = {
        "source": trace.source,
        "outcome": trace.outcome,
        "agent": trace.agent,
        "model": trace.model,
        "task": trace.task_id,
        "started": trace.started_at[:19].replace("T", " "),
        "seconds": _finite(trace.seconds),
        "reward": parse_reward(trace.reward)[0],
        "trace": trace.trace_id,
    }
    return {
        "trace_id": trace.trace_id,
        "request": trace.request,
        "facts": {name: value for name, value in facts.items() if value not in ("", None)},
        "steps": [_step(step) for step in trace.steps],
        "files": trace.files,
        "parts": {name: value for name, value in parts.items() if _finite(value) is not None} if parts else {},
        "suggestion": suggested
        if suggested is None
        else {
            "is_good": suggested,
            "confidence": _finite(trace.labels.get(CONFIDENCE)),
            "reason": str(trace.labels.get(REASON, "")),
        },
        "mark": event and _mark(event),
    }


def _step(step: TraceStep) -> dict[str, Any]:
    return {
        "kind": step.kind,
        "role": step.role,
        "text": step.text,
        "tool": step.tool,
        "arguments": "\n".join(f"{name}: {_shown(value)}" for name, value in step.arguments.items()),
        "is_error": step.is_error,
        "seconds": _finite(step.seconds),
        "tokens": step.num_completion_tokens,
    }


def _shown(value: Any) -> str:
    """Return a value as somebody reads it: texts keep their lines."""
    if isinstance(value, str):
        return f"\n{value}" if "\n" in value else value
    return json.dumps(value, indent=2, default=str, ensure_ascii=False)


def _mark(event: LabelEvent) -> dict[str, str]:
    return {"mark": event.mark, "by": event.by, "at": event.at}


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None


def _refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
