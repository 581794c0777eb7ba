"""The service as an ASGI app: `create_app(settings)`; its loop over jobs begins and ends with it."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPBearer

from skyrl_nat.service.access import RequireToken
from skyrl_nat.service.catalogue import environments
from skyrl_nat.service.limits import BoundedExchange
from skyrl_nat.service.routes.assets import assets_router
from skyrl_nat.service.routes.errors import documented, install_handlers
from skyrl_nat.service.routes.files import files_router
from skyrl_nat.service.routes.jira import jira_router
from skyrl_nat.service.routes.page import page_router
from skyrl_nat.service.routes.runs import runs_router
from skyrl_nat.service.routes.train import train_router
from skyrl_nat.service.routes.training import training_router
from skyrl_nat.service.runner.backend import Backend
from skyrl_nat.service.runner.scheduler import Scheduler
from skyrl_nat.service.schemas import Health
from skyrl_nat.service.service import TrainingService
from skyrl_nat.service.settings import ServiceSettings
from skyrl_nat.service.store import Job, JobStore

TITLE = "SkyRL-NAT training service"


def create_app(
    settings: ServiceSettings,
    backend: Backend | None = None,
    trainer: Callable[[Job], list[str]] | None = None,
) -> FastAPI:
    """Return the app; its folder is made, and Ray is looked for when it starts.

    Args:
        settings: Of the service.
        backend: Who runs jobs; default: Ray.
        trainer: Gives a job's command; default: `skyrl-nat train`.
    """
    settings.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    store = JobStore(settings.database)
    scheduler = Scheduler(settings, store, backend or _ray(settings), trainer or train_command)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        # Made once, and never while a client waits.
        await run_in_threadpool(environments)
        scheduler.start()
        try:
            yield
        finally:
            await run_in_threadpool(scheduler.close)
            store.close()

    app = FastAPI(title=TITLE, version="1", lifespan=running, docs_url=None, redoc_url=None, redirect_slashes=False)
    install_handlers(app)
    # The token is asked for by the middleware below, before anything is read; this only says so in OpenAPI.
    guarded = [Depends(HTTPBearer(auto_error=False, description="The service's token."))]
    for router in routers(TrainingService(settings, store, scheduler)):
        app.include_router(router, dependencies=guarded, responses=documented(401))
    app.include_router(_health_router(scheduler))
    app.add_middleware(BoundedExchange, limits=settings.limits)
    app.add_middleware(RequireToken, token=settings.token)
    return app


def routers(service: TrainingService) -> list[APIRouter]:
    """Return all routes behind the token."""
    return [
        train_router(service),
        training_router(service),
        files_router(service),
        assets_router(service),
        runs_router(service.settings.root_dir),
        jira_router(service.settings.limits),
        page_router(),
    ]


def train_command(job: Job) -> list[str]:
    """Return the command that trains a job."""
    return [sys.executable, "-m", "skyrl_nat.cli", "train", *job.arguments]


def _ray(settings: ServiceSettings) -> Backend:
    from skyrl_nat.service.jobs import RayJobs  # imports Ray, which takes seconds

    return RayJobs(settings)


def _health_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter(tags=["health"])
    words = {None: "starting", True: "ok", False: "unreachable"}

    @router.get("/health")
    def health() -> Health:
        """Say that the service lives; needs no token."""
        return Health.model_validate({"status": "ok", "ray": words[scheduler.is_connected]})

    return router
