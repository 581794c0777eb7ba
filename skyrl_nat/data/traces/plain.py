"""What an unknown object says: its text, its JSON value, its tokens, its model."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

Tokens = tuple[int | None, int | None]
"""Of the prompt, and of the completion."""
NO_TOKENS: Tokens = (None, None)
_USAGES = ("usage", "usage_metadata", "token_usage")
_PROMPT_NAMES = ("prompt_tokens", "input_tokens", "num_prompt_tokens")
_COMPLETION_NAMES = ("completion_tokens", "output_tokens", "num_completion_tokens")
_TEXT_NAMES = ("content", "text", "output", "answer", "final_output")
_MAX_DEPTH = 20


def json_value(value: Any, depth: int = 0) -> Any:
    """Return a value of JSON types only; what is none of them becomes its text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if depth > _MAX_DEPTH:
        return repr(value)
    if isinstance(value, Mapping):
        return {str(key): json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [json_value(item, depth + 1) for item in value]
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return json_value(dump(), depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: json_value(getattr(value, name), depth + 1) for name in names}
    return str(value)


def text(value: Any) -> str:
    """Return what a request or an answer says: itself, its text, that of its last message, or its JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    messages = _get(value, "messages")
    if isinstance(messages, list) and messages:
        return text(messages[-1])
    for name in _TEXT_NAMES:
        found = _get(value, name)
        if isinstance(found, str):
            return found
    if isinstance(value, list) and value and isinstance(_get(value[-1], "role"), str):
        return text(value[-1])
    plain = json_value(value)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def tokens(value: Any) -> Tokens:
    """Return the tokens that an agent or an answer reports in one of the usual ways."""
    for name in _USAGES:
        usage = _get(value, name)
        usage = usage() if callable(usage) else usage
        found = (_count(usage, _PROMPT_NAMES), _count(usage, _COMPLETION_NAMES))
        if found != NO_TOKENS:
            return found
    return NO_TOKENS


def model_name(agent: Any) -> str:
    """Return the name of an agent's model, empty where it does not say."""
    for name in ("model_name", "model"):
        found = _get(agent, name)
        if isinstance(found, str):
            return found
        for inner in ("model_name", "name"):
            if isinstance(_get(found, inner), str):
                return _get(found, inner)
    return ""


def _get(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _count(usage: Any, names: tuple[str, ...]) -> int | None:
    counts = (_get(usage, name) for name in names)
    return next((count for count in counts if isinstance(count, int) and not isinstance(count, bool)), None)
