"""Overlapping checkpoints: every execution once, the newest of it, and each repetition counted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.checkpoints import checkpoint_files, read_checkpoints
from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.data.traces.record_json import to_json
from skyrl_nat.errors import DataError


def trace(name: str, text: str, **fields: Any) -> Trace:
    said = TraceStep(kind=StepKind.message, text=text)
    return replace(Trace(trace_id=name, source="hook", request="r", steps=(said,)), **fields)


def write(path: Path, *rows: Trace | dict[str, Any] | str) -> Path:
    lines = [
        to_json(row) if isinstance(row, Trace) else row if isinstance(row, str) else json.dumps(row) for row in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def found_in(paths: list[Path]) -> list[tuple[str, str, float | None]]:
    return [(t.trace_id, t.steps[0].text, t.reward) for t in read_checkpoints(paths).traces]


def test_checkpoints_that_grow_give_each_execution_once_in_its_first_order_and_count_the_rest(tmp_path: Path):
    a, b, c = trace("a", "one"), trace("b", "two"), trace("c", "three")
    paths = [
        write(tmp_path / "step_1.jsonl", a),
        write(tmp_path / "step_2.jsonl", a, b),
        write(tmp_path / "step_3.jsonl", replace(b, reward=0.5), replace(a, reward=1.0), c),
    ]
    found = read_checkpoints(paths)
    assert [(t.trace_id, t.reward) for t in found.traces] == [("a", 1.0), ("b", 0.5), ("c", None)]
    assert found.left_out == {"trace that a later checkpoint holds too": 3}


def test_ids_that_are_made_anew_with_each_file_do_not_double_an_execution(tmp_path: Path):
    first = write(tmp_path / "1.jsonl", trace("x1", "one"), trace("x2", "two"))
    second = write(tmp_path / "2.jsonl", trace("y1", "one", reward=1.0), trace("y2", "two"), trace("y3", "three"))
    assert found_in([first, second]) == [("y1", "one", 1.0), ("y2", "two", None), ("y3", "three", None)]


def test_what_is_there_twice_in_one_file_happened_twice(tmp_path: Path):
    first = write(tmp_path / "1.jsonl", trace("x1", "same"), trace("x2", "same"))
    second = write(tmp_path / "2.jsonl", trace("y1", "same"), trace("y2", "same"), trace("y3", "same"))
    assert found_in([first, second]) == [("y1", "same", None), ("y2", "same", None), ("y3", "same", None)]


def test_an_execution_that_went_on_is_known_by_its_id(tmp_path: Path):
    half = trace("a", "half")
    whole = replace(half, steps=(TraceStep(kind=StepKind.message, text="whole"), *half.steps))
    first = write(tmp_path / "1.jsonl", half)
    assert found_in([first, write(tmp_path / "2.jsonl", whole)]) == [("a", "whole", None)]
    # Another execution now says what the first one said so far.
    third = write(tmp_path / "3.jsonl", trace("b", "half"), whole)
    assert found_in([first, third]) == [("b", "half", None), ("a", "whole", None)]


def test_rows_of_chats_have_an_id_of_what_they_say(tmp_path: Path):
    rows = [{"messages": [{"role": "user", "content": text}]} for text in ("p", "p", "q")]
    paths = [write(tmp_path / "1.jsonl", *rows[:1]), write(tmp_path / "2.jsonl", *rows)]
    found = read_checkpoints(paths)
    assert [t.request for t in found.traces] == ["p", "p", "q"]
    assert len({t.trace_id for t in found.traces}) == 3
    assert {t.source for t in found.traces} == {"checkpoint"}
    assert [t.trace_id for t in read_checkpoints(paths[1:]).traces] == [t.trace_id for t in found.traces]
    assert found.left_out == {"trace that a later checkpoint holds too": 1}


def test_a_torn_newest_file_loses_nothing_that_earlier_ones_hold(tmp_path: Path):
    first = write(tmp_path / "1.jsonl", trace("a", "one"), trace("b", "two"))
    second = write(tmp_path / "2.jsonl", trace("a", "one", reward=1.0), trace("b", "two"), trace("c", "three"))
    second.write_bytes(second.read_bytes()[: len(to_json(trace("a", "one", reward=1.0))) + 40])
    found = read_checkpoints([first, second])
    assert [(t.trace_id, t.reward) for t in found.traces] == [("a", 1.0), ("b", None)]
    assert found.left_out == {"torn last line": 1, "trace that a later checkpoint holds too": 1}


def test_broken_rows_are_counted_with_their_place(tmp_path: Path):
    broken = json.loads(to_json(trace("a", "one"))) | {"reward": 7}
    found = read_checkpoints([write(tmp_path / "1.jsonl", broken, {"x": 1}, trace("b", "two"))])
    assert [t.trace_id for t in found.traces] == ["b"]
    assert found.left_out == {"row that is no trace": 1, "row without messages": 1}
    assert "1.jsonl, line 1: reward must be" in found.first_places["row that is no trace"]


def test_files_are_ordered_by_their_numbers_and_none_is_refused(tmp_path: Path):
    for number in (10, 9, 100, 1):
        write(tmp_path / f"step_{number}.jsonl", {"x": 1})
    names = [path.name for path in checkpoint_files(tmp_path)]
    assert names == ["step_1.jsonl", "step_9.jsonl", "step_10.jsonl", "step_100.jsonl"]
    with pytest.raises(DataError, match="must hold checkpoints named"):
        checkpoint_files(tmp_path, "*.json")
    with pytest.raises(DataError, match="Checkpoints must hold traces"):
        read_checkpoints(checkpoint_files(tmp_path))
