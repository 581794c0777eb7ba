"""The HTTP front: agents on request. JSON in and out, a key where one is set, one shape for every error."""

import asyncio
import hmac
import json
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from skyrl_nat.data.traces.label_page import names_this_machine
from skyrl_nat.deploy.admission import Admission, BusyError
from skyrl_nat.deploy.agent_folder import archive, read_record
from skyrl_nat.deploy.feedback import AGENTS, FeedbackFile
from skyrl_nat.deploy.flag import TrainedSwitch
from skyrl_nat.deploy.log import say, serving
from skyrl_nat.deploy.pipeline import AgentRequest, Progress
from skyrl_nat.errors import ConfigError, DataError, SkyRLNatError, StoppedError
from skyrl_nat.feature_flag import FlagOutcome
from skyrl_nat.monitoring.deployment_metrics import DeploymentMetrics
from skyrl_nat.strict_json import parse_json

MAX_BODY_BYTES = 65_536
MAX_TEXT_CHARS = 8000
MAX_USER_CHARS = 200
MAX_REMEMBERED = 1000
"""Failed creations that can still be asked for."""
_ID = re.compile(r"[0-9a-f]{32}")
_OPEN = ("/health",)
"""Paths without a key."""
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Create = Callable[[AgentRequest, str, Progress], Awaitable[dict[str, Any]]]


class RefusedError(Exception):
    """A request that is not served as it is."""

    def __init__(self, status: int, code: str, message: str, **more: Any) -> None:
        """Take an HTTP status, a code for programs, a sentence for people, and further fields of the answer."""
        super().__init__(message)
        self.status, self.code, self.more = int(status), code, more


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """What the front needs."""

    create: Create
    """`AgentPipeline.create`."""
    switch: TrainedSwitch
    admission: Admission
    folder: Path
    """Of the deployment."""
    deadline_s: float
    """Of one creation, its time in the queue included."""
    key: str = ""
    """Empty asks for none; only for addresses of this machine alone."""
    describe_model: Callable[[], Mapping[str, Any]] = dict
    """Says what is served now: `name`, `is_alive`, …"""


def make_app(front: Front) -> web.Application:
    """Return the app: `POST /agents`, `GET /agents/{id}`, its `archive` and `feedback`, `/health` and `/metrics`."""
    desk = _Desk(front)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_in_one_shape, _guard(front.key)])
    app.router.add_post("/agents", desk.create)
    app.router.add_get("/agents/{id}", desk.show)
    app.router.add_get("/agents/{id}/archive", desk.archive)
    app.router.add_post("/agents/{id}/feedback", desk.feedback)
    app.router.add_get("/health", desk.health)
    app.router.add_get("/metrics", desk.metrics)
    app.on_shutdown.append(desk.stop)
    return app


def require_safe(host: str, key: str) -> None:
    """Refuse to listen for others without a key.

    Raises:
        ConfigError: With what to do.
    """
    if not key and not names_this_machine(host):
        raise ConfigError(
            f"--host must be an address of this machine alone where no key is set, got {host}. Export a key and name "
            "its variable with --key-env"
        )


