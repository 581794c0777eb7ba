"""Submitting: what can be trained, and `POST /train/{environment_name}`."""

from typing import Annotated

from fastapi import APIRouter, Header, Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from skyrl_nat.service.catalogue import algorithms, environments, experiments
from skyrl_nat.service.routes.errors import documented
from skyrl_nat.service.schemas import EnvironmentAnswer, JobAnswer, TrainRequest, described, read_body
from skyrl_nat.service.service import TrainingService

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="The same key with the same request gives the same job.",
    ),
]


def train_router(service: TrainingService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["train"])

    @router.get("/environments")
    def list_environments() -> list[EnvironmentAnswer]:
        """List what can be trained in, with its algorithms and experiments."""
        return [
            EnvironmentAnswer(
                name=each.name,
                kind=each.kind,
                description=each.description,
                algorithms=list(algorithms()),
                experiments=list(experiments(each.name)),
            )
            for each in environments().values()
        ]

    @router.post(
        "/train/{environment_name:path}",
        status_code=201,
        openapi_extra=described(TrainRequest),
        responses={
            200: {"model": JobAnswer, "description": "The job that came with the same Idempotency-Key before."},
            **documented(400, 404, 408, 409, 413, 415, 422, 429),
        },
    )
    async def train(
        environment_name: Annotated[str, Path(min_length=1, max_length=200)],
        request: Request,
        response: Response,
        idempotency_key: Key = None,
    ) -> JobAnswer:
        """Submit a job. It has a run folder of its own, named by its id, unless it resumes another one's."""
        wanted = await read_body(request, TrainRequest, service.settings.limits)
        job, is_new = await run_in_threadpool(service.submit, wanted, environment_name, idempotency_key)
        response.status_code = 201 if is_new else 200
        response.headers["Location"] = f"/training/{job.id}"
        return job

    return router
