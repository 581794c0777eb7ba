"""What an OpenAI client may ask: one request's body, checked and brought into one form. Nothing in it is trusted."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyrl_nat.config.rollout import MAX_STOP_WORDS

MAX_STOP_WORD_CHARS = 256
MAX_TOOLS = 128
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Role asked for -> role in the chat template."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "top_p": (None, 1),
    "top_k": (None, -1, 0),
    "min_p": (None, 0),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "repetition_penalty": (None, 1),
    "logit_bias": (None, {}),
    "seed": (None,),
    "top_logprobs": (None, 0),
    "tool_choice": (None, "auto", "none"),
}
"""Settings that the run decides, and the values that ask for nothing else."""


class RefusedError(Exception):
    """A request that gets no completion; becomes OpenAI's error object."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """One checked request."""

    messages: list[dict[str, Any]]
    """In one form, so that equal dialogues compare equal: text contents, parsed arguments, no other keys."""
    tools: list[dict[str, Any]]
    max_tokens: int | None
    stop: tuple[str, ...]
    is_stream: bool
    includes_usage: bool
    has_logprobs: bool
    ignored: list[str]
    """Sampling settings that differ from the run's own, which are used instead."""


def parse_request(body: bytes, temperature: float) -> ChatRequest:
    """Check a request's body.

    Args:
        body: JSON.
        temperature: The run's own.

    Raises:
        RefusedError: It is no request that can be answered.
    """
    data = _as_object(_load(body), "body")
    messages = _as_list(data.get("messages"), "messages")
    _require(bool(messages), "messages", "hold at least one message", messages)
    _require(data.get("n") in (None, 1), "n", "be 1", data.get("n"))
    _require(not data.get("functions"), "functions", "be left out; use tools", "some")
    form = data.get("response_format")
    _require(form is None or form == {"type": "text"}, "response_format", "be text: sampling is unconstrained", form)
    options = data.get("stream_options")
    ignored = [name for name, neutral in NEUTRAL.items() if data.get(name) not in neutral]
    if data.get("temperature") not in (None, temperature):
        ignored.append("temperature")
    return ChatRequest(
        messages=[canonical_message(message) for message in messages],
        tools=[] if data.get("tool_choice") == "none" else _tools(data.get("tools") or []),
        max_tokens=_max_tokens(data),
        stop=_stop_words(data.get("stop")),
        is_stream=data.get("stream") is True,
        includes_usage=isinstance(options, dict) and options.get("include_usage") is True,
        has_logprobs=data.get("logprobs") is True,
        ignored=ignored,
    )


def canonical_message(message: Any) -> dict[str, Any]:
    """Return a message in one form.

    Raises:
        RefusedError: It is no message.
    """
    message = _as_object(message, "messages")
    role = message.get("role")
    _require(isinstance(role, str) and role in ROLES, "role", f"be one of {', '.join(ROLES)}", role)
    found: dict[str, Any] = {"role": ROLES[role], "content": _text(message.get("content"))}
    if role == "assistant" and message.get("tool_calls"):
        found["tool_calls"] = [_tool_call(call) for call in _as_list(message["tool_calls"], "tool_calls")]
    for key in ("name", "tool_call_id"):
        if role == "tool" and isinstance(message.get(key), str):
            found[key] = message[key]
    return found


def _load(body: bytes) -> Any:
    try:
        data = json.loads(body)
        # Halves of characters can be written in JSON but not tokenised.
        text = json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "invalid_body", f"The body must be JSON, found: {error}. Send a JSON object") from error


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = [_as_object(part, "content") for part in _as_list(content, "content")]
    for part in parts:
        is_text = part.get("type") == "text" and isinstance(part.get("text"), str)
        _require(is_text, "content", "have text parts only", part)
    return "\n".join(part["text"] for part in parts)


def _tool_call(call: Any) -> dict[str, Any]:
    function = _function(call, "tool_calls")
    arguments = function.get("arguments", "")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            parsed = None
        # Chat templates write arguments as JSON themselves.
        arguments = parsed if isinstance(parsed, dict) else arguments
    return {
        "id": str(call.get("id")),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def _tools(tools: Any) -> list[dict[str, Any]]:
    found = _as_list(tools, "tools")
    _require(len(found) <= MAX_TOOLS, "tools", f"be at most {MAX_TOOLS}", len(found))
    for tool in found:
        _function(tool, "tools")
    return found


def _function(holder: Any, name: str) -> dict[str, Any]:
    function = _as_object(_as_object(holder, name).get("function"), f"{name}.function")
    _require(isinstance(function.get("name"), str), f"{name}.function.name", "be text", function)
    return function


def _max_tokens(data: Mapping[str, Any]) -> int | None:
    limits = [data[name] for name in ("max_completion_tokens", "max_tokens") if data.get(name) is not None]
    for limit in limits:
        _require(type(limit) is int and limit >= 1, "max_tokens", "be a whole number >= 1", limit)
    return min(limits, default=None)


def _stop_words(stop: Any) -> tuple[str, ...]:
    words = [stop] if isinstance(stop, str) else _as_list(stop or [], "stop")
    is_ok = all(isinstance(word, str) and 0 < len(word) <= MAX_STOP_WORD_CHARS for word in words)
    must = f"be at most {MAX_STOP_WORDS} strings of 1 to {MAX_STOP_WORD_CHARS} characters"
    _require(is_ok and len(words) <= MAX_STOP_WORDS, "stop", must, stop)
    return tuple(words)


def _as_list(found: Any, name: str) -> list[Any]:
    _require(isinstance(found, list), name, "be a list", found)
    return found


def _as_object(found: Any, name: str) -> dict[str, Any]:
    _require(isinstance(found, dict), name, "be an object", found)
    return found


def _require(is_ok: bool, name: str, must: str, found: Any) -> None:
    if not is_ok:
        text = f"{name} must {must}, found {str(found)[:100]!r}. Change the request"
        raise RefusedError(400, "invalid_request", text)
