"""Pages that are made from the code: written, or compared with what is there."""

import sys
from pathlib import Path


def write_or_check(page: Path, text: str, script: str, arguments: list[str]) -> int:
    """Write a page, or with `--check` compare it; return the exit code, 1 where it is out of date.

    Args:
        page: The file.
        text: What it must hold.
        script: Makes it; named where the page is out of date.
        arguments: Of the command line.
    """
    if "--check" not in arguments:
        page.write_text(text, encoding="utf-8")
    elif not page.is_file() or page.read_text(encoding="utf-8") != text:
        print(f"{page.name} is out of date: run scripts/{script}", file=sys.stderr)
        return 1
    return 0
