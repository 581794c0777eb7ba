"""Traces as chat messages, all of one shape, so that every row of a data set has the same columns.

A message is `{"role", "content", "tool_calls", "tool_call_id"}`; `tool_calls` holds
`{"id", "type": "function", "function": {"name", "arguments"}}` with the arguments as JSON text, and a tool's answer
names its call. What a message has not is empty text or an empty list. Reasoning is left out: it is no part of what was
said.
"""

import json
from typing import Any

import pyarrow as pa

from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep

_CALL = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
MESSAGE = pa.struct(
    [("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(_CALL)), ("tool_call_id", pa.string())]
)
Message = dict[str, Any]


def split_request(trace: Trace) -> tuple[list[Message], list[TraceStep]]:
    """Return the messages before the agent did anything, and the steps from there on, without reasoning.

    A trace that begins with the agent gets its request as the only message of the user.
    """
    steps = [step for step in trace.steps if step.kind is not StepKind.reasoning]
    start = next((index for index, step in enumerate(steps) if is_agent(step)), len(steps))
    asked = messages_of(steps[:start])
    if not asked and trace.request.strip():
        asked = [_message("user", trace.request)]
    return asked, steps[start:]


def messages_of(steps: list[TraceStep]) -> list[Message]:
    """Return steps as messages; a tool step is the call and the answer to it."""
    messages: list[Message] = []
    num_calls = 0
    for step in steps:
        if step.kind is not StepKind.tool:
            messages.append(_message(step.role, step.text))
            continue
        num_calls += 1
        call_id = f"call_{num_calls}"
        function = {"name": step.tool, "arguments": arguments_text(step)}
        messages.append(_message("assistant", "", calls=[{"id": call_id, "type": "function", "function": function}]))
        messages.append(_message("tool", step.text, call_id=call_id))
    return messages


def is_agent(step: TraceStep) -> bool:
    """Return whether a step is something that the agent said or did."""
    return step.kind is StepKind.tool or (step.kind is StepKind.message and step.role == "assistant")


def said(step: TraceStep) -> str:
    """Return a step of the agent as text: what it said, or its call in Hermes' form."""
    if step.kind is not StepKind.tool:
        return step.text
    return f'<tool_call>\n{{"name": {json.dumps(step.tool)}, "arguments": {arguments_text(step)}}}\n</tool_call>'


def arguments_text(step: TraceStep) -> str:
    """Return a tool's arguments as JSON text.

    Raises:
        ValueError, TypeError: They are no JSON values.
    """
    return json.dumps(step.arguments, allow_nan=False, ensure_ascii=False)


def _message(role: str, content: str, *, calls: list[Message] | None = None, call_id: str = "") -> Message:
    return {"role": role, "content": content, "tool_calls": calls or [], "tool_call_id": call_id}
