"""The files of a job's run folder, and of no other."""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import FileResponse, Response

from skyrl_nat.service.paths import inside, inside_file, plain_files
from skyrl_nat.service.routes.errors import NotFoundError, documented
from skyrl_nat.service.schemas import JobId
from skyrl_nat.service.service import TrainingService

MAX_FILES = 5000
# A file may be anything: a browser must not take it for a page of this service.
HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}


def files_router(service: TrainingService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(prefix="/training", tags=["training"])

    @router.get("/{job_id}/files", responses=documented(404, 422))
    def list_files(job_id: JobId) -> list[str]:
        """List the files of a job's run folder."""
        folder = inside(service.root, service.job(job_id).run)
        found = [] if folder is None else plain_files(folder, MAX_FILES)
        return [str(path.relative_to(folder)) for path in found if folder is not None]

    @router.get(
        "/{job_id}/files/{path:path}",
        response_class=Response,
        responses={
            200: {
                "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
                "description": "Its bytes.",
            },
            **documented(404, 422),
        },
    )
    def show_file(job_id: JobId, path: Annotated[str, Path(min_length=1, max_length=1000)]) -> Response:
        """Return one of those files."""
        folder = inside(service.root, service.job(job_id).run)
        found = None if folder is None else inside_file(folder, path)
        if found is None:
            raise NotFoundError("path")
        return FileResponse(found, media_type="application/octet-stream", filename=found.name, headers=HEADERS)

    return router
