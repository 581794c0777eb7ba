"""Paths that stay inside of a folder: by what they resolve to, never by how they are written."""

from collections.abc import Iterator
from pathlib import Path


def inside(folder: Path, *parts: str) -> Path | None:
    """Return the resolved path of something below a folder; None where it is not below it or cannot be a path.

    Links are followed first: one that leads out is not below.
    """
    if any("\0" in part for part in parts):
        return None
    try:
        root, path = folder.resolve(), folder.joinpath(*parts).resolve()
        return path if path != root and path.is_relative_to(root) else None
    except (OSError, RuntimeError, ValueError):
        # A name that is too long, a circle of links.
        return None


def inside_file(folder: Path, *parts: str) -> Path | None:
    """Return the path of a plain file below a folder, None where there is none."""
    path = inside(folder, *parts)
    try:
        return path if path is not None and path.is_file() else None
    except OSError:
        return None


def plain_files(folder: Path, limit: int) -> Iterator[Path]:
    """Yield plain files below a folder, links neither followed nor yielded, at most so many."""
    waiting, num_left = [folder], limit
    while waiting:
        try:
            entries = sorted(waiting.pop().iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink():
                continue
            if entry.is_dir():
                waiting.append(entry)
            elif entry.is_file():
                if num_left == 0:
                    return
                num_left -= 1
                yield entry
