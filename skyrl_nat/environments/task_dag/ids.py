"""The rule for ids of tasks.

An id is text in Unicode's NFC form (other spellings of the same characters are brought into it), 1 to 40 characters
long, of letters, digits, `_`, `-` and `.` only; so it has no blanks, and no mark of a chat template fits in. Two ids
that differ but look alike (case, width, leading zeros of numbers, blanks around, `_` for `-`) are never taken for one
another in silence: a plan that has both, or that writes one where the other is meant, is refused as ambiguous.
"""

import re
import unicodedata

ROOT = "request"
"""Id of the node that every plan grows from; no task may have it."""
MAX_ID_CHARS = 40
MAX_SHOWN = 60
_ZEROS = re.compile(r"(?<!\d)0+(?=\d)")


def normal_id(text: str) -> str:
    """Return an id in NFC form."""
    return unicodedata.normalize("NFC", text)


def look_of(text: str) -> str:
    """Return what ids that look alike have in common."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).strip()
    return _ZEROS.sub("", folded.replace("_", "-"))


def id_problem(text: str) -> str:
    """Return why a text in NFC form cannot be an id, as one sentence; empty where it can."""
    if 0 < len(text) <= MAX_ID_CHARS and all(character.isalnum() or character in "_-." for character in text):
        return ""
    return (
        f"an id must have 1 to {MAX_ID_CHARS} letters, digits, '_', '-' or '.' and no blanks, got {shown(text)}. "
        "Rename the task"
    )


def shown(value: object) -> str:
    """Return a value for a message, cut where it is long."""
    text = ascii(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
