"""The folder in which a job lives where there is no file system of its own: made, measured, removed. Stdlib only."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from pathlib import Path

import processes

WORK, SCRATCH = "work", "tmp"
MAX_DEPTH = 64
_PREFIX = "skyrl-nat-job-"


class OutgrownError(Exception):
    """What a job keeps on the disk is more than allowed, or cannot be measured."""


def make_box(parent: str, uid: int) -> str:
    """Return a new folder with the job's work folder and its temporary one, owned by the job's user."""
    box = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
    for folder in (f"{box}/{WORK}", f"{box}/{SCRATCH}"):
        os.mkdir(folder, 0o700)  # noqa: PTH102
    if uid:
        for folder in (box, f"{box}/{WORK}", f"{box}/{SCRATCH}"):
            os.chown(folder, uid, uid)
    return box


def remove_box(box: str, uid: int) -> None:
    """Remove it with all that the job left, however deep; nothing of the job may be alive."""
    with processes.as_user(uid):
        _empty(box)
    shutil.rmtree(box, ignore_errors=True)


def _empty(top: str) -> None:
    """Remove what is below, moving nested folders up: neither paths nor the stack grow with the depth."""
    count = 0
    while folders := _remove_files(top):
        for folder in folders:
            for nested in _remove_files(folder):
                count += 1
                os.rename(nested, f"{top}/.removed-{count}-{os.getpid()}")  # noqa: PTH104
            os.rmdir(folder)  # noqa: PTH106


def _remove_files(folder: str) -> list[str]:
    """Remove the files of a folder; returns its folders."""
    os.chmod(folder, 0o700)  # noqa: PTH101
    nested = []
    with os.scandir(folder) as found:
        entries = list(found)
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            nested.append(entry.path)
        else:
            os.unlink(entry.path)  # noqa: PTH108
    return nested


def check_size(box: str, members: Iterable[int], limits: dict) -> set[int]:
    """Add up files in the box and deleted ones that processes keep open.

    Returns:
        Processes that do not let themselves be looked at.

    Raises:
        OutgrownError: There is more than the limits allow.
    """
    num_entries, num_bytes = _folder_size(box, limits["max_entries"])
    closed = set()
    for pid in members:
        try:
            num_bytes += _deleted_bytes(pid)
        except PermissionError:
            process = processes.read_process(pid)
            if process is not None and not process.is_ending:  # at its end a process belongs to root
                closed.add(pid)
        except OSError:
            continue  # it has just ended
    if num_entries > limits["max_entries"]:
        raise OutgrownError(f"{num_entries} files")
    if num_bytes > limits["max_tmpfs_mib"] << 20:
        raise OutgrownError(f"{num_bytes >> 20} MiB of files")
    return closed


def _folder_size(box: str, max_entries: int) -> tuple[int, int]:
    num_entries = num_bytes = 0
    left = [(box, 0)]
    while left and num_entries <= max_entries:
        folder, depth = left.pop()
        if depth > MAX_DEPTH:
            raise OutgrownError(f"folders nested deeper than {MAX_DEPTH}")
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    num_entries += 1
                    with contextlib.suppress(FileNotFoundError):
                        num_bytes += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        left.append((entry.path, depth + 1))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise OutgrownError(f"a folder that cannot be read ({error.strerror})") from error
    return num_entries, num_bytes


def _deleted_bytes(pid: int) -> int:
    total = 0
    seen = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found = entry.stat()
            if stat.S_ISREG(found.st_mode) and found.st_nlink == 0 and found.st_ino not in seen:
                seen.add(found.st_ino)
                total += found.st_blocks * 512
    return total
