"""The dashboard's routes in a real server, beside jobs that follow the service's contract and train nothing."""

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI, Header
from fastapi.responses import JSONResponse, StreamingResponse

from skyrl_nat.service.routes.errors import ServiceError, install_handlers, not_found
from skyrl_nat.service.routes.jira import jira_router
from skyrl_nat.service.routes.page import page_router
from skyrl_nat.service.routes.runs import runs_router

ENVIRONMENTS = [
    {
        "name": "jira",
        "kind": "family",
        "description": "Workflows on mock Jira issues, one tool a turn; judged by a verifier of the workflow.",
        "algorithms": ["dapo", "dr_grpo", "grpo", "gspo", "rloo"],
        "experiments": ["jira_tiny_cpu", "jira_cpu", "jira_h100x1"],
    },
    {
        "name": "nat_agent",
        "kind": "family",
        "description": "Writing NeMo Agent Toolkit agents; judged by running them in a sandbox.",
        "algorithms": ["dapo", "grpo"],
        "experiments": ["smoke_cpu", "first_experiment_h100x1"],
    },
    {
        "name": "gymnasium/FrozenLake-v1",
        "kind": "gymnasium",
        "description": "Any Gymnasium environment with discrete actions, as text.",
        "algorithms": ["grpo"],
        "experiments": [],
    },
]
TIME = "2026-11-30T14:00:00+00:00"


@dataclass
class Jobs:
    """What was asked for, and what the page is told."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    events: dict[str, list[tuple[str, dict[str, Any]]]] = field(default_factory=dict)
    is_failing: bool = False

    def add(self, name: str, state: str, **changes: Any) -> dict[str, Any]:
        """Add a job at the top of the list."""
        job = {
            "id": f"job-{len(self.jobs) + 1}",
            "environment": "jira",
            "algorithm": "grpo",
            "name": name,
            "state": state,
            "reason": None,
            "steps": 10,
            "step": None,
            "submitted_at": TIME,
            "started_at": None,
            "ended_at": None,
            "run": name,
            "overrides": [],
        } | changes
        self.jobs.insert(0, job)
        return job

    def find(self, job_id: str) -> dict[str, Any]:
        """Return a job by id."""
        found = [job for job in self.jobs if job["id"] == job_id]
        if not found:
            raise not_found("no such job")
        return found[0]


def jobs_router(jobs: Jobs) -> APIRouter:
    router = APIRouter()

    @router.get("/environments")
    def environments() -> list[dict[str, Any]]:
        if jobs.is_failing:
            raise ServiceError(503, "busy", "the catalogue must be readable, it is not. Look at the log of the service")
        return ENVIRONMENTS

    @router.post("/train/{name:path}")
    def train(name: str, wanted: dict[str, Any], idempotency_key: str = Header()) -> JSONResponse:
        jobs.asked.append({"environment": name, "key": idempotency_key, **wanted})
        if any(text.startswith("optimizer.lr=-") for text in wanted["overrides"]):
            raise ServiceError(422, "config", "optimizer.lr must be > 0, got -1. Raise it", "optimizer.lr")
        return JSONResponse(jobs.add(wanted["name"] or "jira-1430", "pending", steps=wanted["steps"]), 201)

    @router.get("/training")
    def training() -> dict[str, Any]:
        return {"jobs": jobs.jobs, "next": None}

    @router.post("/training/{job_id}/cancel")
    def cancel(job_id: str) -> dict[str, Any]:
        job = jobs.find(job_id)
        job["state"] = "cancelled"
        return job

    @router.get("/training/{job_id}/events")
    async def events(job_id: str) -> StreamingResponse:
        return StreamingResponse(event_lines(jobs, job_id), media_type="text/event-stream")

    return router


async def event_lines(jobs: Jobs, job_id: str) -> AsyncIterator[str]:
    """Yield a job's events until it is cancelled."""
    sent = 0
    while jobs.find(job_id)["state"] != "cancelled":
        for kind, data in jobs.events.get(job_id, [])[sent:]:
            sent += 1
            yield f"event: {kind}\ndata: {json.dumps(data)}\n\n"
        yield ": heartbeat\n\n"
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def serve(root: Path, jobs: Jobs) -> Iterator[str]:
    """Serve page, runs, console and jobs, and give the address."""
    app = FastAPI()
    install_handlers(app)
    for router in (page_router(), runs_router(root), jira_router(), jobs_router(jobs)):
        app.include_router(router)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server must start"
        threading.Event().wait(0.02)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)
