"""Whether the run root takes what a run does to it: files, renames, fsync, locks, and the bytes of its checkpoints."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from skyrl_nat.checkpoint.manifest import fsync_folder
from skyrl_nat.config.run import RunConfig
from skyrl_nat.doctor.check import Check, skipped
from skyrl_nat.errors import ConfigError
from skyrl_nat.planning.memory import PolicyMemory
from skyrl_nat.planning.model_shape import find_decoder

FREE = "free disk for the checkpoints that are kept"
_ADVICE = "Set root_dir to a local or shared POSIX file system that this user may write"
_GIB = 2**30


def check_folder(folder: Path) -> list[Check]:
    """Return the checks of writing below a folder; everything that is tried is removed again.

    Args:
        folder: `root_dir`; it need not exist.
    """
    names = {
        "rename over what is there": _try_rename,
        "fsync of files and folders": _try_fsync,
        "locks of files": _try_lock,
    }
    try:
        with _scratch(nearest(folder)) as scratch:
            return [_wrote(folder, ""), *(_tried(name, action, scratch) for name, action in names.items())]
    except OSError as error:
        return [_wrote(folder, str(error)), *(skipped(name, "nothing can be written") for name in names)]


def nearest(folder: Path) -> Path:
    """Return a folder, or the closest one above it that exists."""
    return next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())


def checkpoint_bytes(config: RunConfig) -> int:
    """Return the size of one checkpoint: what is trained and the optimizer's state, with LoRA the adapters' alone.

    Raises:
        ConfigError: The model's sizes are not known on this machine.
    """
    memory = PolicyMemory(config, find_decoder(config.model.path))
    return int(memory.num_shards * (memory.gradients + memory.optimizer))


def kept_checkpoints(config: RunConfig, num_steps: int | None) -> int:
    """Return how many checkpoints lie on the disk at the same time: the kept ones, and one that is being written.

    Args:
        config: The run.
        num_steps: Of the run; None where nobody knows.
    """
    kept = config.checkpoint
    if not (kept.every_steps or kept.every_epochs or config.evaluation.patience):
        return int(kept.save_final)
    saved = num_steps // kept.every_steps + 1 if num_steps and kept.every_steps else None
    if not kept.keep_last:
        return saved or 1
    most = kept.keep_last + kept.keep_best + 1
    return min(most, saved) if saved else most


def check_free_disk(config: RunConfig, num_steps: int | None, free: int | None = None) -> Check:
    """Return whether the checkpoints fit.

    Args:
        config: The run.
        num_steps: Of the run; None where nobody knows.
        free: Bytes; None looks at `root_dir`.
    """
    try:
        size = checkpoint_bytes(config)
    except ConfigError as error:
        return skipped(FREE, str(error))
    number = kept_checkpoints(config, num_steps)
    found = shutil.disk_usage(nearest(Path(config.root_dir).expanduser())).free if free is None else free
    return Check(
        name=FREE,
        expected=f">= {number * size / _GIB:.1f} GiB ({number} of {size / _GIB:.2f} GiB)",
        found=f"{found / _GIB:.1f} GiB",
        is_ok=found >= number * size,
        advice="Free space, set root_dir, or lower checkpoint.keep_last and keep_best",
    )


def _wrote(folder: Path, error: str) -> Check:
    return Check(
        name="root_dir can be written",
        expected="yes",
        found=f"no: {error}" if error else f"yes ({folder})",
        is_ok=not error,
        advice=_ADVICE,
    )


def _tried(name: str, action: Callable[[Path], None], scratch: Path) -> Check:
    found = "works"
    try:
        action(scratch)
    except OSError as error:
        found = str(error)
    return Check(name=name, expected="works", found=found, is_ok=found == "works", advice=_ADVICE)


@contextlib.contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=".skyrl-nat-doctor-", dir=parent) as name:
        (Path(name) / "file").write_text("old", encoding="utf-8")
        yield Path(name)


def _try_rename(folder: Path) -> None:
    """A file takes another one's place at once, a folder a new name: so checkpoints and manifests appear whole."""
    (folder / "part").write_text("new", encoding="utf-8")
    (folder / "part").rename(folder / "file")
    if (folder / "file").read_text(encoding="utf-8") != "new" or (folder / "part").exists():
        raise OSError("after a rename the old file is still there")
    (folder / "step.part").mkdir()
    (folder / "step.part").rename(folder / "step")
    if not (folder / "step").is_dir() or (folder / "step.part").exists():
        raise OSError("after a rename the old folder is still there")


def _try_fsync(folder: Path) -> None:
    with (folder / "synced").open("w", encoding="utf-8") as file:
        file.write("x")
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(folder)


def _try_lock(folder: Path) -> None:
    """A second opening of a locked file must notice: a checkpoint that is read is held by such a lock."""
    with (folder / "locked").open("w") as first, (folder / "locked").open("r+") as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        raise OSError("two locks on one file hold at the same time")
