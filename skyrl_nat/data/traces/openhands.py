"""Conversations that OpenHands' SDK (1.58) keeps: `base_state.json` and one file per event in `events/`.

Events form a tree, and the conversation is the path from its root to the leaf that the state names: what lies on other
branches was abandoned, and is counted.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces.collected import BROKEN, Collected, text_of
from skyrl_nat.data.traces.record import Trace, TraceOutcome
from skyrl_nat.data.traces.step_builder import StepBuilder, arguments_of
from skyrl_nat.errors import DataError

STATE_FILE = "base_state.json"
SILENT_KINDS = frozenset(
    {
        "Condensation",
        "CondensationRequest",
        "CondensationSummaryEvent",
        "ConversationStateUpdateEvent",
        "HookExecutionEvent",
        "InterruptEvent",
        "LLMCompletionLogEvent",
        "PauseEvent",
        "SecurityAnalysisEvent",
        "StreamingDeltaEvent",
        "TokenEvent",
    }
)
"""Known events that are no steps; they are counted in the trace's metadata."""
ENDED_BADLY = ("error", "stuck")
_ROOT = "__root__"
_EVENT_NAME = re.compile(r"event-(\d{5,})-.+\.json")
_NO_LEAVES = ("ConversationStateUpdateEvent", "ConversationErrorEvent")


@dataclass(slots=True)
class _Talk:
    """One conversation in the making."""

    collected: Collected
    state: dict[str, Any]
    place: str
    steps: StepBuilder = field(default_factory=StepBuilder)
    request: str | None = None
    error: str = ""
    called_at: dict[str, str] = field(default_factory=dict[str, str])
    silent: dict[str, int] = field(default_factory=dict[str, int])
    last_response: str = ""


def read_conversations(folder: Path) -> Collected:
    """Return a trace for each conversation below a folder (or for the one that the folder is).

    Raises:
        DataError: There is none.
    """
    states = sorted({path.parent for path in folder.rglob("events") if path.is_dir()})
    if not states:
        raise DataError(
            f"{folder} must hold conversations of OpenHands, but no folder `events` is in it. Check the path"
        )
    collected = Collected()
    for path in states:
        try:
            _read_conversation(path, collected)
        except BROKEN as error:
            collected.leave_out("conversation that cannot be read", f"{path}: {error!r}")
    return collected.say()


def _read_conversation(folder: Path, collected: Collected) -> None:
    state = _read_object(folder / STATE_FILE, collected) or {}
    talk = _Talk(collected, state, str(folder))
    events = list(_read_events(folder / "events", collected))
    branch = _active_branch(events, state)
    for _ in range(len(events) - len(branch)):
        collected.leave_out("event of an abandoned branch", str(folder))
    if not branch:
        collected.leave_out("conversation without events", str(folder))
        return
    usage = _usage_by_response(state)
    for event in branch:
        try:
            _add_event(talk, event, usage)
        except BROKEN:
            collected.leave_out(f"broken {event.get('kind')}", f"{folder}, event {event.get('id')}")
    collected.add(_finish(talk, folder, branch), str(folder))


def _finish(talk: _Talk, folder: Path, branch: list[dict[str, Any]]) -> Trace:
    agent = talk.state.get("agent") or {}
    status = str(talk.state.get("execution_status", ""))
    metadata: dict[str, Any] = {"execution_status": status, "num_unanswered_calls": talk.steps.num_unanswered}
    metadata |= {"other_events": talk.silent} if talk.silent else {}
    metadata |= {"error": talk.error} if talk.error else {}
    started, ended = _time(branch[0]), _time(branch[-1])
    return Trace(
        trace_id=f"openhands-{str(talk.state.get('id') or folder.name).replace('-', '')}",
        source="openhands",
        request=talk.request or "",
        steps=talk.steps.finish(),
        outcome=TraceOutcome.error if talk.error or status in ENDED_BADLY else TraceOutcome.unknown,
        started_at=started.astimezone(UTC).isoformat() if started else "",
        seconds=_seconds(started, ended),
        agent=str(agent.get("kind") or "openhands"),
        model=str((agent.get("llm") or {}).get("model") or ""),
        metadata=metadata,
    )


def _read_object(path: Path, collected: Collected) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        collected.leave_out(f"{path.name if path.name == STATE_FILE else 'event file'} that cannot be read", str(path))
        return None
    return value if isinstance(value, dict) else None


def _read_events(folder: Path, collected: Collected) -> Iterator[dict[str, Any]]:
    """Yield the events in the order of their numbers."""
    numbered: list[tuple[int, Path]] = []
    for path in sorted(folder.iterdir()):
        match = _EVENT_NAME.fullmatch(path.name)
        if match:
            numbered.append((int(match[1]), path))
        elif not path.name.startswith("."):
            collected.leave_out("file that is no event", str(path))
    numbered.sort()
    for before, (number, path) in zip([-1, *(number for number, _ in numbered)], numbered, strict=False):
        if number > before + 1:
            collected.leave_out("gap in the numbers of the events", str(path))
        event = _read_object(path, collected)
        if event is not None:
            yield event


