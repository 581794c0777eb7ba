"""Jobs: listed, seen, followed and cancelled."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import PlainTextResponse, Response

from skyrl_nat.service.events import EventStreams
from skyrl_nat.service.routes.errors import documented
from skyrl_nat.service.schemas import JOB_ID, JobAnswer, JobId, JobList
from skyrl_nat.service.service import TrainingService
from skyrl_nat.service.store import State


def _content(kind: str) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {kind: {"schema": {"type": "string"}}}, "description": "As it is."}}


def training_router(service: TrainingService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/training", tags=["training"])
    streams = EventStreams(service)

    @router.get("", responses=documented(404, 422))
    def list_jobs(
        state: State | None = None,
        limit: Annotated[int, Query(ge=1, le=200)] = 50,
        before: Annotated[str | None, Query(pattern=JOB_ID, description="`next` of the page before.")] = None,
    ) -> JobList:
        """List jobs, the newest first."""
        return service.page(state, before, limit)

    @router.get("/{job_id}", responses=documented(404, 422))
    def show_job(job_id: JobId) -> JobAnswer:
        """Return a job with its newest metrics."""
        return service.answer(service.job(job_id), has_metrics=True)

    @router.post("/{job_id}/cancel", responses=documented(404, 422))
    def cancel_job(job_id: JobId) -> JobAnswer:
        """Let a job save its step and end; one that is over stays as it is."""
        return service.cancel(job_id)

    @router.get(
        "/{job_id}/logs",
        response_class=Response,
        responses={**_content("text/plain"), **documented(404, 422)},
    )
    def show_logs(job_id: JobId, tail: Annotated[int, Query(ge=1, le=10_000)] = 200) -> Response:
        """Return the last lines that the trainer printed."""
        return PlainTextResponse(service.logs(job_id, tail))

    @router.get(
        "/{job_id}/events",
        response_class=Response,
        responses={**_content("text/event-stream"), **documented(404, 422, 503)},
    )
    async def follow_job(
        job_id: JobId, last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None
    ) -> Response:
        """Follow a job: `metrics` for each line of its metrics, `state` for each change, until it is over."""
        return streams.open(job_id, last_event_id)

    return router
