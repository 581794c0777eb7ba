"""NVIDIA NeMo Agent Toolkit (1.9) intermediate steps, as its file exporter writes them: one trace per run.

A workflow whose run raised ends without an event of its end. A tool that raised has a start and no end, and what it
raised is in no event.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces import plain
from skyrl_nat.data.traces.collected import BROKEN, Collected, read_json_lines
from skyrl_nat.data.traces.record import Trace, TraceOutcome
from skyrl_nat.data.traces.step_builder import StepBuilder, arguments_of
from skyrl_nat.errors import DataError

KNOWN_TYPES = frozenset(
    f"{kind}_{state}"
    for kind in ("LLM", "TOOL", "WORKFLOW", "TASK", "FUNCTION", "CUSTOM", "SPAN", "TTC")
    for state in ("START", "END")
) | {"LLM_NEW_TOKEN", "SPAN_CHUNK"}
_WORKFLOW_FUNCTION = "<workflow>"
_CALLS = "\n\nTool calls: "
"""What NAT puts between the text of an answer and its calls."""
_LATEST = 253_402_214_400.0
"""The last day that a date can be."""
_Event = dict[str, Any]


@dataclass(slots=True)
class _Run:
    """One run in the making."""

    steps: StepBuilder = field(default_factory=StepBuilder)
    began_at: dict[str, float] = field(default_factory=dict[str, float])
    other: Counter[str] = field(default_factory=Counter[str])
    request: str | None = None
    answer: str | None = None
    model: str = ""
    name: str = ""
    root: str = ""
    has_begun: bool = False
    has_ended: bool = False
    is_open: bool = False
    """Whether the system's and the user's messages are among the steps."""
    has_spoken: bool = False
    ids: dict[str, Any] = field(default_factory=dict[str, Any])


def read_nat_steps(paths: Sequence[Path]) -> Collected:
    """Return a trace for each run in files of steps.

    Args:
        paths: Oldest first, where the exporter rolled its file: a run may go on in the next one.

    Raises:
        DataError: A file cannot be read, or there is no step in any.
    """
    collected = Collected()
    events: list[_Event] = []
    for path in paths:
        for place, event in read_json_lines(path, collected):
            if _is_step(event):
                events.append(event)
            else:
                collected.leave_out("line that is no intermediate step", place)
    if not events:
        raise DataError(f"Files of NAT's steps must hold steps, {', '.join(map(str, paths))} hold none. Name others")
    parents = {event["payload"]["UUID"]: event["parent_id"] for event in events}
    runs: dict[str, list[_Event]] = {}
    for event in events:
        runs.setdefault(_root(event["payload"]["UUID"], parents), []).append(event)
    for root, of_run in runs.items():
        of_run.sort(key=lambda event: event["payload"]["event_timestamp"])
        collected.add(_read_run(root, of_run, parents, collected), f"run {root}")
    return collected.say()


def _is_step(event: Any) -> bool:
    payload = event.get("payload") if isinstance(event, dict) else None
    return (
        isinstance(payload, dict)
        and isinstance(event.get("parent_id"), str)
        and isinstance(payload.get("UUID"), str)
        and isinstance(payload.get("event_type"), str)
        and isinstance(payload.get("event_timestamp"), (int, float))
        and 0 <= payload["event_timestamp"] < _LATEST
    )


def _root(uuid: str, parents: dict[str, str]) -> str:
    """Return the topmost span: the workflow's, or the oldest one known where the beginning is lost."""
    seen: set[str] = set()
    while uuid not in seen:
        seen.add(uuid)
        parent = parents.get(uuid, "root")
        if parent == "root":
            return uuid
        uuid = parent
    return min(seen)


def _read_run(root: str, events: list[_Event], parents: dict[str, str], collected: Collected) -> Trace:
    run = _Run()
    tools = {event["payload"]["UUID"] for event in events if event["payload"]["event_type"] == "TOOL_START"}
    for event in events:
        kind = event["payload"]["event_type"]
        try:
            if kind not in KNOWN_TYPES:
                collected.leave_out(f"step of unknown type {kind}", f"run {root}")
            elif kind in ("FUNCTION_START", "FUNCTION_END") and _is_call(event, parents, tools):
                _ADDERS[kind.replace("FUNCTION", "TOOL")](run, event["payload"])
            elif kind in _ADDERS:
                _ADDERS[kind](run, event["payload"])
            else:
                run.other[kind] += 1
        except BROKEN:
            collected.leave_out(f"broken {kind}", f"run {root}, step {event['payload']['UUID']}")
    return _finish(run, root, events)


def _is_call(event: _Event, parents: dict[str, str], tools: set[str]) -> bool:
    """Whether a function's event is a call of its own: NAT's own function, and not the inside of a tool's call."""
    uuid = event["payload"]["UUID"]
    ancestry = event.get("function_ancestry") or {}
    if ancestry.get("function_id") != uuid or ancestry.get("function_name") == _WORKFLOW_FUNCTION:
        return False
    seen: set[str] = set()
    while uuid in parents and uuid not in seen:
        seen.add(uuid)
        uuid = parents[uuid]
        if uuid in tools:
            return False
    return True


