"""List every message that the package can say to a user, and which of them explain themselves.

usage: list_messages.py [--json] [--unexplained] [FOLDER ...]      (default: skyrl_nat)

Read from the source, never by importing it: errors of the package's own types, refusals by `require(...)`, alarms,
and warnings. What a message fills in is shown as `…`. A message explains itself where it says what must hold or what
went wrong, what was found, and what to do; `explains_itself` is the rule. All others need an entry in
docs/TROUBLESHOOTING.md.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BASE = "SkyRLNatError"
HOLE = "…"
WARNERS = ("warn", "warning")
MAX_FORWARDING_WORDS = 2
DEMANDS = re.compile(
    r"\b(must|may|computes|cannot|can|could|needs?|is|are|was|were|has|have|holds?|did|does|do|refuses?|takes?|ends?|ended|"
    r"teach|failed|differ|names?|known|exist)\b"
)
"""What must hold, or what went wrong: a sentence with one of these."""
FOUND = re.compile(rf"{HOLE}|\b(got|found|none|no|not|nothing|neither|missing|empty|without)\b")
"""What was found: a value, or that there is none."""
VERBS = (
    "add|allow|ask|attach|begin|build|call|change|check|choose|close|collect|come|compare|compute|connect|"
    "convert|copy|correct|cut|delete|deploy|describe|divide|drop|end|enter|evaluate|export|fetch|fill|fix|free|"
    "give|go|ignore|install|join|keep|label|leave|let|load|log|look|lower|make|mark|mend|merge|mount|move|name|"
    "open|pass|pick|pip|play|point|prepare|push|put|quote|raise|read|record|reduce|remove|rename|repair|repeat|"
    "replace|report|resolve|restart|restore|resume|retry|run|save|say|see|send|serve|set|shorten|show|split|"
    "start|stop|store|submit|switch|take|train|try|turn|unset|upload|use|vary|wait|write"
)
IMPERATIVE = re.compile(rf"(?:^|[.;:,)]\s+|\b(?:or|and|then|first|please|so|do not)\s+)(?:{VERBS})\b", re.IGNORECASE)
"""What to do: a sentence or clause that begins with a verb that tells someone to act."""
HABITS = re.compile(r"\b(the default is|the usual|usual values|for instance|by hand)\b", re.IGNORECASE)
"""What to do, said as a value to take."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of the source."""

    file: str
    line: int
    kind: str
    """Type of the error, or `Alarm` or `warning`."""
    text: str
    """With `…` for what is filled in."""
    is_explained: bool


def explains_itself(text: str) -> bool:
    """Return whether a message says what must hold, what was found and what to do.

    The part that says what to do is an imperative that begins a sentence or clause, or a usual value. The rest of the
    message must hold a verb that states something, and what was found.
    """
    words = text.replace("\n", " ")
    has_action = bool(IMPERATIVE.search(words) or HABITS.search(words))
    # A sentence that begins with what is filled in and a comma has its demand in there.
    has_demand = bool(DEMANDS.search(words)) or words.startswith(f"{HOLE},")
    return has_action and has_demand and bool(FOUND.search(words))


def error_types(trees: Sequence[ast.Module]) -> set[str]:
    """Return the names of `SkyRLNatError` and of all classes below it in these modules."""
    bases = {
        node.name: {name for base in node.bases if (name := _name_of(base))}
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }
    known = {BASE}
    while more := {name for name, parents in bases.items() if parents & known} - known:
        known |= more
    return known


def text_of(node: ast.expr) -> str | None:
    """Return a literal text with `…` for what is filled in; None where it is no literal."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(HOLE if isinstance(part, ast.FormattedValue) else text_of(part) or "" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return None if left is None and right is None else (left or HOLE) + (right or HOLE)
    return None


def messages_in(tree: ast.Module, file: str, types: set[str]) -> Iterator[Message]:
    """Yield the messages of one module."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = _name_of(node.func)
        if name == "require" and len(node.args) == 5:
            yield _required(node, file)
        elif name in types or name == "Alarm" or (name in WARNERS and isinstance(node.func, ast.Attribute)):
            kind = "warning" if name in WARNERS else name
            text = re.sub(r"%(?:\.\d+)?[sdrgf]", HOLE, _joined(node.args[0]))
            yield Message(file, node.lineno, kind, text, _is_forwarded(text) or explains_itself(text))


def list_messages(folders: Sequence[Path]) -> list[Message]:
    """Return the messages of all modules below folders, by file and line."""
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    types = error_types(list(trees.values()))
    return [
        message
        for path, tree in trees.items()
        for message in sorted(messages_in(tree, _shown(path), types), key=lambda message: message.line)
    ]


def _required(node: ast.Call, file: str) -> Message:
    """Return the message of `require(is_ok, path, must, found, fix)`."""
    path, must, fix = (_joined(node.args[place]) for place in (1, 2, 4))
    text = f"{path} must {must}, got {HOLE}. {fix}"
    return Message(file, node.lineno, "ConfigError", text, explains_itself(text) or _points_somewhere(fix))


def _is_forwarded(text: str) -> bool:
    """Return whether a message says hardly more than whose text follows: that one is judged where it is written."""
    return text.endswith(HOLE) and len(re.findall(r"\w+", text.replace(HOLE, ""))) <= MAX_FORWARDING_WORDS


def _points_somewhere(fix: str) -> bool:
    """Return whether the last sentence of a refused setting names a key to change, or is handed over."""
    return fix == HOLE or "=" in fix or bool(IMPERATIVE.search(fix))


def _joined(node: ast.expr) -> str:
    text = text_of(node)
    return HOLE if text is None else " ".join(text.split())


def _name_of(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _shown(path: Path) -> str:
    path = path.resolve()
    return str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path)


def main() -> int:
    """Print the messages, grouped by file; with --unexplained exit 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, default=[ROOT / "skyrl_nat"])
    parser.add_argument("--json", action="store_true", help="one JSON list instead of lines")
    parser.add_argument("--unexplained", action="store_true", help="only those that do not say what to do")
    options = parser.parse_args()
    found = list_messages(options.folders)
    shown = [message for message in found if not (options.unexplained and message.is_explained)]
    if options.json:
        print(json.dumps([asdict(message) for message in shown], ensure_ascii=False, indent=1))
    else:
        file = ""
        for message in shown:
            if message.file != file:
                file = message.file
                print(file)
            sign = " " if message.is_explained else "!"
            print(f"  {sign} {message.line:4} {message.kind}: {message.text}")
    num_open = sum(not message.is_explained for message in found)
    print(f"{len(found)} messages, {num_open} do not explain themselves", file=sys.stderr)
    return 1 if options.unexplained and shown else 0


if __name__ == "__main__":
    sys.exit(main())
