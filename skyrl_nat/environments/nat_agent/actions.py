"""From a completion's text to actions: OpenHands' text function format, and fenced files.

```
<function=str_replace_editor>
<parameter=command>create</parameter>
<parameter=path>agent/register.py</parameter>
<parameter=file_text>
...
</parameter>
</function>
```
`parse_call` reads the one call of a multi-turn message and is strict; its stop word is `</function`. `parse_actions`
reads the one-shot form, which small models can write: several calls may stand in one message, the editor's commands
are functions of their own, a fenced block whose info string names a path (```` ```python agent/register.py ````), or
whose first line is a comment that is only a path, counts as `create`, and an unclosed last block is taken as it is.
"""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

STOP_WORD = "</function"
EDITOR = "str_replace_editor"
FILE_TYPES = (".py", ".yml", ".yaml", ".toml", ".md", ".txt", ".json", ".sh")
"""What `create` writes. A shell command may leave other text files; the validator decides what they are worth."""
MAX_PATH_CHARS = 120
_WORKSPACE = "/workspace"
_FUNCTION_OPEN = re.compile(r"<function=([\w.-]{1,40})>")
_PARAMETER_OPEN = re.compile(r"<parameter=([\w.-]{1,40})>")
_NEXT_MARK = re.compile(r"<parameter=([\w.-]{1,40})>|</function|<function=")


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a function takes."""

    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()


COMMANDS: dict[str, Parameters] = {
    "view": Parameters(("path",), ("view_range",)),
    "create": Parameters(("path", "file_text")),
    "str_replace": Parameters(("path", "old_str"), ("new_str",)),
    "insert": Parameters(("path", "insert_line", "new_str")),
}
"""Commands of the editor."""
TOOLS: dict[str, Parameters] = {
    "execute_bash": Parameters(("command",)),
    "run_tests": Parameters((), ("path",)),
    "validate": Parameters(),
    "finish": Parameters((), ("message",)),
}
FUNCTIONS = COMMANDS | TOOLS
"""What an action can be."""
_EDITOR_PARAMETERS = {"command"}.union(*((*item.required, *item.optional) for item in COMMANDS.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call, or what was wrong with it."""

    name: str
    """Key of `FUNCTIONS` where there is no error."""
    arguments: dict[str, str]
    error: str = ""
    """What the policy is told where the call cannot be done."""


def parse_call(text: str) -> Action:
    """Return the first call of a completion; what follows it is never looked at."""
    opened = _FUNCTION_OPEN.search(text)
    if opened is None:
        return Action(name="", arguments={}, error="a message must hold one function call, found none")
    name = opened[1]
    arguments, error = _closed_parameters(text, opened.end())
    if error:
        return Action(name=name, arguments=arguments, error=f"{name}: {error}")
    if name != EDITOR and name not in TOOLS:
        known = ", ".join((EDITOR, *TOOLS))
        return Action(name=name, arguments={}, error=f"unknown function {name!r}; there are {known}")
    allowed = _EDITOR_PARAMETERS if name == EDITOR else {*TOOLS[name].required, *TOOLS[name].optional}
    unknown = [key for key in arguments if key not in allowed]
    if unknown:
        takes = ", ".join(sorted(allowed)) or "none"
        return Action(name=name, arguments={}, error=f"{name} has no parameter {', '.join(unknown)}; it takes {takes}")
    return _action(name, arguments)


def parse_actions(text: str) -> list[Action]:
    """Return the actions of a one-shot completion in order; empty where there is none."""
    found: list[tuple[int, Action]] = []
    rest, position = [], 0
    while match := _FUNCTION_OPEN.search(text, position):
        rest.append((position, text[position : match.start()]))
        end = text.find(STOP_WORD, match.end())
        next_open = text.find("<function=", match.end())
        if end < 0 or 0 <= next_open < end:
            end = next_open if next_open >= 0 else len(text)
        found.append((match.start(), _action(match[1], _open_parameters(text[match.end() : end]))))
        close = text.find(">", end) if text.startswith(STOP_WORD, end) else -1
        position = close + 1 if close >= 0 else max(end, match.end())
    rest.append((position, text[position:]))
    for offset, piece in rest:
        found += [(offset + start, action) for start, action in _fenced_files(piece)]
    return [action for _, action in sorted(found, key=lambda item: item[0])]