class _Desk:
    """The handlers."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._feedback = FeedbackFile(front.folder)
        self._metrics = DeploymentMetrics()
        self._under_way: dict[str, Progress] = {}
        self._background: set[asyncio.Task[None]] = set()
        self._failed: OrderedDict[str, RefusedError] = OrderedDict()

    async def create(self, request: web.Request) -> web.StreamResponse:
        """Create an agent and answer when it is made; with `Prefer: respond-async` answer at once with its id."""
        wanted = _agent_request(await _read(request))
        agent_id = secrets.token_hex(16)
        headers = {"X-Request-ID": agent_id, "Location": f"/agents/{agent_id}"}
        if "respond-async" in request.headers.get("Prefer", ""):
            self._front.admission.require_room()
            task = asyncio.create_task(self._run_alone(wanted, agent_id))
            self._background.add(task)
            task.add_done_callback(self._background.discard)
            body = {"agent_id": agent_id, "status": "running"}
            return web.json_response(body, status=HTTPStatus.ACCEPTED, headers=headers)
        record = await self._counted(wanted, agent_id)
        return web.json_response({"status": "done", **record}, status=HTTPStatus.CREATED, headers=headers)

    async def show(self, request: web.Request) -> web.Response:
        """Say how far an agent is; of one that is made, everything that was recorded."""
        agent_id = _id_of(request)
        if (progress := self._under_way.get(agent_id)) is not None:
            return web.json_response({"agent_id": agent_id, "status": "running", "phase": progress.phase})
        if (failed := self._failed.get(agent_id)) is not None:
            return web.json_response({"agent_id": agent_id, "status": "failed", **_error_body(failed)})
        return web.json_response({"status": "done", **self._record(agent_id)})

    async def archive(self, request: web.Request) -> web.Response:
        """Give an agent's files as a .tar.gz."""
        agent_id = _id_of(request)
        name = self._record(agent_id)["name"]
        data = await asyncio.to_thread(archive, self._front.folder / AGENTS / agent_id)
        headers = {"Content-Disposition": f'attachment; filename="{re.sub("[^A-Za-z0-9_-]", "_", name)}.tar.gz"'}
        return web.Response(body=data, content_type="application/gzip", headers=headers)

    async def feedback(self, request: web.Request) -> web.Response:
        """Take what a user says of an agent: `user_id`, `rating`, and a `comment` if there is one."""
        agent_id = _id_of(request)
        self._record(agent_id)
        data = _only(await _read(request), {"user_id", "rating"}, {"comment"})
        user, rating = _text(data, "user_id", MAX_USER_CHARS), _text(data, "rating", MAX_USER_CHARS)
        comment = data.get("comment", "")
        if not isinstance(comment, str):
            raise RefusedError(422, "invalid_request", "comment must be text. Change the request")
        with serving(agent_id):
            said = await asyncio.to_thread(self._feedback.add, agent_id, user, rating, comment)
            say("feedback", rating=said.rating, user=said.user)
        self._metrics.feedback(said.rating)
        return web.json_response({"agent_id": agent_id, "rating": said.rating, "at": said.at}, status=201)

    async def health(self, request: web.Request) -> web.Response:
        """Say whether the model lives, what it is, and how many requests run, wait and were refused."""
        front = self._front
        model = dict(front.describe_model())
        return web.json_response(
            {
                # Without the model the code behind it still answers.
                "status": "ok" if model.get("is_alive") else "degraded",
                "model": model,
                "running": front.admission.num_running,
                "waiting": front.admission.num_waiting,
                "refused": front.admission.num_refused,
                "outcomes": front.switch.counts.to_dict(),
            }
        )

    async def metrics(self, request: web.Request) -> web.Response:
        """Give all metrics in Prometheus' text format."""
        body, kind = self._metrics.page()
        return web.Response(body=body, headers={"Content-Type": kind})

    async def stop(self, app: web.Application) -> None:
        """End what runs in the background."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    async def _run_alone(self, wanted: AgentRequest, agent_id: str) -> None:
        try:
            await self._counted(wanted, agent_id)
        except RefusedError as error:
            self._failed[agent_id] = error
        except Exception as error:  # noqa: BLE001 - the border of one request
            self._failed[agent_id] = _refused(error)
        if len(self._failed) > MAX_REMEMBERED:
            self._failed.popitem(last=False)

    async def _counted(self, wanted: AgentRequest, agent_id: str) -> dict[str, Any]:
        """Create an agent, and let Prometheus know; what a user did wrong is no error of the deployment."""
        refused: RefusedError | None = None
        with self._metrics.request() as note:
            try:
                record = await self._run(wanted, agent_id)
            except RefusedError as error:
                refused, record = error, {}
                note.outcome = "error" if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR else error.code
        if refused is not None:
            raise refused
        for phase, seconds in record["seconds"].items():
            self._metrics.phase(phase, seconds)
        if record["outcome"] != FlagOutcome.trained:
            self._metrics.fallback(record["outcome"])
        self._metrics.verdict(record["validation"]["is_success"])
        return record

    async def _run(self, wanted: AgentRequest, agent_id: str) -> dict[str, Any]:
        """Create an agent within the deadline; what goes wrong says in which phase."""
        progress = self._under_way[agent_id] = Progress()
        limit = asyncio.timeout(self._front.deadline_s)
        with serving(agent_id):
            say("request", num_chars=len(wanted.text), difficulty=wanted.difficulty)
            try:
                async with limit, self._front.admission.admitted():
                    return await self._front.create(wanted, agent_id, progress)
            except TimeoutError as error:
                failed = _late(self._front.deadline_s, progress) if limit.expired() else _refused(error)
                raise self._noted(failed, progress) from error
            except Exception as error:
                raise self._noted(_refused(error), progress) from error
            finally:
                del self._under_way[agent_id]

    def _noted(self, failed: RefusedError, progress: Progress) -> RefusedError:
        say("request failed", status=failed.status, code=failed.code, phase=progress.phase, reason=str(failed))
        failed.more.setdefault("phase", progress.phase)
        return failed

    def _record(self, agent_id: str) -> dict[str, Any]:
        record = read_record(self._front.folder / AGENTS / agent_id)
        if record is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "unknown_agent", "No agent has this id. Check it")
        return record


def _refused(error: Exception) -> RefusedError:
    """Return what an exception means to who asked."""
    if isinstance(error, BusyError):
        return RefusedError(429, "busy", str(error), retry_after_s=error.again_s)
    if isinstance(error, StoppedError | ConfigError):
        return RefusedError(503, "planner_unavailable", str(error))
    if isinstance(error, DataError):
        return RefusedError(422, "no_sound_plan", str(error))
    if isinstance(error, SkyRLNatError):
        return RefusedError(502, "creation_failed", str(error))
    return RefusedError(500, "internal", f"The service must answer, and failed: {type(error).__name__}. See its log")


def _late(deadline_s: float, progress: Progress) -> RefusedError:
    message = f"An agent must be there within {deadline_s:g} s, the phase {progress.phase} was under way. Ask again"
    return RefusedError(504, "deadline", message, phase=progress.phase, seconds=progress.seconds)


@web.middleware
async def _in_one_shape(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Turn whatever goes wrong into one shape of error."""
    try:
        return await handler(request)
    except RefusedError as error:
        refused = error
    except web.HTTPException as error:
        refused = RefusedError(error.status, "http_error", f"{error.reason} at {request.method} {request.path[:200]}")
    except Exception as error:  # noqa: BLE001 - the border of one request
        refused = _refused(error)
        if refused.status == HTTPStatus.INTERNAL_SERVER_ERROR:
            say("request failed", status=refused.status, reason=f"{type(error).__name__}: {error}")
    headers = {"Retry-After": str(refused.more["retry_after_s"])} if "retry_after_s" in refused.more else {}
    return web.json_response(_error_body(refused), status=refused.status, headers=headers)


