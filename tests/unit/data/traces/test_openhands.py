"""Conversations that the real SDK 1.58.2 wrote (see samples/make_openhands_sample.py), whole and damaged."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.openhands import read_conversations
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome
from skyrl_nat.data.traces.record_json import to_json, trace_of
from skyrl_nat.errors import DataError

SAMPLE = Path(__file__).parent / "samples/openhands"
NAME = "0123456789abcdef0123456789abcdef"
Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAMPLE, tmp_path / "talks")) / NAME


def change(path: Path, edit: Change) -> None:
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def event_files(folder: Path) -> list[Path]:
    return sorted((folder / "events").iterdir())


def add_event(folder: Path, **fields: Any) -> None:
    """Append an event at the leaf, as the SDK does."""
    number = len(event_files(folder))
    state = json.loads((folder / "base_state.json").read_text())
    event = {"id": f"added-{number}", "timestamp": "2026-11-28T17:19:20", "parent_id": state["leaf_event_id"], **fields}
    (folder / f"events/event-{number:05}-added-{number}.json").write_text(json.dumps(event))
    change(folder / "base_state.json", lambda state: state.update(leaf_event_id=event["id"]))


def only(folder: Path) -> Trace:
    traces = read_conversations(folder).traces
    assert len(traces) == 1
    return traces[0]


def without_times(trace: Trace) -> list[tuple[Any, ...]]:
    return [(s.kind, s.role, s.text, s.tool, s.arguments, s.is_error, s.num_prompt_tokens) for s in trace.steps]


def test_a_conversation_becomes_its_active_branch_with_calls_answers_errors_tokens_and_times():
    found = read_conversations(SAMPLE)
    trace = found.traces[0]
    message, tool = StepKind.message, StepKind.tool
    assert without_times(trace) == [
        (message, "system", "You measure.", "", {}, False, None),
        (message, "user", "How large is 3 by 4?", "", {}, False, None),
        (StepKind.reasoning, "assistant", "Let me see.", "", {}, False, 101),
        (message, "assistant", "I ask.", "", {}, False, None),
        (tool, "tool", "12.0", "area", {"width": 3, "height": 4}, False, None),
        (tool, "tool", "sides must be >= 0", "area", {"width": -3, "height": 4}, True, 102),
        (tool, "tool", "Tool 'nothing' not found. Available: ['area']", "nothing", {"x": 1}, True, 103),
        (message, "assistant", "The area is 12.", "", {}, False, 104),
        (message, "user", "Again?", "", {}, False, None),
        (message, "assistant", "kept answer", "", {}, False, 106),
    ]
    assert {s.num_completion_tokens for s in trace.steps} == {None, 7}
    assert [s.seconds for s in trace.steps if s.kind is tool] == [0.001568, 0.007726, 0.006626]
    assert (trace.trace_id, trace.source, trace.request) == (f"openhands-{NAME}", "openhands", "How large is 3 by 4?")
    assert (trace.agent, trace.model, trace.outcome) == ("Agent", "test-model", TraceOutcome.unknown)
    assert trace.seconds == pytest.approx(0.150246)
    assert trace.metadata == {"execution_status": "finished", "num_unanswered_calls": 0}
    assert found.left_out == {"event of an abandoned branch": 2}
    assert trace_of(json.loads(to_json(trace)), "x") == trace


def test_events_of_unknown_kinds_are_counted_and_said_and_lose_no_other(folder: Path, caplog: pytest.LogCaptureFixture):
    whole = without_times(only(folder))
    add_event(folder, kind="DreamEvent", source="agent", dream="sheep")
    add_event(folder, kind="PauseEvent", source="user")
    add_event(folder, kind="TokenEvent", source="agent", prompt_token_ids=[1], response_token_ids=[2])
    found = read_conversations(folder)
    assert without_times(found.traces[0]) == whole
    assert found.left_out["event of unknown kind DreamEvent"] == 1
    assert "1 x event of unknown kind DreamEvent" in caplog.text
    assert found.traces[0].metadata["other_events"] == {"PauseEvent": 1, "TokenEvent": 1}


def test_broken_torn_and_lost_files_are_counted_and_the_rest_is_read(folder: Path):
    files = event_files(folder)
    files[3].write_text(files[3].read_text()[:-20])
    files[5].unlink()
    change(files[8], lambda event: event.pop("llm_message"))
    (folder / "events/notes.txt").write_text("mine")
    found = read_conversations(folder)
    texts = [s.text for s in found.traces[0].steps if s.kind is not StepKind.tool]
    assert texts == ["You measure.", "How large is 3 by 4?", "Let me see.", "I ask.", "", "Again?", "kept answer"]
    calls = [(s.text, s.is_error) for s in found.traces[0].steps if s.kind is StepKind.tool]
    assert calls == [("", False), ("", False), ("Tool 'nothing' not found. Available: ['area']", True)]
    assert found.traces[0].metadata["num_unanswered_calls"] == 2
    assert found.left_out == {
        "event file that cannot be read": 1,
        "gap in the numbers of the events": 1,
        "broken MessageEvent": 1,
        "file that is no event": 1,
        "event of an abandoned branch": 2,
    }


def test_without_a_state_the_last_event_is_the_leaf(folder: Path):
    whole = without_times(only(folder))
    (folder / "base_state.json").write_text('{"id": "01')
    found = read_conversations(folder)
    assert [step[:6] for step in without_times(found.traces[0])] == [step[:6] for step in whole]
    assert found.traces[0].trace_id == f"openhands-{NAME}"
    assert found.left_out["base_state.json that cannot be read"] == 1


def test_events_of_earlier_versions_without_parents_follow_each_other(folder: Path):
    for path in event_files(folder):
        change(path, lambda event: event.pop("parent_id", None))
    found = read_conversations(folder)
    assert [s.text for s in found.traces[0].steps if s.role == "user"] == [
        "How large is 3 by 4?",
        "Once more?",
        "Again?",
    ]
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("edit", "added", "outcome", "error"),
    [
        (lambda state: state.update(execution_status="error"), {}, TraceOutcome.error, None),
        (lambda state: state.update(execution_status="stuck"), {}, TraceOutcome.error, None),
        (lambda state: state.update(execution_status="paused"), {}, TraceOutcome.unknown, None),
        (
            lambda state: None,
            {"kind": "ConversationErrorEvent", "source": "environment", "code": "LLMError", "detail": "gone"},
            TraceOutcome.error,
            "LLMError: gone",
        ),
    ],
)
def test_a_conversation_that_did_not_come_to_its_end_is_an_error(
    folder: Path, edit: Change, added: dict[str, Any], outcome: TraceOutcome, error: str | None
):
    change(folder / "base_state.json", edit)
    if added:
        add_event(folder, **added)
    trace = only(folder)
    assert (trace.outcome, trace.metadata.get("error")) == (outcome, error)


def test_refused_calls_calls_of_foreign_agents_and_pictures_are_read(folder: Path):
    call = {"id": "c9", "name": "area", "arguments": "not json", "origin": "completion"}
    add_event(folder, kind="ActionEvent", thought=[], tool_name="area", tool_call_id="c9", tool_call=call)
    add_event(folder, kind="UserRejectObservation", tool_name="area", tool_call_id="c9", rejection_reason="too large")
    foreign = {"kind": "ACPToolCallEvent", "tool_call_id": "f1", "title": "Edit", "raw_input": {"path": "a"}}
    add_event(folder, **foreign, status="in_progress")
    add_event(folder, **foreign, status="completed", raw_output={"ok": True})
    picture = {"type": "image", "image_urls": ["data:x"]}
    content = [picture, {"type": "text", "text": "see"}]
    add_event(folder, kind="MessageEvent", llm_message={"role": "user", "content": content}, extended_content=[])
    found = read_conversations(folder)
    steps = [(s.role, s.text, s.tool, s.arguments, s.is_error) for s in found.traces[0].steps[-3:]]
    assert steps == [
        ("tool", "too large", "area", {"unparsed": "not json"}, True),
        ("tool", '{"ok": true}', "Edit", {"path": "a"}, False),
        ("user", "see", "", {}, False),
    ]
    assert found.left_out["part of kind image"] == 1


def test_several_conversations_are_found_below_a_folder_and_none_is_refused(folder: Path, tmp_path: Path):
    shutil.copytree(folder, folder.parent / ("f" * 32))
    change(folder.parent / ("f" * 32) / "base_state.json", lambda state: state.update(id="f" * 32))
    found = read_conversations(tmp_path)
    assert [trace.trace_id for trace in found.traces] == [f"openhands-{NAME}", "openhands-" + "f" * 32]
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="must hold conversations of OpenHands"):
        read_conversations(tmp_path / "empty")
