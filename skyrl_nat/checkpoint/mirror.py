"""Copies of checkpoints elsewhere, under any URL that fsspec knows; a copy counts once its manifest is there."""

import contextlib
from pathlib import Path
from typing import Any

import fsspec

from skyrl_nat.checkpoint.manager import CheckpointManager, step_of
from skyrl_nat.checkpoint.manifest import MANIFEST, check_contents, check_sizes, parse_manifest
from skyrl_nat.errors import CheckpointError, ConfigError

_ABANDONED = "manifest.abandoned.json"


class Mirror:
    """Folders `step_000010` below one URL. Whatever fsspec's file system raises comes out of most methods as it is."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet.

        Args:
            url: Of the folder that holds the copies of one run; keys and passwords come from the environment.

        Raises:
            ConfigError: fsspec does not know such a URL, or lacks a package for it.
        """
        self.url = url.rstrip("/")
        try:
            found: tuple[Any, str] = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise ConfigError(
                f"checkpoint.mirror and resume must be URLs that fsspec can open, got {url}: {error}. Correct it"
            ) from error
        self._files, self._root = found

    def steps(self) -> list[int]:
        """Return the steps of all copies that are complete."""
        self._files.invalidate_cache()
        try:
            names = self._files.ls(self._root, detail=False)
        except FileNotFoundError:
            return []
        steps = {step_of(Path(name)): name for name in names if step_of(Path(name)) >= 0}
        return sorted(step for step, name in steps.items() if self._files.exists(f"{name.rstrip('/')}/{MANIFEST}"))

    def push(self, checkpoint: Path) -> None:
        """Copy a complete checkpoint, its manifest last; what is left of a copy that fails is removed.

        Raises:
            OSError: A file is not there as it was sent.
        """
        manifest = check_sizes(checkpoint)
        target = self._folder(manifest.step)
        self._remove(target)
        try:
            for name, entry in manifest.files.items():
                self._put(checkpoint / name, f"{target}/{name}", entry.size)
            self._put(checkpoint / MANIFEST, f"{target}/{MANIFEST}.part", (checkpoint / MANIFEST).stat().st_size)
            self._files.mv(f"{target}/{MANIFEST}.part", f"{target}/{MANIFEST}")
        except Exception:
            with contextlib.suppress(Exception):
                self._remove(target)
            raise

    def keep(self, steps: set[int]) -> None:
        """Delete all complete copies but some."""
        for step in set(self.steps()) - steps:
            self._remove(self._folder(step))

    def set_aside(self, after: int) -> list[int]:
        """Make copies of later steps count no more, by another name of their manifests; return their steps."""
        steps = [step for step in self.steps() if step > after]
        for step in steps:
            self._files.mv(f"{self._folder(step)}/{MANIFEST}", f"{self._folder(step)}/{_ABANDONED}")
        return steps

    def fetch_latest(self, checkpoints: CheckpointManager) -> Path | None:
        """Fetch the newest copy that is what it was; others are named in a warning. None where there is no copy.

        Raises:
            CheckpointError: There are copies, and none is as it was; or the mirror does not answer.
        """
        try:
            steps = self.steps()
        except Exception as error:  # whatever a file system of fsspec raises
            raise CheckpointError(
                f"checkpoint.mirror ({self.url}) must answer where there is no checkpoint in {checkpoints.folder}, "
                f"but: {error!r:.300}. Start afresh with resume=never and another name"
            ) from error
        for step in reversed(steps):
            try:
                return self.fetch(step, checkpoints)
            except CheckpointError as error:
                checkpoints.warn(f"the copy of step {step} in {self.url} is skipped: {error}")
        if steps:
            raise CheckpointError(
                f"{self.url} must hold a complete checkpoint, got {len(steps)} damaged ones. Start anew"
            )
        return None

    def fetch(self, step: int, checkpoints: CheckpointManager) -> Path:
        """Copy a checkpoint into a run's folder, where it becomes complete once all files are what they were.

        Raises:
            CheckpointError: It is not there, or damaged.
        """
        source, part = self._folder(step), checkpoints.begin(step)
        try:
            text = self._files.cat_file(f"{source}/{MANIFEST}")
            for name in parse_manifest(text.decode()).files:
                (part / name).parent.mkdir(parents=True, exist_ok=True)
                self._files.get_file(f"{source}/{name}", str(part / name))
            (part / MANIFEST).write_bytes(text)
            check_contents(part)
        except Exception as error:  # as above
            checkpoints.discard(part)
            raise CheckpointError(f"step {step} must be in {self.url} as it was, but: {error!s:.300}") from error
        return checkpoints.finish(part)

    def _folder(self, step: int) -> str:
        return f"{self._root}/step_{step:06d}"

    def _put(self, source: Path, target: str, size: int) -> None:
        self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._files.put_file(str(source), target)
        found = self._files.info(target)["size"]
        if found != size:
            raise OSError(f"{target} must have {size} bytes, got {found}")

    def _remove(self, folder: str) -> None:
        """Delete a copy, its manifest first."""
        for path in (f"{folder}/{MANIFEST}", folder):
            if self._files.exists(path):
                self._files.rm(path, recursive=True)
        self._files.invalidate_cache()


def mirror_of(url: str | None, name: str) -> Mirror | None:
    """Return the mirror of a run, None without a URL.

    Args:
        url: `checkpoint.mirror`.
        name: Of the run: several may share a URL.
    """
    return Mirror(f"{url.rstrip('/')}/{name}") if url else None
