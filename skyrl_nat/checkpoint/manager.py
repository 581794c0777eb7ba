"""Checkpoints as folders that either are complete or do not count: begun, committed, found, kept and deleted."""

import contextlib
import fcntl
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from skyrl_nat.checkpoint.manifest import MANIFEST, check_contents, check_sizes, fsync_folder, write_manifest
from skyrl_nat.errors import CheckpointError

_PART = ".part"
_OLD = ".old.part"
_ABANDONED = ".abandoned"
_logger = logging.getLogger(__name__)


class CheckpointManager:
    """Folders `step_000010` below one parent; written as `step_000010.part` and renamed when complete.

    Whatever else lies in the parent is never touched, and links are not followed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep_last: int = 0,
        keep_best: int = 0,
        warn: Callable[[str], None] = _logger.warning,
    ) -> None:
        """Use a parent folder, which is made with the first checkpoint.

        Args:
            folder: Parent of all checkpoints of a run.
            keep_last: Older ones are deleted after a commit; 0 keeps all.
            keep_best: That many with the highest rewards are kept besides.
            warn: Told in one line of each checkpoint that is not what it should be.
        """
        self.folder = folder
        self.warn = warn
        self.in_use: set[int] = set()
        """Steps that are not deleted for the time being."""
        self._keep_last = keep_last
        self._keep_best = keep_best

    def begin(self, step: int) -> Path:
        """Return an empty folder to write the checkpoint of a step into.

        Raises:
            OSError: The disk refused it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self.recover()
        part = self.folder / f"step_{step:06d}{_PART}"
        part.mkdir()
        return part

    def commit(self, part: Path, state: Mapping[str, Any], rewards: Mapping[int, float] | None = None) -> Path:
        """Make a written folder the checkpoint of its step; only then others are deleted, and none that is `held`.

        Args:
            part: What `begin` returned, filled.
            state: JSON data of the run; `step` must be there.
            rewards: Validation reward by step, as far as known.

        Returns:
            The final folder.

        Raises:
            OSError: The disk refused it; all other checkpoints are as they were.
        """
        write_manifest(part, state)
        final = self.finish(part)
        found = {step_of(path): path for path in self.all()}
        for step in found.keys() - self.kept(found, rewards or {}) - self.in_use:
            self._delete(found[step])
        return final

    def finish(self, part: Path) -> Path:
        """Give a complete folder its name, and return it; one of the same step gives way."""
        final = part.with_suffix("")
        replaced = final.with_suffix(_OLD)
        if final.exists():
            final.rename(replaced)
        part.rename(final)
        fsync_folder(self.folder)
        shutil.rmtree(replaced, ignore_errors=True)
        return final

    def discard(self, part: Path) -> None:
        """Remove what was begun and cannot be committed."""
        shutil.rmtree(part, ignore_errors=True)

    def recover(self) -> None:
        """Bring to its end what a killed process left: a rename that was still to come, or a removal."""
        for path in sorted(self.folder.glob(f"step_*{_PART}"), key=lambda path: path.name.endswith(_OLD)):
            if path.is_symlink() or not re.fullmatch(rf"step_\d+({_OLD}|{_PART})", path.name):
                continue
            try:
                if not path.name.endswith(_OLD):
                    check_sizes(path)
                    self.finish(path)
            except CheckpointError:
                self.warn(f"{path} is a save that was cut off: it is removed")
            shutil.rmtree(path, ignore_errors=True)

    def all(self) -> list[Path]:
        """Return all checkpoints whose files are there in full, by step."""
        return [path for path in self.named() if _is_complete(path)]

    def named(self) -> list[Path]:
        """Return what bears a checkpoint's name, complete or not, by step."""
        found = self.folder.glob("step_*")
        return sorted((path for path in found if step_of(path) >= 0 and not path.is_symlink()), key=step_of)

    def latest(self, *, is_thorough: bool = False) -> Path | None:
        """Return the newest complete checkpoint, or None; a damaged one that is passed over is said aloud.

        Args:
            is_thorough: Read all files and compare checksums, not sizes alone.

        Raises:
            CheckpointError: There are checkpoints, and all are damaged.
        """
        folders = self.named()
        for path in reversed(folders):
            try:
                _check(path, is_thorough=is_thorough)
            except CheckpointError as error:
                self.warn(f"checkpoint {path.name} is damaged and skipped: {error}")
            else:
                return path
        if folders:
            raise CheckpointError(
                f"{self.folder} must hold a complete checkpoint, got {len(folders)} damaged ones. Bring one back, or "
                "remove the folder to start afresh"
            )
        return None

    def kept(self, steps: Iterable[int], rewards: Mapping[int, float]) -> set[int]:
        """Return which of some steps stay: the newest ones, and the best of those whose reward is known."""
        ordered = sorted(steps)
        if not self._keep_last:
            return set(ordered)
        judged = by_reward(ordered, rewards)
        best = judged[len(judged) - min(self._keep_best, len(judged)) :]
        return {*ordered[-self._keep_last :], *best}

    def own_step(self, start: Path | None) -> int:
        """Return the step of a checkpoint of this folder, -1 for one of another folder and for None."""
        if start is None or start.resolve().parent != self.folder.resolve():
            return -1
        return step_of(start)

    def set_aside(self, start: Path | None) -> list[int]:
        """Rename what the run leaves behind by going on from an older checkpoint, or from one of another run.

        `step_000012` becomes `step_000012.abandoned`: it is kept, and never found again.

        Args:
            start: What the run goes on from; None for the model that it began with.

        Returns:
            The steps.
        """
        left = [path for path in self.named() if step_of(path) > self.own_step(start)]
        for path in left:
            target = path.with_suffix(_ABANDONED)
            if target.is_dir() and not target.is_symlink():
                shutil.rmtree(target)
            path.rename(target)
        if left:
            names = ", ".join(path.name for path in left)
            self.warn(f"{names}: left behind by this start, kept as *{_ABANDONED} in {self.folder}")
        return [step_of(path) for path in left]

    def _delete(self, path: Path) -> None:
        """Take a checkpoint's name away before its files, so that there never is half of one; not while it is held."""
        with (path / MANIFEST).open("r+b") as file:  # NFS locks exclusively what may be written
            if not _lock(file, fcntl.LOCK_EX):
                return
            gone = path.rename(path.with_suffix(_OLD))
        shutil.rmtree(gone, ignore_errors=True)


