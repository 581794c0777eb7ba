"""Run folders under one root, found by name and never by a path that a request made."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from skyrl_nat.service.routes.errors import not_found

CONFIG = "config.yaml"
LARGEST_TEXT = 4 << 20
"""Bytes of a config or a small JSON file that are read."""
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run as the trainer left it, or is writing it."""

    id: str
    path: Path

    def file(self, *parts: str) -> Path | None:
        """Return a file of this run; None where it is not there or a link leads out of the run."""
        path = self.path.joinpath(*parts)
        try:
            is_inside = path.resolve(strict=True).is_relative_to(self.path.resolve())
        except (OSError, ValueError, RuntimeError):
            return None
        return path if is_inside and path.is_file() else None

    def config(self) -> dict[str, Any]:
        """Return the config of the run; empty where it cannot be read."""
        path = self.file(CONFIG)
        if path is None:
            return {}
        try:
            found = yaml.load(_text(path), Loader=_Loader)
        except (yaml.YAMLError, OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    def json(self, name: str) -> Any:
        """Return what a small JSON file holds, None where it is missing or broken."""
        path = self.file(name)
        if path is None:
            return None
        try:
            return json.loads(_text(path))
        except (OSError, ValueError, RecursionError):
            return None

    def updated_at(self) -> str:
        """Return when metrics or config were last written, ISO 8601 in UTC."""
        known = [path for name in ("metrics.jsonl", CONFIG) if (path := self.file(name))]
        newest = max((path.stat().st_mtime for path in known), default=0.0)
        return datetime.fromtimestamp(newest, UTC).isoformat(timespec="seconds")


class RunFolders:
    """The runs under a root."""

    def __init__(self, root: Path) -> None:
        """Take the folder that holds the run folders; it may appear later."""
        self._root = root

    def all(self) -> list[RunFolder]:
        """Return the runs, the last written first."""
        try:
            names = [path.name for path in self._root.iterdir()]
        except OSError:
            return []
        found = [run for name in names if (run := self._open(name))]
        return sorted(found, key=lambda run: (run.updated_at(), run.id), reverse=True)

    def find(self, run_id: str) -> RunFolder:
        """Return a run.

        Raises:
            ServiceError: There is none of that name.
        """
        run = self._open(run_id)
        if run is None:
            raise not_found(f"the run must be one of GET /runs, got {run_id[:80]!r}. Choose one of those")
        return run

    def _open(self, name: str) -> RunFolder | None:
        # A name, never a path: nothing of a request leads anywhere else than to a child of the root.
        if not name or name.startswith(".") or any(sign in name for sign in "/\\\0"):
            return None
        run = RunFolder(name, self._root / name)
        try:
            is_inside = run.path.resolve().parent == self._root.resolve()
        except (OSError, RuntimeError):
            return None
        return run if is_inside and run.file(CONFIG) else None


def _text(path: Path) -> str:
    if path.stat().st_size > LARGEST_TEXT:
        raise ValueError(f"{path.name} is larger than {LARGEST_TEXT} bytes")
    return path.read_text(encoding="utf-8")
