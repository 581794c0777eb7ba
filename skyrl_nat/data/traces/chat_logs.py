"""Chat logs in OpenAI's form: rows `{"messages": [...]}`, or pairs of a request and its response.

A log of pairs repeats the dialogue with each call: a row whose dialogue another row continues is left out and counted,
and the tokens of its response go to the step it made.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces import plain
from skyrl_nat.data.traces.collected import BROKEN, Collected, read_json_lines, text_of
from skyrl_nat.data.traces.record import Trace, TraceOutcome
from skyrl_nat.data.traces.step_builder import StepBuilder, arguments_of
from skyrl_nat.errors import DataError

ROLES = {"developer": "system", "function": "tool"}
"""Later and earlier names -> ours."""
BROKEN_ROW = "row with a broken message"
CONTINUED = "dialogue that another row continues"
_Message = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """One row of a log: a dialogue, and what its last answer cost."""

    messages: list[_Message]
    place: str
    model: str = ""
    started_at: str = ""
    tokens: plain.Tokens = plain.NO_TOKENS
    error: str = ""
    reward: Any = None
    label: Any = None
    row_id: str = ""


def read_chat_logs(paths: Sequence[Path]) -> Collected:
    """Return a trace for each dialogue in files of JSON lines.

    Raises:
        DataError: A file cannot be read, or no row in any holds a dialogue.
    """
    collected = Collected()
    chats: list[Chat] = []
    for path in paths:
        for place, row in read_json_lines(path, collected):
            chats += chats_of(row, place, collected)
    if not chats:
        raise DataError(
            f"Chat logs must hold rows with messages, or with a request and a response; {', '.join(map(str, paths))} "
            "hold none. Name others"
        )
    traces = traces_of(chats, collected)
    seen: set[str] = set()
    for trace in traces:
        if trace.trace_id in seen:
            collected.leave_out("dialogue that came again", trace.metadata["place"])
        else:
            seen.add(trace.trace_id)
            collected.traces.append(trace)
    return collected.say()


def traces_of(chats: Sequence[Chat], collected: Collected) -> list[Trace]:
    """Return the traces of rows, without those that others continue."""
    beginnings: set[str] = set()
    tokens: dict[str, plain.Tokens] = {}
    kept: list[tuple[Chat, list[str]]] = []
    for chat in chats:
        try:
            prefixes = list(_prefixes(chat.messages))
        except BROKEN:
            collected.leave_out(BROKEN_ROW, chat.place)
            continue
        beginnings.update(prefixes[:-1])
        if chat.tokens != plain.NO_TOKENS:
            tokens[prefixes[-1]] = chat.tokens
        kept.append((chat, prefixes))
    traces: list[Trace] = []
    for chat, prefixes in kept:
        if prefixes[-1] in beginnings:
            collected.leave_out(CONTINUED, chat.place)
            continue
        try:
            trace = _trace_of(chat, prefixes, tokens, collected)
        except BROKEN:
            collected.leave_out(BROKEN_ROW, chat.place)
            continue
        if collected.is_whole(trace, chat.place):
            traces.append(trace)
    return traces


def chats_of(row: Any, place: str, collected: Collected) -> list[Chat]:
    """Return the dialogues of a row: several where a response has several choices."""
    try:
        return list(_dialogues(row, place, collected))
    except BROKEN as error:
        collected.leave_out("row that cannot be read", f"{place}: {error!r}")
        return []


def _dialogues(row: Any, place: str, collected: Collected) -> Iterator[Chat]:
    if not isinstance(row, dict):
        collected.leave_out("row that is no object", place)
        return
    request, response = _body(row.get("request", row)), _body(row.get("response"))
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        collected.leave_out("row without messages", place)
        return
    choices = response.get("choices") or []
    answers = [[choice["message"]] for choice in choices if isinstance(choice, dict) and choice.get("message")]
    error = response.get("error") or row.get("error")
    if not messages and not answers:
        collected.leave_out("row without messages", place)
        return
    created = response.get("created") or row.get("created") or row.get("timestamp")
    for answer in answers or [[]]:
        yield Chat(
            messages=[*messages, *answer],
            place=place,
            model=str(response.get("model") or request.get("model") or ""),
            started_at=_time(created),
            tokens=plain.tokens(response if len(answers) < 2 else None),
            error="" if not error or answers else plain.text(error),
            reward=row.get("reward"),
            label=row.get("label"),
            row_id=str(row.get("id") or row.get("custom_id") or response.get("id") or ""),
        )


def _body(value: Any) -> dict[str, Any]:
    """Return a request or response, without the envelope of a batch."""
    value = value.get("body", value) if isinstance(value, dict) else {}
    return value if isinstance(value, dict) else {}


def _prefixes(messages: list[_Message]) -> Iterator[str]:
    """Yield the identity of each beginning of a dialogue: of what was said, not of how it was logged."""
    digest = hashlib.sha256()
    for message in messages:
        calls = [_function(call) for call in _calls(message)]
        named = [(function.get("name"), arguments_of(function.get("arguments"))) for function in calls]
        said = [message.get("role"), message.get("content") or "", named, message.get("tool_call_id") or ""]
        digest.update(json.dumps(said, sort_keys=True).encode() + b"\n")
        yield digest.hexdigest()


def _trace_of(chat: Chat, prefixes: list[str], tokens: dict[str, plain.Tokens], collected: Collected) -> Trace:
    steps, request = StepBuilder(), None
    for message, prefix in zip(chat.messages, prefixes, strict=True):
        text = text_of(message.get("content"), collected, chat.place)
        role = ROLES.get(message["role"], message["role"])
        if role == "user" and request is None:
            request = text
        if role == "tool":
            _add_answer(steps, message, text, chat.place, collected)
        elif role == "assistant":
            steps.charge(*tokens.get(prefix, plain.NO_TOKENS))
            _add_assistant(steps, message, text)
        elif role in ("system", "user"):
            steps.message(role, text)
        else:
            collected.leave_out(f"message of unknown role {role}", chat.place)
    metadata: dict[str, Any] = {"place": chat.place, "num_unanswered_calls": steps.num_unanswered}
    metadata |= {"row_id": chat.row_id} if chat.row_id else {}
    metadata |= {"error": chat.error} if chat.error else {}
    trace = Trace(
        trace_id=f"chat-{prefixes[-1][:32]}",
        source="chat",
        request=request or "",
        steps=steps.finish(),
        outcome=TraceOutcome.error if chat.error else TraceOutcome.unknown,
        started_at=chat.started_at,
        model=chat.model,
        labels={} if chat.label is None else {"label": chat.label},
        metadata=metadata,
    )
    return _with_reward(trace, chat, collected)


def _with_reward(trace: Trace, chat: Chat, collected: Collected) -> Trace:
    """Return the trace with the row's reward, where it is one."""
    reward = chat.reward
    if reward is None:
        return trace
    if isinstance(reward, (int, float)) and not isinstance(reward, bool) and 0 <= reward <= 1:
        return replace(trace, reward=float(reward))
    collected.leave_out("reward that is no number in [0, 1]", chat.place)
    return trace


