"""What the root folder holds besides runs, and the data of the Jira workflows."""

import functools
import json
from importlib.resources import files
from typing import Any

from fastapi import APIRouter

from skyrl_nat.service.assets import KINDS
from skyrl_nat.service.schemas import Asset
from skyrl_nat.service.service import TrainingService

JIRA_DATA = "skyrl_nat.environments.jira"


def assets_router(service: TrainingService) -> APIRouter:
    """Return the routes."""
    router = APIRouter(tags=["assets"])

    def add(kind: str) -> None:
        @router.get(f"/{kind}", name=f"list_{kind}", description=f"List {kind} below the root, the newest first.")
        def list_assets() -> list[Asset]:
            return KINDS[kind](service.root)

    for kind in KINDS:
        add(kind)

    @router.get("/jira-mock-data")
    def jira_mock_data() -> dict[str, Any]:
        """Return the workflows and issues behind the Jira environments."""
        return _jira_data()

    return router


@functools.cache
def _jira_data() -> dict[str, Any]:
    folder = files(JIRA_DATA) / "data"
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in ("workflows", "issues")}