def _error_body(error: RefusedError) -> dict[str, Any]:
    return {"error": {"code": error.code, "message": str(error), **error.more}}


def _guard(key: str) -> Any:
    @web.middleware
    async def guard(request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Let nobody in without the key; without one, nobody who names another machine."""
        if request.path in _OPEN:
            return await handler(request)
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if key and not hmac.compare_digest(given.encode(errors="replace"), key.encode()):
            raise RefusedError(401, "unauthorized", "Authorization must be Bearer and the service's key. Send it")
        if not key and not names_this_machine(urlsplit(f"//{request.host}").hostname or ""):
            raise RefusedError(403, "foreign_host", "Without a key the service is for this machine alone. Set one")
        if request.method == "POST" and request.content_type != "application/json":
            raise RefusedError(415, "no_json", "Content-Type must be application/json. Send JSON")
        return await handler(request)

    return guard


async def _read(request: web.Request) -> dict[str, Any]:
    try:
        data = parse_json(await request.read())
        # Halves of characters can be written in JSON, but neither logged nor planned with.
        json.dumps(data, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "invalid_json", "The body must be JSON. Send an object") from error
    if not isinstance(data, dict):
        raise RefusedError(422, "invalid_request", "The body must be an object. Send one")
    return data


def _only(data: dict[str, Any], required: set[str], optional: set[str]) -> dict[str, Any]:
    missing, unknown = sorted(required - set(data)), sorted(set(data) - required - optional)
    if missing or unknown:
        message = f"The body must have {', '.join(sorted(required))}, missing are {missing}, unknown are {unknown[:5]}"
        raise RefusedError(422, "invalid_request", f"{message}. Change the request")
    return data


def _text(data: Mapping[str, Any], name: str, limit: int) -> str:
    value = data[name]
    if not isinstance(value, str) or not value.strip() or len(value) > limit:
        raise RefusedError(422, "invalid_request", f"{name} must be 1 to {limit} characters. Change the request")
    return value


def _agent_request(data: dict[str, Any]) -> AgentRequest:
    _only(data, {"request", "user_id"}, {"difficulty"})
    difficulty = data.get("difficulty", 3)
    if type(difficulty) is not int or not 1 <= difficulty <= 5:
        raise RefusedError(422, "invalid_request", "difficulty must be a whole number in 1..5. Change the request")
    text, user = _text(data, "request", MAX_TEXT_CHARS), _text(data, "user_id", MAX_USER_CHARS)
    return AgentRequest(text=text.strip(), user_id=user, difficulty=difficulty)


def _id_of(request: web.Request) -> str:
    agent_id = request.match_info["id"]
    if not _ID.fullmatch(agent_id):
        raise RefusedError(HTTPStatus.NOT_FOUND, "unknown_agent", "No agent has this id. Check it")
    return agent_id
