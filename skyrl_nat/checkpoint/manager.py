"""Checkpoints as folders that either are complete or do not exist."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from skyrl_nat.errors import CheckpointError

MANIFEST = "manifest.json"
_PART = ".part"


class CheckpointManager:
    """Folders `step_000010` below one parent; written as `step_000010.part` and renamed when complete.

    The manifest lists every file with its size and is written last, so that a killed save or a lost file
    is noticed before anything is loaded.
    """

    def __init__(self, folder: Path, *, keep_last: int = 0) -> None:
        """Use (and make) a parent folder.

        Args:
            folder: Parent of all checkpoints of a run.
            keep_last: Older checkpoints are deleted after a commit; 0 keeps all.
        """
        self.folder = folder
        self._keep_last = keep_last

    def begin(self, step: int) -> Path:
        """Return an empty folder to write the checkpoint of a step into."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for left_over in self.folder.glob(f"*{_PART}"):
            shutil.rmtree(left_over)
        part = self.folder / f"step_{step:06d}{_PART}"
        part.mkdir()
        return part

    def commit(self, part: Path, state: Mapping[str, Any]) -> Path:
        """Make a written folder the checkpoint of its step.

        Args:
            part: What `begin` returned, filled.
            state: JSON data of the run (step, stream position, seeds).

        Returns:
            The final folder.
        """
        files = {
            path.relative_to(part).as_posix(): path.stat().st_size for path in sorted(part.rglob("*")) if path.is_file()
        }
        manifest = part / MANIFEST
        with manifest.open("w", encoding="utf-8") as file:
            json.dump({"state": dict(state), "files": files}, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        final = part.with_suffix("")
        replaced = final.with_suffix(f".old{_PART}")
        if final.exists():
            final.rename(replaced)
        part.rename(final)
        shutil.rmtree(replaced, ignore_errors=True)
        self._fsync_parent()
        self._delete_old()
        return final

    def all(self) -> list[Path]:
        """Return all complete checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        folders = [path for path in self.folder.glob("step_*") if path.is_dir() and path.suffix != _PART]
        return sorted(path for path in folders if (path / MANIFEST).is_file())

    def latest(self) -> Path | None:
        """Return the newest complete checkpoint, or None."""
        found = self.all()
        return found[-1] if found else None

    def _delete_old(self) -> None:
        if self._keep_last:
            for path in self.all()[: -self._keep_last]:
                shutil.rmtree(path)

    def _fsync_parent(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the state of a checkpoint after checking that all its files are there.

    Raises:
        CheckpointError: With the list of what is missing or cut.
    """
    manifest = checkpoint / MANIFEST
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        files: dict[str, int] = data["files"]
        state: dict[str, Any] = data["state"]
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(
            f"{checkpoint} must hold a readable {MANIFEST}, but: {error}. Resume from another checkpoint"
        ) from error
    wrong = [
        name
        for name, size in files.items()
        if not (checkpoint / name).is_file() or (checkpoint / name).stat().st_size != size
    ]
    if wrong:
        raise CheckpointError(
            f"{checkpoint} must hold every file of its manifest in full, missing or cut: {', '.join(wrong)}. "
            "Resume from another checkpoint"
        )
    return state
