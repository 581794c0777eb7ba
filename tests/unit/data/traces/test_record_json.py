"""Traces as JSON lines: nothing is lost, nothing unknown gets in, and a fault is named with its place."""

import json
from typing import Any

import pytest

from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.record_json import record_of, to_json, trace_of
from skyrl_nat.errors import DataError

STEP = TraceStep(
    kind=StepKind.tool,
    role="tool",
    text="12",
    tool="area",
    arguments={"sides": [3, 4.5, None, {"unit": "m"}]},
    is_error=True,
    seconds=0.25,
    num_prompt_tokens=10,
    num_completion_tokens=0,
)
TRACE = Trace(
    trace_id="t1",
    source="hook",
    request="How large?",
    steps=(STEP, TraceStep(kind=StepKind.message, text="twelve")),
    outcome=TraceOutcome.failure,
    reward=0.0,
    started_at="2026-11-28T10:00:00+00:00",
    seconds=1.5,
    agent="a",
    model="m",
    task_id="k",
    files={"a/b.py": "x = 1\n"},
    labels={"label": False, "parts": {"p": 0.5}},
    metadata={"n": 1},
)


def changed(path: str, value: Any) -> dict[str, Any]:
    """The record of TRACE as parsed, with one value put in; `steps.0.text` names a path."""
    record = json.loads(to_json(TRACE))
    *heads, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = record
    for head in heads:
        place = place[head]
    place[last] = value
    return record


def test_a_trace_comes_back_from_its_line_with_every_field_equal():
    line = to_json(TRACE)
    assert "\n" not in line
    back = trace_of(json.loads(line), "f, line 1")
    assert back == TRACE
    assert isinstance(back.steps[0].kind, StepKind)
    assert isinstance(back.outcome, TraceOutcome)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("steps.0.text", None, "f.jsonl, line 7: steps[0].text must be text, got None"),
        (
            "steps.1.kind",
            "shout",
            "f.jsonl, line 7: steps[1].kind must be one of message, reasoning, tool, got 'shout'",
        ),
        ("steps.0.role", "robot", "f.jsonl, line 7: steps[0].role must be one of"),
        ("steps.0.arguments", "{}", "f.jsonl, line 7: steps[0].arguments must be an object, got '{}'"),
        ("steps.0.is_error", 1, "f.jsonl, line 7: steps[0].is_error must be true or false, got 1"),
        ("steps.0.seconds", -1, "f.jsonl, line 7: steps[0].seconds must be null or a number in [0, inf], got -1"),
        ("steps.0.num_prompt_tokens", 1.5, "steps[0].num_prompt_tokens must be null or a whole number >= 0, got 1.5"),
        ("steps.0.num_prompt_tokens", True, "steps[0].num_prompt_tokens must be null or a whole number >= 0, got True"),
        ("steps.1", "text", "f.jsonl, line 7: steps[1] must be an object, got 'text'"),
        ("steps", {}, "f.jsonl, line 7: steps must be a list, got {}"),
        ("trace_id", "", "f.jsonl, line 7: trace_id must be text that is not empty, got ''"),
        ("reward", 1.5, "f.jsonl, line 7: reward must be null or a number in [0, 1.0], got 1.5"),
        ("reward", "0.7", "reward must be null or a number in [0, 1.0], got '0.7'"),
        ("reward", float("nan"), "reward must be null or a number in [0, 1.0], got nan"),
        ("reward", True, "reward must be null or a number in [0, 1.0], got True"),
        ("outcome", None, "outcome must be one of success, failure, error, unknown, got None"),
        ("files", {"a.py": None}, "f.jsonl, line 7: files['a.py'] must be text, got None"),
        ("labels", [], "f.jsonl, line 7: labels must be an object, got []"),
    ],
)
def test_a_wrong_value_is_refused_with_file_line_and_path(path: str, value: Any, said: str):
    with pytest.raises(DataError) as caught:
        trace_of(changed(path, value), "f.jsonl, line 7")
    assert said in str(caught.value)


def test_missing_and_unknown_fields_are_refused_by_name():
    record = json.loads(to_json(TRACE))
    del record["labels"], record["reward"]
    record["mood"] = "good"
    with pytest.raises(
        DataError, match=r"f, line 2: the trace .* missing are \[reward, labels\], unknown are \[mood\]"
    ):
        trace_of(record, "f, line 2")
    record = json.loads(to_json(TRACE))
    del record["steps"][1]["tool"]
    with pytest.raises(DataError, match=r"steps\[1\] must have exactly .* missing are \[tool\], unknown are \[\]"):
        trace_of(record, "f, line 2")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", object()])
def test_what_is_no_json_is_never_written(value: Any):
    record = record_of(TRACE) | {"metadata": {"x": value}}
    trace = Trace(**record | {"steps": TRACE.steps})
    with pytest.raises(DataError, match="trace 't1' must hold JSON values only"):
        to_json(trace)
