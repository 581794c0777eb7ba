"""The reward part `format`: whether the files and the JSON that a request asks for were handed over.

Reading is cautious: what is not clearly asked for is not counted against anybody.

A file is asked for where a verb of making comes before its name in the sentence (`MAKING`), and no word in between
says that it is only looked at (`LOOKING`, taken back by `PLACING`); what comes after `that` or `which` describes what
the work does. JSON is asked for where a clause begins with a verb of answering or says what the answer must be. A
request that asks for neither has no such part.
"""

import re
from collections.abc import Iterator
from typing import Any

from skyrl_nat.data.traces.code_pieces import answer_texts, find_blocks, named_files, place_inside
from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.strict_json import parse_json

MAKING = frozenset(["add", "build", "create", "generate", "implement", "make", "produce", "save", "store", "write"])
PLACING = frozenset(["as", "called", "in", "into", "named", "to"])
LOOKING = frozenset(["for", "from", "given", "like", "load", "of", "open", "parse", "read", "use", "using", "with"])
DESCRIBING = frozenset(["that", "which"])
FILE_TYPES = "py|pyi|json|jsonl|ya?ml|toml|md|txt|csv|cfg|ini|sh|html|css|js|ts|sql|ipynb"
PATH_KEYS = ("path", "file_path", "filename", "file")
TEXT_KEYS = ("file_text", "content", "text", "contents")
_FILE = re.compile(rf"(?<![\w./:-])[\w./-]*\w\.(?:{FILE_TYPES})\b(?!\.?\w)")
_WORD = re.compile(rf"(?P<file>{_FILE.pattern})|[A-Za-z]+")
_SENTENCE_END = re.compile(r"(?<=[.!?;])\s+|\n+")
_CLAUSE_END = re.compile(r"(?<=[.,!?;:])\s+|\n+")
_ASKS_FOR_JSON = re.compile(
    r"[\W\d]*(?:(?:please|only|just|then|and|now|always) )*"
    r"(?:answer|format|give|output|print|produce|provide|reply|respond|return)\b.*\bJSON\b"
    r"|.*\b(?:answer|output|reply|response) (?:has to|is to|must|needs to|shall|should) be\b.*\bJSON\b",
    re.IGNORECASE,
)


def format_kept(trace: Trace) -> float | None:
    """Return the share of what is asked for that was handed over; None where no form is asked for."""
    delivered = _delivered(trace)
    checks = [_is_delivered(path, delivered) for path in asked_files(trace.request)]
    if asks_for_json(trace.request):
        answers = answer_texts(trace)
        checks.append(bool(answers) and is_json_answer(answers[-1]))
    return sum(checks) / len(checks) if checks else None


def asked_files(request: str) -> list[str]:
    """Return the paths that a request wants to have, in order, each once."""
    paths = [path for sentence in _SENTENCE_END.split(request) for path in _asked_in(sentence)]
    return list(dict.fromkeys(map(place_inside, paths)))


def _asked_in(sentence: str) -> Iterator[str]:
    is_making = is_looking = False
    for word in _WORD.finditer(sentence):
        text = word[0].lower()
        if word["file"]:
            if is_making and not is_looking:
                yield word[0]
        elif text in DESCRIBING:
            return
        elif text in MAKING:
            is_making, is_looking = True, False
        elif text in PLACING | LOOKING:
            is_looking = text in LOOKING


def asks_for_json(request: str) -> bool:
    """Return whether the answer itself is to be JSON."""
    clauses = _CLAUSE_END.split(request)
    return any(_ASKS_FOR_JSON.match(clause) and not _FILE.search(clause) for clause in clauses)


def is_json_answer(text: str) -> bool:
    """Return whether a text, or the only fenced block in it, is valid JSON; NaN and Infinity are not."""
    blocks = list(find_blocks(text))
    return is_json(text) or (len(blocks) == 1 and is_json(blocks[0].text))


def is_json(text: str) -> bool:
    """Return whether a text is valid JSON."""
    try:
        parse_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _delivered(trace: Trace) -> dict[str, str]:
    """Return the files left behind, fenced with a path or written by a tool that did not fail."""
    written = dict(pair for step in trace.steps if (pair := _written(step)))
    return {place_inside(path): text for path, text in written.items()} | named_files(trace)


def _written(step: TraceStep) -> tuple[str, str] | None:
    if step.kind is not StepKind.tool or step.is_error:
        return None
    path, text = (_first_text(step.arguments, keys) for keys in (PATH_KEYS, TEXT_KEYS))
    return (path, text) if path and text is not None else None


def _first_text(arguments: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    return next((arguments[key] for key in keys if isinstance(arguments.get(key), str)), None)


def _is_delivered(path: str, delivered: dict[str, str]) -> bool:
    """Return whether a path is among the files, at the end of a longer one too; a JSON file must be JSON."""
    found = [text for name, text in delivered.items() if name == path or name.endswith(f"/{path}")]
    return bool(found) and (not path.endswith(".json") or all(map(is_json, found)))