def _finish(run: _Run, root: str, events: list[_Event]) -> Trace:
    _open(run, [])
    if run.answer and not run.has_spoken:
        run.steps.message("assistant", run.answer)
    times = [event["payload"]["event_timestamp"] for event in events]
    metadata: dict[str, Any] = {name: value for name, value in run.ids.items() if value is not None}
    metadata |= {"answer": run.answer, "num_unanswered_calls": run.steps.num_unanswered}
    metadata |= {"other_events": dict(run.other)} if run.other else {}
    metadata |= {} if run.has_begun else {"beginning": "lost"}
    run.steps.fail_unanswered()
    return Trace(
        trace_id=f"nat-{run.ids.get('workflow_run_id') or root}",
        source="nat",
        request=run.request or "",
        steps=run.steps.finish(),
        outcome=TraceOutcome.unknown if run.has_ended else TraceOutcome.error,
        started_at=datetime.fromtimestamp(min(times), UTC).isoformat(),
        seconds=max(times) - min(times),
        agent=run.name,
        model=run.model,
        metadata=metadata,
    )


def _open(run: _Run, system: list[str]) -> None:
    """Begin the dialogue with what the first model call shows of the system's messages, and with the request."""
    if run.is_open:
        return
    run.is_open = True
    for text in system:
        run.steps.message("system", text)
    if run.request is not None:
        run.steps.message("user", run.request)


def _begin_workflow(run: _Run, payload: dict[str, Any]) -> None:
    if run.has_begun:
        run.other["WORKFLOW_START"] += 1
        return
    run.has_begun = True
    run.root = payload["UUID"]
    run.name = str(payload.get("name") or "")
    run.request = plain.text(_data(payload).get("input"))
    run.ids = dict((payload.get("metadata") or {}).get("provided_metadata") or {})


def _end_workflow(run: _Run, payload: dict[str, Any]) -> None:
    if run.has_begun and payload["UUID"] != run.root:
        run.other["WORKFLOW_END"] += 1
        return
    run.has_ended = True
    run.answer = plain.text(_data(payload).get("output"))


def _begin_model(run: _Run, payload: dict[str, Any]) -> None:
    run.began_at[payload["UUID"]] = payload["event_timestamp"]
    run.model = run.model or str(payload.get("name") or "")
    messages = (payload.get("metadata") or {}).get("chat_inputs")
    found = [message for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
    _open(run, [plain.text(message) for message in found if message.get("type") == "system"])


def _end_model(run: _Run, payload: dict[str, Any]) -> None:
    _open(run, [])
    usage = plain.tokens(payload.get("usage_info"))
    run.steps.charge(*(count or None for count in usage))
    data = _data(payload)
    raw = data.get("payload")
    message = raw.get("message") if isinstance(raw, dict) else None
    kept = (message.get("additional_kwargs") or {}) if isinstance(message, dict) else {}
    if kept.get("reasoning_content"):
        run.steps.reasoning(str(kept["reasoning_content"]))
    said = plain.text(message) if isinstance(message, dict) else plain.text(data.get("output")).split(_CALLS)[0]
    if said:
        run.has_spoken = True
        run.steps.message("assistant", said, seconds=_seconds(run, payload))


def _begin_tool(run: _Run, payload: dict[str, Any]) -> None:
    _open(run, [])
    run.began_at[payload["UUID"]] = payload["event_timestamp"]
    inputs = (payload.get("metadata") or {}).get("tool_inputs")
    value = inputs if isinstance(inputs, dict) else _data(payload).get("input")
    run.steps.call(payload["UUID"], str(payload.get("name") or ""), arguments_of(value))


def _end_tool(run: _Run, payload: dict[str, Any]) -> None:
    output = _data(payload).get("output")
    is_error = isinstance(output, dict) and output.get("status") == "error"
    seconds = _seconds(run, payload)
    if not run.steps.answer(payload["UUID"], plain.text(output), is_error=is_error, seconds=seconds):
        run.other[payload["event_type"]] += 1


def _data(payload: dict[str, Any]) -> dict[str, Any]:
    return payload.get("data") or {}


def _seconds(run: _Run, payload: dict[str, Any]) -> float | None:
    began = run.began_at.get(payload["UUID"])
    return None if began is None else max(0.0, payload["event_timestamp"] - began)


_ADDERS = {
    "WORKFLOW_START": _begin_workflow,
    "WORKFLOW_END": _end_workflow,
    "LLM_START": _begin_model,
    "LLM_END": _end_model,
    "TOOL_START": _begin_tool,
    "TOOL_END": _end_tool,
}
