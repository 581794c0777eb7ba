"""From the text of an answer to the object in it, or to what is wrong with it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from skyrl_nat.data.planner.backends import Answer
from skyrl_nat.data.planner.schema import violations
from skyrl_nat.strict_json import refuse_constant

FENCE = "```"


class ProblemKind(StrEnum):
    """Why an answer cannot be used."""

    cut = "cut"
    not_json = "not_json"
    several_objects = "several_objects"
    off_schema = "off_schema"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with an answer, in words for the model."""

    kind: ProblemKind
    message: str


def read_object(answer: Answer, schema: Mapping[str, Any]) -> dict[str, Any] | Problem:
    """Return the only JSON object of an answer if it keeps the full schema.

    Args:
        answer: Not blocked, with text.
        schema: The full JSON schema.
    """
    if answer.is_cut:
        return Problem(ProblemKind.cut, "it was cut at the limit of tokens")
    value = _parse(answer.text.strip())
    if isinstance(value, Problem):
        return value
    if not isinstance(value, dict):
        return Problem(ProblemKind.not_json, f"it is a {type(value).__name__}, not a JSON object")
    wrong = violations(value, schema)
    return Problem(ProblemKind.off_schema, "; ".join(wrong)) if wrong else value


def _parse(text: str) -> Any:
    is_fenced = text.startswith(FENCE)
    if is_fenced:
        text = re.sub(r"^```\w*\s*", "", text)
    try:
        value, end = _DECODER.raw_decode(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text) or error.msg.startswith("Unterminated string"):
            return Problem(ProblemKind.cut, "it ends before its JSON does")
        return Problem(ProblemKind.not_json, f"it is not JSON: {error}")
    except (ValueError, RecursionError) as error:
        return Problem(ProblemKind.not_json, f"it is not JSON: {error}")
    rest = text[end:].strip()
    if is_fenced:
        rest = rest.removeprefix(FENCE).strip()
    if rest.startswith(("{", "[", FENCE)):
        return Problem(ProblemKind.several_objects, "it holds more than one JSON object")
    return Problem(ProblemKind.not_json, "text follows its JSON object") if rest else value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object names a key twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=refuse_constant)