def _action(name: str, arguments: dict[str, str]) -> Action:
    """Return a call as an action of the editor or a tool."""
    if name == EDITOR:
        name = arguments.pop("command", "").strip()
        if name not in COMMANDS:
            known = ", ".join(COMMANDS)
            return Action(name=EDITOR, arguments={}, error=f"command must be one of {known}, got {name[:40]!r}")
    if name not in FUNCTIONS:
        return Action(name=name, arguments={}, error=f"unknown function {name!r}; there are {', '.join(FUNCTIONS)}")
    missing = [key for key in FUNCTIONS[name].required if key not in arguments]
    if missing:
        return Action(name=name, arguments=arguments, error=f"{name} needs parameter {', '.join(missing)}")
    error = ""
    if "path" in arguments:
        arguments["path"] = clean_path(arguments["path"])
        error = path_error(arguments["path"], is_new=name == "create")
    return Action(name=name, arguments=arguments, error=error)


def _closed_parameters(text: str, position: int) -> tuple[dict[str, str], str]:
    """Return the parameters of the call that began before `position`, and what is wrong with them.

    A parameter without its end was cut by the token limit: half a file must not pass for a whole one. The end of
    the call itself may be missing, since it is the stop word.
    """
    arguments: dict[str, str] = {}
    while (match := _NEXT_MARK.search(text, position)) and (name := match[1]):
        end = text.find("</parameter", match.end())
        if end < 0:
            return arguments, f"parameter {name} must be closed with </parameter>"
        if name in arguments:
            return arguments, f"parameter {name} must stand once"
        arguments[name] = _value(name, text[match.end() : end])
        position = end
    return arguments, ""


def _open_parameters(body: str) -> dict[str, str]:
    arguments: dict[str, str] = {}
    position = 0
    while match := _PARAMETER_OPEN.search(body, position):
        end = body.find("</parameter", match.end())
        stop = end if end >= 0 else len(body)
        arguments[match[1]] = _value(match[1], body[match.end() : stop])
        position = stop
    return arguments


def _value(name: str, text: str) -> str:
    """Return a value without the line breaks that only set it apart; a file keeps the one at its end."""
    text = text.removeprefix("\n")
    return text if name == "file_text" else text.removesuffix("\n")


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
    return [(start, _action("create", {"path": path, "file_text": "".join(lines)}))]


def _looks_like_path(word: str) -> bool:
    return len(word) <= MAX_PATH_CHARS and " " not in word and word.endswith(FILE_TYPES)


def clean_path(path: str) -> str:
    """Return a path relative to the workspace, without `./` and doubled slashes; `.` is the workspace itself."""
    path = path.strip()
    if path == _WORKSPACE or path.startswith(f"{_WORKSPACE}/"):
        path = path.removeprefix(_WORKSPACE).lstrip("/")
    return str(PurePosixPath(path))


def path_error(path: str, *, is_new: bool = False) -> str:
    """Return why a clean path cannot be used, empty if it can.

    Args:
        path: What `clean_path` gives.
        is_new: Whether a file is to be written there by `create`.
    """
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or len(path) > MAX_PATH_CHARS or (is_new and not pure.parts):
        return f"path {path[:60]!r} must be relative and inside the package"
    if any(not part.isprintable() or "\\" in part for part in pure.parts):
        return f"path {path[:60]!r} has characters that a file name must not have"
    if is_new and pure.suffix not in FILE_TYPES:
        return f"path {path[:60]!r} must end with one of {' '.join(FILE_TYPES)}"
    return ""
