"""What travels: requests are strict, answers are what `docs/service.md` shows."""

import hashlib
import json
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Path, Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from skyrl_nat.service.routes.errors import ServiceError, refusal
from skyrl_nat.service.settings import Limits
from skyrl_nat.service.store import Job, State
from skyrl_nat.strict_json import parse_untrusted

JOB_ID = r"^job-[0-9a-f]{16}$"
WORD = r"^[A-Za-z0-9][A-Za-z0-9_]{0,63}$"
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""One folder name: no slash, and not hidden."""
PLAIN = r"^[^\x00-\x1f\x7f]+$"
JobId = Annotated[str, Path(pattern=JOB_ID, description="As POST /train answers it.")]
Body = TypeVar("Body", bound=BaseModel)
Override = Annotated[str, Field(min_length=3, max_length=1000, pattern=PLAIN)]


class TrainRequest(BaseModel):
    """Body of `POST /train/{environment_name}`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    algorithm: str = Field("grpo", pattern=WORD, description="A preset of conf/algorithm.")
    experiment: str | None = Field(None, pattern=WORD, description="A preset of conf/experiment of the environment.")
    steps: int = Field(ge=1, le=10_000_000, description="Batches to train.")
    seed: int = Field(0, ge=0, le=2**31 - 1)
    name: str | None = Field(
        None, pattern=NAME, description="What you call it; with resume, the run folder that is to go on."
    )
    overrides: list[Override] = Field([], max_length=100, description="KEY=VALUE, as of `skyrl-nat train`.")
    resume: bool = Field(False, description="Go on in the run folder `name` from its newest checkpoint.")

    def hash(self, environment: str) -> str:
        """Return what tells this request from others."""
        text = json.dumps([environment, self.model_dump()], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


class JobAnswer(BaseModel):
    """A job."""

    id: str
    environment: str
    algorithm: str
    name: str | None
    state: State
    reason: str | None
    steps: int
    step: int | None
    """The newest that is logged."""
    submitted_at: str
    started_at: str | None
    ended_at: str | None
    run: str
    overrides: list[str]
    metrics: dict[str, Any] | None = None
    """The newest line of metrics.jsonl; numbers that are not finite are null, `not_finite` says what they were. Only
    where one job is asked for."""


class JobList(BaseModel):
    """Some jobs, the newest first."""

    jobs: list[JobAnswer]
    next: str | None
    """For `before`; null at the end."""


class EnvironmentAnswer(BaseModel):
    """What can be trained in."""

    name: str
    kind: Literal["family", "gymnasium"]
    description: str
    algorithms: list[str]
    experiments: list[str]


class Asset(BaseModel):
    """A folder or file below the root."""

    name: str
    path: str
    """Relative to the root."""
    size_bytes: int
    created_at: str


class Health(BaseModel):
    """That the service lives, and whether Ray answers it."""

    status: Literal["ok"]
    ray: Literal["ok", "starting", "unreachable"]


def job_answer(job: Job, step: int | None, metrics: dict[str, Any] | None = None) -> JobAnswer:
    """Return a job as clients see it."""
    return JobAnswer(
        id=job.id,
        environment=job.environment,
        algorithm=job.algorithm,
        name=job.name,
        state=job.state,
        reason=job.reason,
        steps=job.steps,
        step=step,
        submitted_at=job.submitted_at,
        started_at=job.started_at,
        ended_at=job.ended_at,
        run=job.run,
        overrides=list(job.overrides),
        metrics=metrics,
    )


def described(model: type[BaseModel]) -> dict[str, Any]:
    """Return what OpenAPI says of a body that `read_body` reads."""
    content = {"application/json": {"schema": model.model_json_schema()}}
    return {"requestBody": {"required": True, "content": content}}


async def read_body(request: Request, model: type[Body], limits: Limits) -> Body:
    """Return the body of a request, which must be strict JSON.

    Raises:
        ServiceError: With the place of what cannot be taken.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ServiceError(415, "unsupported_media_type", "a body must be JSON: send Content-Type: application/json")
    try:
        value = parse_untrusted(await request.body(), limits.max_json_depth)
    except ValueError as error:
        raise ServiceError(
            400, "malformed", f"the body must be strict JSON, but {error}. Correct it", "body"
        ) from error
    if not isinstance(value, dict):
        raise ServiceError(422, "invalid", "the body must be a JSON object. See /openapi.json", "body")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise refusal(error.errors()) from error
