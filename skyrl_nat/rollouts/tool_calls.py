"""Hermes tool calls in a completion's text: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`."""

import json
import re
from dataclasses import dataclass
from typing import Any

# A stop word or the token limit may have taken the closing tag.
_BLOCK = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call as the policy wrote it."""

    name: str
    arguments: dict[str, Any]


def split_tool_calls(text: str) -> tuple[str, list[ToolCall]]:
    """Return the text around tool calls and the calls; a malformed one stays text."""
    calls: list[ToolCall] = []

    def take(match: re.Match[str]) -> str:
        call = _parse(match[1])
        if call is None:
            return match[0]
        calls.append(call)
        return ""

    rest = _BLOCK.sub(take, text)
    return (rest.strip(), calls) if calls else (text, [])


def _parse(block: str) -> ToolCall | None:
    try:
        found = json.loads(block)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str) or not found["name"]:
        return None
    arguments = found.get("arguments", {})
    return ToolCall(name=found["name"], arguments=arguments) if isinstance(arguments, dict) else None
