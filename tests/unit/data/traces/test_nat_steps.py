"""Steps that real NAT 1.9 wrote (see samples/make_nat_sample.py): two runs at once, then one whose model fails."""

import json
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.nat_steps import read_nat_steps
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome
from skyrl_nat.data.traces.record_json import to_json, trace_of
from skyrl_nat.errors import DataError

SAMPLE = Path(__file__).parent / "samples/nat_steps.jsonl"
LINES = SAMPLE.read_text().splitlines(keepends=True)


def steps_of(trace: Trace) -> list[tuple[Any, ...]]:
    return [
        (s.kind.value, s.role, s.text, s.tool, s.arguments, s.is_error, s.num_prompt_tokens, s.num_completion_tokens)
        for s in trace.steps
    ]


def read(tmp_path: Path, *files: list[str]) -> Any:
    paths = [tmp_path / f"steps_{number}.jsonl" for number in range(len(files))]
    for path, lines in zip(paths, files, strict=True):
        path.write_text("".join(lines))
    return read_nat_steps(paths)


def event(kind: str, uuid: str, parent: str, at: float, **payload: Any) -> str:
    owner = payload.pop("owner", "w")
    ancestry = {"function_id": owner, "function_name": payload.get("name"), "parent_id": None, "parent_name": None}
    body = {"event_type": kind, "UUID": uuid, "event_timestamp": at, **payload}
    return json.dumps({"parent_id": parent, "function_ancestry": ancestry, "payload": body}) + "\n"


def test_runs_at_the_same_time_become_a_trace_each_with_calls_tokens_and_times():
    found = read_nat_steps([SAMPLE])
    good, failing, broken = found.traces
    assert steps_of(good) == [
        ("message", "user", "How large is 3 by 4?", "", {}, False, None, None),
        ("tool", "tool", "12.0", "area", {"width": 3, "height": 4}, False, 110, 7),
        ("message", "assistant", "The tool said: 12.0", "", {}, False, 130, 7),
    ]
    said = "The tool said: Error: ValueError('sides must be >= 0')\n Please fix your mistakes."
    assert steps_of(failing) == [
        ("message", "user", "How large is -3 by 4?", "", {}, False, None, None),
        ("tool", "tool", "", "area", {"width": -3, "height": 4}, True, 110, 7),
        ("message", "assistant", said, "", {}, False, 130, 7),
    ]
    assert steps_of(broken) == [("message", "user", "Nobody has a script for this", "", {}, False, None, None)]
    assert [t.outcome for t in found.traces] == [TraceOutcome.unknown, TraceOutcome.unknown, TraceOutcome.error]
    assert {(t.source, t.agent, t.model) for t in found.traces} == {("nat", "tool_calling_agent", "scripted-1")}
    assert {t.metadata["conversation_id"] for t in found.traces} == {"talk-1"}
    assert good.trace_id == f"nat-{good.metadata['workflow_run_id']}"
    assert [t.metadata["num_unanswered_calls"] for t in found.traces] == [0, 1, 0]
    tool, last = good.steps[1:]
    assert (tool.seconds, last.seconds) == (pytest.approx(0.00092554, abs=1e-8), pytest.approx(0.00052023, abs=1e-8))
    assert good.seconds == pytest.approx(0.04004478)
    assert good.started_at == "2026-11-28T17:18:05.806393+00:00"
    assert found.left_out == {}
    assert [trace_of(json.loads(to_json(t)), "x") for t in found.traces] == found.traces


def test_every_event_of_the_file_is_a_step_or_counted():
    found = read_nat_steps([SAMPLE])
    others = sum(sum(t.metadata["other_events"].values()) for t in found.traces)
    kinds = [json.loads(line)["payload"]["event_type"] for line in LINES]
    used = sum(kind.split("_")[0] in ("WORKFLOW", "LLM", "TOOL") for kind in kinds)
    assert others + used == len(LINES) == 72


def test_a_run_goes_on_in_the_next_file_where_the_exporter_rolled(tmp_path: Path):
    assert read(tmp_path, LINES[:30], LINES[30:]).traces == read_nat_steps([SAMPLE]).traces


