"""From a completion's text to actions: OpenHands' text function format, and fenced files.

```
<function=create>
<parameter=path>agent/register.py</parameter>
<parameter=file_text>...</parameter>
</function>
```
Several calls may stand in one message. A fenced block whose info string names a path
(```` ```python agent/register.py ````), or whose first line is a comment that is only a path, counts as `create`:
small models imitate that more easily. An unclosed last block is taken as it is: the stop may have cut its end.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "create": ("path", "file_text"),
    "str_replace": ("path", "old_str", "new_str"),
    "view": ("path",),
    "validate": (),
    "finish": (),
}
"""Name -> parameters that must be there."""
FILE_TYPES = (".py", ".yml", ".yaml", ".toml", ".md", ".txt", ".json")
_MAX_PATH_CHARS = 120
_FUNCTION_OPEN = re.compile(r"<function=([\w.-]{1,40})>")
_PARAMETER_OPEN = re.compile(r"<parameter=([\w.-]{1,40})>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call, or what was wrong with it."""

    name: str
    arguments: dict[str, str]
    error: str = ""
    """What the policy is told where the call cannot be done."""


def parse_actions(text: str) -> list[Action]:
    """Return the actions of a completion in order; empty where there is none."""
    found: list[tuple[int, Action]] = []
    rest, position = [], 0
    while match := _FUNCTION_OPEN.search(text, position):
        rest.append((position, text[position : match.start()]))
        end = text.find("</function", match.end())
        next_open = text.find("<function=", match.end())
        if end < 0 or 0 <= next_open < end:
            end = next_open if next_open >= 0 else len(text)
        found.append((match.start(), _function(match[1], text[match.end() : end])))
        close = text.find(">", end) if text.startswith("</function", end) else -1
        position = close + 1 if close >= 0 else max(end, match.end())
    rest.append((position, text[position:]))
    for offset, piece in rest:
        found += [(offset + start, action) for start, action in _fenced_files(piece)]
    return [action for _, action in sorted(found, key=lambda item: item[0])]


def _function(name: str, body: str) -> Action:
    arguments = _parameters(body)
    if name == "str_replace_editor":
        name = arguments.pop("command", "")
    if name not in FUNCTIONS:
        return Action(
            name=name,
            arguments={},
            error=f"unknown function {name!r}; there are {', '.join(FUNCTIONS)}",
        )
    missing = [key for key in FUNCTIONS[name] if key not in arguments]
    if missing:
        return Action(name=name, arguments=arguments, error=f"{name} needs parameter {', '.join(missing)}")
    error = path_error(arguments["path"]) if "path" in FUNCTIONS[name] else ""
    if not error and "path" in arguments:
        arguments["path"] = clean_path(arguments["path"])
    return Action(name=name, arguments=arguments, error=error)


def _parameters(body: str) -> dict[str, str]:
    arguments, position = {}, 0
    while match := _PARAMETER_OPEN.search(body, position):
        end = body.find("</parameter", match.end())
        stop = end if end >= 0 else len(body)
        value = body[match.end() : stop]
        arguments[match[1]] = value[1:] if value.startswith("\n") else value
        position = stop
    for key in ("path", "command"):
        if key in arguments:
            arguments[key] = arguments[key].strip()
    return arguments


def _fenced_files(text: str) -> list[tuple[int, Action]]:
    actions, offset = [], 0
    start, path, lines, is_open = 0, "", [], False
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if not is_open and bare.startswith("```"):
            start, is_open, lines = offset, True, []
            path = next((word for word in bare[3:].split() if _looks_like_path(word)), "")
        elif is_open and bare == "```":
            actions += _fenced(start, path, lines)
            is_open = False
        elif is_open:
            lines.append(line)
        offset += len(line)
    if is_open:
        actions += _fenced(start, path, lines)
    return actions


def _fenced(start: int, path: str, lines: list[str]) -> list[tuple[int, Action]]:
    if not path and lines and lines[0].startswith("#"):
        first = lines[0].lstrip("# ").strip()
        if _looks_like_path(first):
            path, lines = first, lines[1:]
    if not path:
        return []
    error = path_error(path)
    arguments = {"path": path if error else clean_path(path), "file_text": "".join(lines)}
    return [(start, Action(name="create", arguments=arguments, error=error))]


def _looks_like_path(word: str) -> bool:
    return len(word) <= _MAX_PATH_CHARS and " " not in word and word.endswith(FILE_TYPES)


def clean_path(path: str) -> str:
    """Return a path without `./` and doubled slashes."""
    return str(PurePosixPath(path.removeprefix("/workspace/")))


def path_error(path: str) -> str:
    """Return why a path cannot be written, empty if it can."""
    pure = PurePosixPath(path.removeprefix("/workspace/"))
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or len(path) > _MAX_PATH_CHARS:
        return f"path {path[:60]!r} must be relative and inside the package"
    if any(not part.isprintable() or "\\" in part for part in pure.parts):
        return f"path {path[:60]!r} has characters that a file name must not have"
    if pure.suffix not in FILE_TYPES:
        return f"path {path[:60]!r} must end with one of {' '.join(FILE_TYPES)}"
    return ""
