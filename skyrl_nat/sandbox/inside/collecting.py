"""The files that a job leaves, taken without following anything. Stdlib only."""

import json
import os
import stat
from collections.abc import Iterator

MAX_FILES = 64
MAX_FILE_BYTES = 64_000
MAX_TOTAL_BYTES = 512_000
"""Of the texts as JSON."""
MAX_REASONS = 20
MAX_ENTRIES = 2000
MAX_DEPTH = 16
_SKIPPED = {"__pycache__", ".git", ".pytest_cache"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def collect(folder: str) -> tuple[dict[str, str], list[str]]:
    """Return the texts below a folder by relative path, and why others are not among them."""
    files: dict[str, str] = {}
    left_out: list[str] = []
    total = 0
    top = os.open(folder, _FOLDER)
    try:
        for num_entries, (path, found) in enumerate(_walk(top, "", 0)):
            if num_entries >= MAX_ENTRIES:
                left_out.append(f"everything after {MAX_ENTRIES} entries")
                break
            text, reason = found if isinstance(found, str) else None, ""
            if isinstance(found, RefusedError):
                reason = str(found)
            elif len(files) >= MAX_FILES:
                reason = f"more than {MAX_FILES} files"
            elif total + (size := len(json.dumps(text))) > MAX_TOTAL_BYTES:
                reason = f"more than {MAX_TOTAL_BYTES} bytes in all"
            else:
                files[path] = text
                total += size
            if reason and len(left_out) < MAX_REASONS:
                left_out.append(f"{path[:200]}: {reason}")
    finally:
        os.close(top)
    return files, left_out


class RefusedError(Exception):
    """Why an entry is not taken."""


def _walk(folder: int, prefix: str, depth: int) -> Iterator[tuple[str, "str | RefusedError"]]:
    with os.scandir(folder) as found:
        names = sorted(entry.name for entry in found)
    for name in names:
        path = prefix + name
        if name in _SKIPPED:
            continue
        try:
            path.encode()
            mode = os.lstat(name, dir_fd=folder).st_mode
            if not stat.S_ISDIR(mode):
                yield path, _read(folder, name, mode)
                continue
            if depth >= MAX_DEPTH:
                raise RefusedError(f"deeper than {MAX_DEPTH} folders")
            nested = os.open(name, _FOLDER, dir_fd=folder)
            try:
                yield from _walk(nested, f"{path}/", depth + 1)
            finally:
                os.close(nested)
        except RefusedError as reason:
            yield path, reason
        except UnicodeEncodeError:
            yield ascii(path), RefusedError("a name that is no text")
        except OSError as error:
            yield path, RefusedError(f"cannot be read ({error.strerror})")


def _read(folder: int, name: str, mode: int) -> str:
    if not stat.S_ISREG(mode):
        raise RefusedError("no regular file")
    fd = os.open(name, _FILE, dir_fd=folder)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise RefusedError("no regular file")
        if found.st_size > MAX_FILE_BYTES:
            raise RefusedError(f"more than {MAX_FILE_BYTES} bytes")
        data = os.read(fd, MAX_FILE_BYTES + 1)
    finally:
        os.close(fd)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise RefusedError("no UTF-8 text") from None
    if "\0" in text:
        raise RefusedError("no UTF-8 text")
    return text