def test_a_run_whose_beginning_was_rolled_away_is_still_one_trace(tmp_path: Path):
    found = read(tmp_path, LINES[20:63])
    assert len(found.traces) == 2
    assert {t.metadata["beginning"] for t in found.traces} == {"lost"}
    assert [t.steps[-1].text[:14] for t in found.traces] == ["The tool said:"] * 2
    assert {t.outcome for t in found.traces} == {TraceOutcome.unknown}


def test_torn_foreign_and_unknown_lines_are_counted_and_lose_no_other(tmp_path: Path):
    root = json.loads(LINES[0])["payload"]["UUID"]
    odd = [event("DREAM_START", "d", root, 1795886286.0), '{"level": "INFO"}\n', "[1]\n", '{"parent_id": "ro']
    found = read(tmp_path, LINES + odd)
    assert [steps_of(t) for t in found.traces] == [steps_of(t) for t in read_nat_steps([SAMPLE]).traces]
    assert found.left_out == {
        "line that is no intermediate step": 2,
        "torn last line": 1,
        "step of unknown type DREAM_START": 1,
    }


def test_functions_called_without_an_agent_are_calls_and_those_inside_a_tool_are_not(tmp_path: Path):
    lines = [
        event("WORKFLOW_START", "w", "root", 1.0, name="flow", data={"input": {"a": 1}}),
        event("FUNCTION_START", "f", "w", 2.0, name="double", owner="f", data={"input": {"a": 1}}),
        event("FUNCTION_END", "f", "w", 4.5, name="double", owner="f", data={"input": {"a": 1}, "output": 2}),
        event("TOOL_START", "t", "w", 5.0, name="add", data={"input": '{"b": 2}'}),
        event("FUNCTION_START", "g", "t", 6.0, name="add", owner="g", data={"input": {"b": 2}}),
        event("FUNCTION_END", "g", "t", 7.0, name="add", owner="g", data={"output": 4}),
        event("TOOL_END", "t", "w", 8.0, name="add", data={"output": {"content": "4", "status": "success"}}),
        event("WORKFLOW_END", "w", "root", 9.0, name="flow", data={"output": {"sum": 4}}),
    ]
    trace = read(tmp_path, lines).traces[0]
    assert steps_of(trace) == [
        ("message", "user", '{"a": 1}', "", {}, False, None, None),
        ("tool", "tool", "2", "double", {"a": 1}, False, None, None),
        ("tool", "tool", "4", "add", {"b": 2}, False, None, None),
        ("message", "assistant", '{"sum": 4}', "", {}, False, None, None),
    ]
    assert [s.seconds for s in trace.steps if s.kind is StepKind.tool] == [2.5, 3.0]
    assert trace.metadata["other_events"] == {"FUNCTION_START": 1, "FUNCTION_END": 1}
    assert (trace.seconds, trace.started_at) == (8.0, "1970-01-01T00:00:01+00:00")


def test_what_the_system_said_comes_first_and_a_workflow_inside_another_stays_in_its_trace(tmp_path: Path):
    inputs = {"chat_inputs": [{"type": "system", "content": "Be brief."}, {"type": "human", "content": "hi"}]}
    lines = [
        event("WORKFLOW_START", "w", "root", 1.0, name="outer", data={"input": "hi"}),
        event("LLM_START", "m", "w", 2.0, name="big", metadata=inputs),
        event("LLM_END", "m", "w", 3.0, name="big", data={"output": "ok\n\nTool calls: [1]"}),
        event("WORKFLOW_START", "v", "m", 4.0, name="inner", data={"input": "sub"}),
        event("WORKFLOW_END", "v", "m", 5.0, name="inner", data={"output": "sub done"}),
        event("WORKFLOW_END", "w", "root", 6.0, name="outer", data={"output": "done"}),
    ]
    trace = read(tmp_path, lines).traces[0]
    assert [(s.role, s.text) for s in trace.steps] == [("system", "Be brief."), ("user", "hi"), ("assistant", "ok")]
    assert (trace.agent, trace.model, trace.metadata["answer"]) == ("outer", "big", "done")
    assert trace.metadata["other_events"] == {"WORKFLOW_START": 1, "WORKFLOW_END": 1}


def test_files_without_a_step_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="must hold steps"):
        read(tmp_path, ["{}\n"])
    with pytest.raises(DataError, match="must be a file that can be read"):
        read_nat_steps([tmp_path / "none.jsonl"])
