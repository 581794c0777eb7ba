"""The file that makes a checkpoint complete: it is written last, and names every other one with size and checksum."""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from skyrl_nat.errors import CheckpointError

MANIFEST = "manifest.json"
FORMAT = 2
"""Of checkpoints; another one is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a manifest says of one file."""

    size: int
    """In bytes."""
    sha256: str
    """In hex."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A checkpoint's list of contents."""

    step: int
    state: dict[str, Any]
    """JSON data of the run."""
    files: dict[str, Entry]
    """By path below the checkpoint's folder; the manifest itself is not among them."""

    @property
    def num_bytes(self) -> int:
        """Size of all files."""
        return sum(entry.size for entry in self.files.values())


def write_manifest(folder: Path, state: Mapping[str, Any]) -> None:
    """Make a folder of written files a checkpoint; they are on the disk before the manifest is, and it appears whole.

    Args:
        folder: Of the checkpoint, with all other files in it.
        state: JSON data of the run; `step` must be there.

    Raises:
        OSError: The disk refused it; there is no manifest then.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with ThreadPoolExecutor() as threads:
        entries = list(threads.map(lambda name: _entry_on_disk(folder / name), names))
    data = {
        "format": FORMAT,
        "step": state["step"],
        "files": {name: {"size": e.size, "sha256": e.sha256} for name, e in zip(names, entries, strict=True)},
        "state": dict(state),
    }
    for below in {folder, *(folder / name for name in map(os.path.dirname, names))}:
        fsync_folder(below)
    part = folder / f"{MANIFEST}.part"
    with part.open("w", encoding="utf-8") as file:
        json.dump(data, file, indent=1, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    part.rename(folder / MANIFEST)
    fsync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """Return what a checkpoint says of itself; its files are not looked at.

    Raises:
        CheckpointError: There is no manifest, or none of this format.
    """
    try:
        return parse_manifest((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(
            f"{folder} must hold a readable {MANIFEST}, but: {error}. Resume from another checkpoint"
        ) from error


def parse_manifest(text: str) -> Manifest:
    """Return a manifest from its text.

    Raises:
        ValueError: It is none of this format, or names a file outside its folder.
    """
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"it has format {data['format']}, this version reads {FORMAT}")
        files = {
            str(name): Entry(size=int(entry["size"]), sha256=str(entry["sha256"]))
            for name, entry in data["files"].items()
        }
        manifest = Manifest(step=int(data["step"]), state=dict(data["state"]), files=files)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"it lacks a part ({type(error).__name__}: {error})") from error
    for name in manifest.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"it names {name!r}, which is not below its folder")
    return manifest


def check_sizes(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint whose files are all there in full.

    Raises:
        CheckpointError: With the list of what is missing or cut.
    """
    manifest = read_manifest(folder)
    _refuse(folder, [name for name, entry in manifest.files.items() if _size_of(folder / name) != entry.size], "cut")
    return manifest


def check_contents(folder: Path) -> Manifest:
    """Return the manifest of a checkpoint whose files hold what was written; reads all of them.

    Raises:
        CheckpointError: With the list of what is missing, cut or changed.
    """
    manifest = check_sizes(folder)

    def is_changed(name: str) -> bool:
        with (folder / name).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() != manifest.files[name].sha256

    try:
        with ThreadPoolExecutor() as threads:
            changed = [
                name
                for name, is_so in zip(manifest.files, threads.map(is_changed, manifest.files), strict=True)
                if is_so
            ]
    except OSError as error:
        raise CheckpointError(f"{folder} must be readable, but: {error}. Resume from another checkpoint") from error
    _refuse(folder, changed, "changed")
    return manifest


def fsync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entry_on_disk(path: Path) -> Entry:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return Entry(size=os.fstat(file.fileno()).st_size, sha256=hashlib.file_digest(file, "sha256").hexdigest())


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else -1
    except OSError:
        return -1


def _refuse(folder: Path, names: list[str], how: str) -> None:
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        raise CheckpointError(
            f"{folder} must hold every file of its manifest as it was written, missing or {how}: {shown}. "
            "Resume from another checkpoint"
        )