@contextlib.contextmanager
def held(checkpoint: Path | None) -> Iterator[None]:
    """Keep a checkpoint from being deleted by the run that it is of, which tries again after its next save.

    Until the block ends, or the process. A disk that knows no locks keeps nothing.

    Args:
        checkpoint: Its folder; None for none.

    Raises:
        CheckpointError: It is not there, or is being deleted.
    """
    if checkpoint is None:
        yield
        return
    manifest = checkpoint / MANIFEST
    try:
        file = manifest.open("rb")
    except OSError as error:
        raise CheckpointError(
            f"{checkpoint} must hold a readable {MANIFEST}, but: {error}. Take another checkpoint"
        ) from error
    with file:
        if not (_lock(file, fcntl.LOCK_SH) and manifest.exists()):
            raise CheckpointError(f"{checkpoint} must stay, but its run has just deleted it. Take another checkpoint")
        yield


def by_reward(steps: Iterable[int], rewards: Mapping[int, float]) -> list[int]:
    """Return those of some steps whose reward is known, the best one last; of equal ones the newer is better."""
    return sorted((step for step in steps if step in rewards), key=lambda step: (rewards[step], step))


def step_of(checkpoint: Path) -> int:
    """Return the step in a checkpoint folder's name, -1 where it has none."""
    found = re.fullmatch(r"step_(\d+)", checkpoint.name)
    return int(found[1]) if found else -1


def read_state(checkpoint: Path, *, is_thorough: bool = False) -> dict[str, Any]:
    """Return the state of a checkpoint after checking that all its files are there.

    Args:
        checkpoint: Its folder.
        is_thorough: Read all files and compare checksums, not sizes alone.

    Raises:
        CheckpointError: With the list of what is missing, cut or changed.
    """
    return (check_contents if is_thorough else check_sizes)(checkpoint).state


def _is_complete(path: Path) -> bool:
    try:
        _check(path)
    except CheckpointError:
        return False
    return True


def _check(path: Path, *, is_thorough: bool = False) -> None:
    """Refuse a checkpoint that is damaged, or bears the name of another step."""
    step = (check_contents if is_thorough else check_sizes)(path).step
    if step != step_of(path):
        raise CheckpointError(f"{path} must be of the step in its name, its {MANIFEST} says {step}. Rename it")


def _lock(file: IO[bytes], kind: int) -> bool:
    """Return whether no other holder of a file is in the way; where the disk knows no locks nobody is."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True
