"""Answers in OpenAI's shapes: completion, chunks, errors."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skyrl_nat.rollouts.chat_request import ChatRequest, RefusedError

MODEL_NAME = "policy"
"""What the gateway calls the model, whatever a client calls it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """One completion on its way to a client."""

    answer_id: str
    created: int
    message: dict[str, Any]
    """The assistant message."""
    finish_reason: str
    num_prompt_tokens: int
    num_completion_tokens: int
    logprobs: dict[str, Any] | None

    @property
    def usage(self) -> dict[str, int]:
        """Token counts."""
        return {
            "prompt_tokens": self.num_prompt_tokens,
            "completion_tokens": self.num_completion_tokens,
            "total_tokens": self.num_prompt_tokens + self.num_completion_tokens,
        }


def completion_body(answer: ChatAnswer) -> dict[str, Any]:
    """Return a `chat.completion` object."""
    choice = {
        "index": 0,
        "message": answer.message,
        "finish_reason": answer.finish_reason,
        "logprobs": answer.logprobs,
    }
    return {**_frame(answer, "chat.completion"), "choices": [choice], "usage": answer.usage}


def stream_events(answer: ChatAnswer, request: ChatRequest) -> Iterator[str]:
    """Return the server-sent events of a stream: the whole message at once, its end, the usage if asked for."""
    frame = _frame(answer, "chat.completion.chunk")
    delta = dict(answer.message)
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": i, **call} for i, call in enumerate(delta["tool_calls"])]
    first = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": answer.logprobs}
    last = {"index": 0, "delta": {}, "finish_reason": answer.finish_reason}
    chunks: list[dict[str, Any]] = [{**frame, "choices": [first]}, {**frame, "choices": [last]}]
    if request.includes_usage:
        chunks.append({**frame, "choices": [], "usage": answer.usage})
    yield from (f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    yield "data: [DONE]\n\n"


def error_body(error: RefusedError) -> dict[str, Any]:
    """Return OpenAI's error object; the code is in its text too, as not every client hands it on."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return {"error": {"message": f"{error} [{error.code}]", "type": kind, "code": error.code, "param": None}}


def models_body() -> dict[str, Any]:
    """Return the list of models: one."""
    model = {"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "skyrl-nat"}
    return {"object": "list", "data": [model]}


def _frame(answer: ChatAnswer, kind: str) -> dict[str, Any]:
    return {"id": answer.answer_id, "object": kind, "created": answer.created, "model": MODEL_NAME}
