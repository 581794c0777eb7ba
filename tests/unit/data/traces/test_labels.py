"""The file of manual labels."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from skyrl_nat.data.traces.labels import LabelFile, Mark, apply_labels
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.errors import DataError


def test_the_last_one_wins_and_nothing_is_rewritten(tmp_path: Path) -> None:
    labels = LabelFile(tmp_path / "new" / "labels.jsonl")
    assert labels.labels() == {}
    for trace_id, mark in (("a", Mark.good), ("b", Mark.good), ("a", Mark.bad), ("c", Mark.skip)):
        before = (tmp_path / "new" / "labels.jsonl").read_bytes() if labels.events() else b""
        labels.add(trace_id, mark, by="mira")
        assert (tmp_path / "new" / "labels.jsonl").read_bytes().startswith(before)
    assert labels.labels() == {"a": False, "b": True}
    assert {name: event.mark for name, event in labels.marks().items()} == {"a": "bad", "b": "good", "c": "skip"}
    assert len(labels.events()) == 4


def test_who_and_when_are_kept(tmp_path: Path) -> None:
    event = LabelFile(tmp_path / "l.jsonl").add("a", Mark.good, by="mira")
    line = json.loads((tmp_path / "l.jsonl").read_text())
    assert line == {"trace_id": "a", "mark": "good", "by": "mira", "at": event.at}
    assert timedelta(0) <= datetime.now(UTC) - datetime.fromisoformat(event.at) < timedelta(seconds=10)


def test_undo_gives_back_what_stood_before_step_by_step(tmp_path: Path) -> None:
    labels = LabelFile(tmp_path / "l.jsonl")
    for mark in (Mark.good, Mark.bad):
        labels.add("a", mark, by="mira")
    labels.add("b", Mark.bad, by="mira")
    labels.add("a", Mark.undo, by="mira")
    assert labels.labels() == {"a": True, "b": False}
    labels.add("a", Mark.undo, by="mira")
    assert labels.labels() == {"b": False}
    with pytest.raises(DataError, match="a has none that stands"):
        labels.add("a", Mark.undo, by="mira")
    assert len(labels.events()) == 5


def test_a_line_that_was_never_finished_is_no_label_and_gives_way(tmp_path: Path, caplog) -> None:
    path = tmp_path / "l.jsonl"
    labels = LabelFile(path)
    labels.add("a", Mark.good, by="mira")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    assert labels.labels() == {"a": True}
    assert "never finished" in caplog.text
    labels.add("b", Mark.bad, by="mira")
    assert labels.labels() == {"a": True, "b": False}
    assert path.read_bytes().startswith(whole)


def test_a_last_line_that_lacks_only_its_end_is_a_label(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    labels = LabelFile(path)
    labels.add("a", Mark.good, by="mira")
    path.write_bytes(path.read_bytes().rstrip())
    labels.add("b", Mark.bad, by="mira")
    assert labels.labels() == {"a": True, "b": False}


@pytest.mark.parametrize(
    "line",
    [
        "nonsense",
        "{}",
        '{"trace_id": "a", "mark": "great", "by": "", "at": ""}',
        "[]",
        '{"trace_id": 1, "mark": "good"}',
    ],
)
def test_a_broken_line_inside_is_named_and_nothing_is_added(tmp_path: Path, line: str) -> None:
    path = tmp_path / "l.jsonl"
    labels = LabelFile(path)
    labels.add("a", Mark.good, by="mira")
    path.write_text(path.read_text() + line + "\n")
    before = path.read_bytes()
    with pytest.raises(DataError, match="line 2 must be a mark"):
        labels.labels()
    with pytest.raises(DataError, match="line 2 must be a mark"):
        labels.add("b", Mark.good, by="mira")
    assert path.read_bytes() == before


def test_several_processes_write_to_one_file_without_losing_a_line(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from skyrl_nat.data.traces.labels import LabelFile, Mark\n"
        "for n in range(50): LabelFile(Path(sys.argv[1])).add(f'{sys.argv[2]}-{n}', Mark.good, by=sys.argv[2])"
    )
    path = tmp_path / "l.jsonl"
    writers = [subprocess.Popen([sys.executable, "-c", program, path, name]) for name in ("x", "y", "z")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    assert len(LabelFile(path).labels()) == 150


def test_labels_reach_their_traces_and_others_stay(caplog) -> None:
    traces = [
        Trace(trace_id=name, source="", request="", steps=(), labels={"suggested_label": True}) for name in ("a", "b")
    ]
    labelled = apply_labels(traces, {"a": False, "gone": True})
    assert [found.labels for found in labelled] == [
        {"suggested_label": True, "label": False},
        {"suggested_label": True},
    ]
    assert "1 of 2 labels belong to none of the 2 traces" in caplog.text
