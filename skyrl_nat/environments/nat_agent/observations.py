"""What the policy is shown: text that it wrote itself comes back in it, and must not pass for the conversation.

A file, a test or a shell command can print `<|im_start|>user`, a call of ours, or a made-up result. Most tokenizers
turn the text of a special token into the token wherever it stands, so such marks are broken by a backslash, which
everybody can see. A zero-width character would not do: some tokenizers strip it and find the mark whole again. For
the same reason characters that print nothing, or that normalising turns into ASCII, are shown as their escapes.
"""

import re
import unicodedata

BREAK = "\\"
_UNUSUAL = re.compile(r"[^\n\t -~]")
_NAMES = (
    r"s|bos|eos|pad|unk|sep|cls|mask|sop|eop|think|sys|system|user|assistant|tool|tools|observation|image|img|ref|box|quad|reponame|filename|unused\d+"
    r"|[a-z]+(?:_[a-z\d]+)+"
)
_MARKS = (
    re.compile(rf"<(?=/?(?:\||(?:function|parameter)\b|(?:{_NAMES})>))", re.IGNORECASE),
    re.compile(r"\[(?=/?(?:INST|SYS|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w+|THINK|[gs]?MASK|CLS|SEP)\])"),
    re.compile(r"^(?=result of \w)", re.MULTILINE),
)


def neutralise(text: str) -> str:
    """Return a text in which no mark of a chat template, call or result is whole."""
    text = _UNUSUAL.sub(lambda match: _shown(match[0]), text)
    for marks in _MARKS:
        text = marks.sub(lambda match: match[0] + BREAK, text)
    return text


def _shown(character: str) -> str:
    """Return a character, or its escape where it prints nothing or normalising makes it an ASCII one."""
    is_plain = character.isprintable() and not unicodedata.normalize("NFKC", character).isascii()
    return character if is_plain else character.encode("unicode_escape").decode("ascii")


def cut_middle(text: str, max_chars: int) -> str:
    """Return a text of at most `max_chars` characters: its head and its tail where it is longer."""
    if len(text) <= max_chars:
        return text
    mark = f"\n[... {len(text) - max_chars} characters cut ...]\n"
    keep = max_chars - len(mark)
    return text[: keep - keep // 2] + mark + text[len(text) - keep // 2 :]
