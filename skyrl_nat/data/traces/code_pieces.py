"""The Python code of a trace: fenced blocks of what the agent said, and the files that it left behind."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from skyrl_nat.data.traces.record import StepKind, Trace

PYTHON_WORDS = frozenset({"python", "python3", "py"})
_OPENING = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\n`]*)")
_PROMPT = ">>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block of a Markdown text."""

    language: str
    """First word after the fence, in lower case; empty where there is none."""
    path: str
    """A word after the fence that names a file; empty where there is none."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodePiece:
    """One piece of Python that can be run."""

    path: str
    """Relative to the work folder."""
    source: str


def find_blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a text; one that is never closed ends with the text."""
    fence, words, lines = "", [""], list[str]()
    for line in text.splitlines():
        opening = _OPENING.fullmatch(line)
        if not fence:
            if opening:
                fence, words, lines = opening[1], opening[2].split() or [""], []
        elif opening and opening[1].startswith(fence) and not opening[2].strip():
            yield _block(words, lines)
            fence = ""
        else:
            lines.append(line)
    if fence:
        yield _block(words, lines)


def answer_texts(trace: Trace) -> list[str]:
    """Return what the agent said, in order, without reasoning and tools."""
    return [step.text for step in trace.steps if step.kind is StepKind.message and step.role == "assistant"]


def named_files(trace: Trace) -> dict[str, str]:
    """Return the files of a trace by a path inside the work folder: those left behind, else fenced with a path."""
    fenced = {
        place_inside(block.path): block.text
        for text in answer_texts(trace)
        for block in find_blocks(text)
        if block.path
    }
    return fenced | {place_inside(path): text for path, text in trace.files.items()}


def python_pieces(trace: Trace) -> list[CodePiece]:
    """Return the `.py` files of a trace, then its fenced Python blocks without a path; no text twice, none empty.

    A block that begins with the prompt `>>>` is the record of a session, not a program, and is not among them.
    """
    found = [CodePiece(path=path, source=text) for path, text in named_files(trace).items() if path.endswith(".py")]
    for block in (block for text in answer_texts(trace) for block in find_blocks(text)):
        if block.language in PYTHON_WORDS and not block.path and not block.text.lstrip().startswith(_PROMPT):
            found.append(CodePiece(path=f"fenced_block_{len(found) + 1}.py", source=block.text))
    pieces = {piece.source.strip(): piece for piece in reversed(found)}
    return [piece for piece in found if pieces[piece.source.strip()] is piece and piece.source.strip()]


def place_inside(path: str) -> str:
    """Return a path without what would lead out of the work folder."""
    parts = [part for part in PurePosixPath(path.replace("\\", "/")).parts if part not in ("/", "//", "..")]
    return "/".join(parts) or "unnamed"


def _block(words: list[str], lines: list[str]) -> Block:
    path = next((word for word in words if re.fullmatch(r"[\w./-]*\w\.\w{1,5}", word)), "")
    language = words[0].lower() if words[0] != path else ""
    return Block(language=language, path=path, text=textwrap.dedent("".join(f"{line}\n" for line in lines)))
