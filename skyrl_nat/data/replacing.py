"""Files that are there whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside another one, whose place it takes at the end, and only if nothing was raised.

    The caller may write a file there, or make a folder of files. Folders above it are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        for written in [part] if part.is_file() else part.iterdir():
            with written.open("rb") as file:
                os.fsync(file.fileno())
        part.replace(path)
    finally:
        if part.is_dir():
            shutil.rmtree(part)
        part.unlink(missing_ok=True)