def _add_assistant(steps: StepBuilder, message: _Message, text: str) -> None:
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought:
        steps.reasoning(thought)
    calls = _calls(message)
    if text or not (calls or thought):
        steps.message("assistant", text)
    for call in calls:
        function = _function(call)
        steps.call(str(call.get("id") or function["name"]), function["name"], arguments_of(function.get("arguments")))


def _add_answer(steps: StepBuilder, message: _Message, text: str, place: str, collected: Collected) -> None:
    call_id = str(message.get("tool_call_id") or message.get("name") or "")
    is_error = message.get("is_error") is True or message.get("status") == "error"
    if not steps.answer(call_id, text, is_error=is_error):
        collected.leave_out("answer to no call", place)


def _calls(message: _Message) -> list[dict[str, Any]]:
    """Return the calls of a message; the earlier form has one at most, without an id."""
    calls = message.get("tool_calls") or []
    earlier = message.get("function_call")
    return [*calls, {"function": earlier}] if isinstance(earlier, dict) else list(calls)


def _function(call: dict[str, Any]) -> dict[str, Any]:
    """Return what is called; OpenAI's custom tools take one text."""
    custom = call.get("custom")
    return call.get("function") or ({"name": custom["name"], "arguments": custom.get("input")} if custom else {})


def _time(created: Any) -> str:
    if isinstance(created, (int, float)) and not isinstance(created, bool):
        return datetime.fromtimestamp(created, UTC).isoformat()
    return created if isinstance(created, str) else ""
