"""Logs in OpenAI's form: what was said is a trace, once, and whatever is odd is counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.chat_logs import read_chat_logs
from skyrl_nat.data.traces.collected import Collected
from skyrl_nat.data.traces.record import Trace, TraceOutcome
from skyrl_nat.data.traces.record_json import to_json, trace_of
from skyrl_nat.errors import DataError

ASK = {"role": "user", "content": "How large is 3 by 4?"}
SYSTEM = {"role": "developer", "content": "You measure."}


def call(call_id: str, name: str = "area", arguments: Any = '{"width": 3, "height": 4}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


CALL = {"role": "assistant", "content": None, "tool_calls": [call("c1")]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "12"}
ANSWER = {"role": "assistant", "content": "It is 12.", "refusal": None}
DIALOGUE = [SYSTEM, ASK, CALL, RESULT, ANSWER]


def read(tmp_path: Path, *rows: Any) -> Collected:
    path = tmp_path / "log.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return read_chat_logs([path])


def steps_of(trace: Trace) -> list[tuple[Any, ...]]:
    return [(s.kind.value, s.role, s.text, s.tool, s.arguments, s.is_error) for s in trace.steps]


def tokens_of(trace: Trace) -> list[tuple[int | None, int | None]]:
    return [(s.num_prompt_tokens, s.num_completion_tokens) for s in trace.steps]


def pair(messages: list[Any], answer: Any, prompt: int, completion: int, **response: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    choices = [{"index": 0, "message": answer}]
    return {
        "request": {"model": "asked", "messages": messages},
        "response": {"model": "answered", "created": 1795885929, "choices": choices, "usage": usage, **response},
    }


def test_a_row_of_messages_becomes_a_trace_with_calls_and_their_answers(tmp_path: Path):
    found = read(tmp_path, {"messages": DIALOGUE, "model": "m", "id": "r1", "reward": 1, "label": False})
    trace = found.traces[0]
    assert steps_of(trace) == [
        ("message", "system", "You measure.", "", {}, False),
        ("message", "user", "How large is 3 by 4?", "", {}, False),
        ("tool", "tool", "12", "area", {"width": 3, "height": 4}, False),
        ("message", "assistant", "It is 12.", "", {}, False),
    ]
    assert (trace.source, trace.request, trace.model) == ("chat", "How large is 3 by 4?", "m")
    assert (trace.reward, trace.labels, trace.outcome) == (1.0, {"label": False}, TraceOutcome.unknown)
    assert trace.metadata["row_id"] == "r1"
    assert trace_of(json.loads(to_json(trace)), "x") == trace


def test_a_log_of_pairs_is_one_trace_per_dialogue_with_the_tokens_of_every_answer(tmp_path: Path):
    first = pair([SYSTEM, ASK], CALL, 100, 7)
    second = pair([SYSTEM, ASK, CALL | {"content": "", "refusal": None}, RESULT], ANSWER, 120, 5)
    third = pair([*DIALOGUE, {"role": "user", "content": "Thanks"}], {"role": "assistant", "content": "Sure"}, 140, 2)
    other = pair([{"role": "user", "content": "Hi"}], {"role": "assistant", "content": "Hello"}, 9, 1)
    found = read(tmp_path, first, other, second, third)
    hello, area = found.traces
    assert [s.text for s in hello.steps] == ["Hi", "Hello"]
    assert [s.text for s in area.steps] == [*("You measure.", ASK["content"], "12", "It is 12."), "Thanks", "Sure"]
    assert tokens_of(area) == [(None, None), (None, None), (100, 7), (120, 5), (None, None), (140, 2)]
    assert (area.model, area.started_at) == ("answered", "2026-11-28T17:12:09+00:00")
    assert found.left_out == {"dialogue that another row continues": 2}


def test_rows_of_a_batch_several_choices_and_failed_requests_are_read(tmp_path: Path):
    body = pair([ASK], ANSWER, 10, 5)
    batch = {"custom_id": "b1", "request": {"body": body["request"]}, "response": {"body": body["response"]}}
    two = pair([{"role": "user", "content": "Pick"}], ANSWER, 10, 9)
    two["response"]["choices"].append({"index": 1, "message": {"role": "assistant", "content": "No."}})
    failed = {"request": {"messages": [{"role": "user", "content": "Ping"}]}, "response": {"error": {"text": "busy"}}}
    found = read(tmp_path, batch, two, failed)
    assert [[s.text for s in trace.steps] for trace in found.traces] == [
        [ASK["content"], "It is 12."],
        ["Pick", "It is 12."],
        ["Pick", "No."],
        ["Ping"],
    ]
    assert [tokens_of(trace)[-1] for trace in found.traces] == [(10, 5), (None, None), (None, None), (None, None)]
    assert found.traces[0].metadata["row_id"] == "b1"
    assert [trace.outcome.value for trace in found.traces] == ["unknown", "unknown", "unknown", "error"]
    assert found.traces[3].metadata["error"] == "busy"


def test_earlier_and_odd_forms_of_messages_are_read(tmp_path: Path):
    messages = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "u"}}],
        },
        {"role": "assistant", "content": "ok", "function_call": {"name": "old", "arguments": "{}"}},
        {"role": "function", "name": "old", "content": "1"},
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "tool_calls": [call("a", arguments="{broken"), call("b", "two", "")],
        },
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "B"}], "is_error": True},
        {"role": "tool", "tool_call_id": "zzz", "content": "to nobody"},
        {"role": "tool", "tool_call_id": "a", "content": "A"},
        {"role": "assistant", "tool_calls": [{"id": "k", "type": "custom", "custom": {"name": "sql", "input": "x"}}]},
        {"role": "narrator", "content": "meanwhile"},
    ]
    found = read(tmp_path, {"messages": messages})
    assert steps_of(found.traces[0]) == [
        ("message", "user", "see", "", {}, False),
        ("message", "assistant", "ok", "", {}, False),
        ("tool", "tool", "1", "old", {}, False),
        ("reasoning", "assistant", "hm", "", {}, False),
        ("tool", "tool", "A", "area", {"unparsed": "{broken"}, False),
        ("tool", "tool", "B", "two", {}, True),
        ("tool", "tool", "", "sql", {"unparsed": "x"}, False),
    ]
    assert found.traces[0].metadata["num_unanswered_calls"] == 1
    assert found.left_out == {
        "part of kind image_url": 1,
        "answer to no call": 1,
        "message of unknown role narrator": 1,
    }


@pytest.mark.parametrize("reward", ["0.7", 1.5, -1, True])
def test_a_reward_that_is_none_is_left_out_and_counted(tmp_path: Path, reward: Any):
    found = read(tmp_path, {"messages": DIALOGUE, "reward": reward})
    assert found.traces[0].reward is None
    assert found.left_out == {"reward that is no number in [0, 1]": 1}


def test_bad_rows_are_counted_and_lose_no_other(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    rows = [
        "{nonsense\n",
        [1],
        {"text": "no chat"},
        {"messages": "hello"},
        {"messages": []},
        {"messages": [{"content": "by nobody"}]},
        {"messages": [{"role": "user", "content": 5}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]},
        {"messages": DIALOGUE},
        {"messages": DIALOGUE},
        '{"messages": [{"role": "us',
    ]
    found = read(tmp_path, *rows)
    assert len(found.traces) == 1
    assert found.left_out == {
        "line that is no JSON": 1,
        "row that is no object": 1,
        "row without messages": 3,
        "row with a broken message": 3,
        "dialogue that came again": 1,
        "torn last line": 1,
    }
    assert f"3 x row without messages (first: {tmp_path / 'log.jsonl'}, line 3)" in caplog.text


def test_signs_that_end_a_line_elsewhere_do_not_end_one_here(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    text = "a\u2028b\x85c\x0bd"
    row = {"messages": [{"role": "user", "content": text}]}
    path.write_text(json.dumps(row, ensure_ascii=False) + "\n", encoding="utf-8-sig")
    assert read_chat_logs([path]).traces[0].request == text


def test_logs_without_a_dialogue_are_refused(tmp_path: Path):
    with pytest.raises(DataError, match="must hold rows with messages"):
        read(tmp_path, {"text": "no chat"})
