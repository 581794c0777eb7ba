"""The files of an episode and what may be done with them: a plain dict of path to text, so that it pickles."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from skyrl_nat.environments.nat_agent.actions import path_error
from skyrl_nat.environments.nat_agent.static_checks import MAX_FILE_CHARS, MAX_FILES

MAX_REASONS = 5
_CACHES = ("__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache", ".git")


@dataclass(frozen=True, slots=True, kw_only=True)
class BashResult:
    """What a shell command did."""

    end: str
    """`done`, `timeout` or `died`."""
    output: str = ""
    exit_code: int | None = None
    files: dict[str, str] | None = None
    """All text files afterwards; None where they could not be read."""
    left_out: tuple[str, ...] = ()
    """What did not come back, each with its reason."""


def edit(files: dict[str, str], command: str, arguments: dict[str, str]) -> str:
    """Do a command of the editor; returns what the policy is told.

    Args:
        files: Changed in place.
        command: Key of `actions.COMMANDS`.
        arguments: The command's parameters, the path clean.
    """
    return _EDITS[command](files, arguments)


def take_over(files: dict[str, str], result: BashResult) -> tuple[dict[str, str], list[str]]:
    """Return the workspace after a command, and what was not taken over, with reasons.

    A file that breaks a limit keeps the text that it had before. Files that were there come first where there is
    room for some only.
    """
    refused = [reason for reason in result.left_out if not any(name in reason for name in _CACHES)]
    if result.files is None:
        return files, refused
    kept: dict[str, str] = {}
    for path in sorted(result.files, key=lambda path: (path not in files, path)):
        if any(part in _CACHES for part in PurePosixPath(path).parts):
            continue
        reason = path_error(path) or _size_error(kept, path, result.files[path])
        if not reason:
            kept[path] = result.files[path]
            continue
        refused.append(reason)
        if path in files:
            kept[path] = files[path]
    return kept, refused


def _size_error(files: dict[str, str], path: str, text: str) -> str:
    if len(text) > MAX_FILE_CHARS:
        return f"{path} has {len(text)} characters, at most {MAX_FILE_CHARS} are allowed"
    if path not in files and len(files) >= MAX_FILES:
        return f"{path}: there are {MAX_FILES} files already, no more are allowed"
    return ""


def _save(files: dict[str, str], path: str, text: str) -> str:
    folders = [str(folder) for folder in PurePosixPath(path).parents]
    if _inside(files, path) or any(folder in files for folder in folders):
        return f"error: {path} must not be a file and a folder at once; there are {', '.join(sorted(files))}"
    if error := _size_error(files, path, text):
        return f"error: {error}"
    files[path] = text
    return f"saved {path} ({len(_lines(text))} lines)"


def _create(files: dict[str, str], arguments: dict[str, str]) -> str:
    return _save(files, arguments["path"], arguments["file_text"])


def _replace(files: dict[str, str], arguments: dict[str, str]) -> str:
    path, old = arguments["path"], arguments["old_str"]
    if path not in files:
        return _no_file(files, path)
    count = files[path].count(old) if old else 0
    if count != 1:
        return f"error: old_str must occur exactly once in {path}, it occurs {count} times"
    return _save(files, path, files[path].replace(old, arguments.get("new_str", "")))


def _insert(files: dict[str, str], arguments: dict[str, str]) -> str:
    path = arguments["path"]
    if path not in files:
        return _no_file(files, path)
    lines = files[path].split("\n")
    last = len(_lines(files[path]))
    number = _read_json(arguments["insert_line"])
    if type(number) is not int or not 0 <= number <= last:
        return f"error: insert_line must be a number from 0 to {last}, got {arguments['insert_line'][:20]!r}"
    lines[number:number] = arguments["new_str"].split("\n")
    return _save(files, path, "\n".join(lines))


def _view(files: dict[str, str], arguments: dict[str, str]) -> str:
    path = arguments["path"]
    if path in files:
        return _view_file(files[path], arguments.get("view_range", ""))
    inside = _inside(files, path)
    if not inside:
        return _no_file(files, path) if path != "." else "there are no files yet"
    return "\n".join(f"{name} ({len(_lines(files[name]))} lines)" for name in inside)


def _view_file(text: str, view_range: str) -> str:
    lines = _lines(text)
    first, last = 1, len(lines)
    if view_range.strip():
        match _read_json(view_range):
            case [int(first), int(last)]:
                last = len(lines) if last == -1 else min(last, len(lines))
            case _:
                return f"error: view_range must be two line numbers such as [1, 40], got {view_range[:40]!r}"
        if not 1 <= first <= last:
            return f"error: view_range must lie within 1 and {len(lines)}, got {view_range[:40]!r}"
    return "\n".join(f"{number:>5}\t{lines[number - 1]}" for number in range(first, last + 1)) or "the file is empty"


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _inside(files: dict[str, str], folder: str) -> list[str]:
    return sorted(path for path in files if folder == "." or path.startswith(f"{folder}/"))


def files_at(files: dict[str, str], path: str) -> tuple[str, ...]:
    """Return the file at a path, or all files in the folder there."""
    return (path,) if path in files else tuple(_inside(files, path))


def _no_file(files: dict[str, str], path: str) -> str:
    return f"error: there is no file {path}; there are {', '.join(sorted(files)) or 'none'}"


_EDITS: dict[str, Callable[[dict[str, str], dict[str, str]], str]] = {
    "view": _view,
    "create": _create,
    "str_replace": _replace,
    "insert": _insert,
}