def _active_branch(events: list[dict[str, Any]], state: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the path from the root to the leaf; events of earlier versions name no parent and follow each other."""
    if state.get("head_is_empty"):
        return []
    index = {event.get("id"): number for number, event in enumerate(events)}
    number = index.get(state.get("leaf_event_id"))
    if number is None:
        ends = [n for n, event in enumerate(events) if event.get("kind") not in _NO_LEAVES]
        number = ends[-1] if ends else len(events) - 1
    branch: list[dict[str, Any]] = []
    while number >= 0:
        event = events[number]
        branch.append(event)
        parent = event.get("parent_id")
        if parent == _ROOT:
            break
        # A parent comes before its child; one that is lost is bridged, and a circle cannot arise.
        number = min(index.get(parent, number - 1), number - 1)
    return branch[::-1]


def _add_event(talk: _Talk, event: dict[str, Any], usage: dict[str, tuple[int, int]]) -> None:
    kind = str(event.get("kind"))
    response = event.get("llm_response_id")
    if response and response != talk.last_response and response in usage:
        talk.steps.charge(*usage[response])
    talk.last_response = response or talk.last_response
    if kind in SILENT_KINDS:
        talk.silent[kind] = talk.silent.get(kind, 0) + 1
    elif kind in _ADDERS:
        _ADDERS[kind](talk, event)
    else:
        talk.collected.leave_out(f"event of unknown kind {kind}", f"{talk.place}, event {event.get('id')}")


def _add_system(talk: _Talk, event: dict[str, Any]) -> None:
    parts = [event["system_prompt"], event.get("dynamic_context")]
    talk.steps.message("system", _text(talk, [part for part in parts if part]))


def _add_message(talk: _Talk, event: dict[str, Any]) -> None:
    message = event["llm_message"]
    said = _text(talk, message.get("content"))
    if message["role"] == "user" and talk.request is None:
        talk.request = said
    _add_reasoning(talk, message)
    added = _text(talk, event.get("extended_content"))
    talk.steps.message(message["role"], "\n".join(filter(None, [said, added])))


def _add_action(talk: _Talk, event: dict[str, Any]) -> None:
    _add_reasoning(talk, event)
    thought = _text(talk, event.get("thought"))
    if thought:
        talk.steps.message("assistant", thought)
    talk.called_at[event["tool_call_id"]] = event.get("timestamp", "")
    talk.steps.call(event["tool_call_id"], event["tool_name"], arguments_of(event["tool_call"].get("arguments")))


def _add_reasoning(talk: _Talk, source: dict[str, Any]) -> None:
    blocks = [block.get("thinking") or "" for block in source.get("thinking_blocks") or []]
    item = source.get("responses_reasoning_item") or {}
    lines = [*(item.get("summary") or []), *(item.get("content") or [])]
    found = source.get("reasoning_content") or "\n".join(filter(None, blocks)) or "\n".join(lines)
    if found:
        talk.steps.reasoning(found)


def _add_observation(talk: _Talk, event: dict[str, Any]) -> None:
    observation = event["observation"]
    parts = [observation.get("content"), event.get("extended_content")]
    said = "\n".join(filter(None, (_text(talk, part) for part in parts)))
    _answer(talk, event, said, is_error=bool(observation.get("is_error")))


def _add_refusal(talk: _Talk, event: dict[str, Any]) -> None:
    _answer(talk, event, str(event.get("rejection_reason") or ""), is_error=True)


def _add_agent_error(talk: _Talk, event: dict[str, Any]) -> None:
    _answer(talk, event, event["error"], is_error=True)


def _answer(talk: _Talk, event: dict[str, Any], text: str, *, is_error: bool) -> None:
    call_id = event["tool_call_id"]
    seconds = _seconds(_time({"timestamp": talk.called_at.get(call_id)}), _time(event))
    if not talk.steps.answer(call_id, text, is_error=is_error, seconds=seconds):
        talk.collected.leave_out("answer to no call", f"{talk.place}, event {event.get('id')}")


def _add_foreign_call(talk: _Talk, event: dict[str, Any]) -> None:
    """A call of an agent behind the Agent Client Protocol: each report of it is whole, the last one counts."""
    call_id = event["tool_call_id"]
    if call_id not in talk.called_at:
        talk.called_at[call_id] = event.get("timestamp", "")
        talk.steps.call(call_id, event["title"], arguments_of(event.get("raw_input")))
    output = event.get("raw_output")
    if event.get("status") in ("completed", "failed"):
        text = output if isinstance(output, str) else "" if output is None else json.dumps(output)
        _answer(talk, event, text, is_error=bool(event.get("is_error")) or event["status"] == "failed")


def _add_failure(talk: _Talk, event: dict[str, Any]) -> None:
    talk.error = f"{event.get('code')}: {event.get('detail')}"


_ADDERS = {
    "SystemPromptEvent": _add_system,
    "MessageEvent": _add_message,
    "ActionEvent": _add_action,
    "ObservationEvent": _add_observation,
    "UserRejectObservation": _add_refusal,
    "AgentErrorEvent": _add_agent_error,
    "ACPToolCallEvent": _add_foreign_call,
    "ConversationErrorEvent": _add_failure,
}


def _text(talk: _Talk, content: Any) -> str:
    return text_of(content, talk.collected, talk.place)


def _usage_by_response(state: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Return the tokens of the prompt and of the completion by the answer's id."""
    metrics = ((state.get("stats") or {}).get("usage_to_metrics") or {}).values()
    usages = (usage for metric in metrics for usage in metric.get("token_usages") or [])
    return {usage["response_id"]: (usage["prompt_tokens"], usage["completion_tokens"]) for usage in usages}


def _time(event: dict[str, Any]) -> datetime | None:
    """Return an event's time; OpenHands writes local time without a zone, which is taken for this machine's."""
    try:
        return datetime.fromisoformat(event.get("timestamp") or "").astimezone()
    except (TypeError, ValueError):
        return None


def _seconds(started: datetime | None, ended: datetime | None) -> float | None:
    return max(0.0, (ended - started).total_seconds()) if started and ended else None
