from pathlib import Path
from typing import Any

import pytest

from skyrl_nat.data.traces.datasets import grpo_groups, kto_examples
from skyrl_nat.data.traces.labels import LabelFile, apply_labels
from skyrl_nat.data.traces.record import StepKind, Trace, TraceStep
from skyrl_nat.data.traces.store import TraceStore
from skyrl_nat.deploy.agent_folder import archive, write_agent
from skyrl_nat.deploy.feedback import AGENTS, FEEDBACK, FeedbackFile, export_feedback, mark_of
from skyrl_nat.errors import DataError

VALIDATION: dict[str, Any] = {"reward": 1.0, "is_success": True, "parts": {}, "findings": [], "suspicions": []}
RECORD = {"name": "n", "description": "d", "outcome": "trained", "validation": {**VALIDATION, "stages": []}}


def trace(name: str, reward: float, *, is_delivered: bool) -> Trace:
    steps = (
        TraceStep(kind=StepKind.message, role="user", text="write it"),
        TraceStep(kind=StepKind.message, text=f"here it is, {name}"),
    )
    about = {"is_delivered": is_delivered}
    return Trace(trace_id=name, source="deploy", request="r", steps=steps, reward=reward, task_id="t", metadata=about)


def deployment(folder: Path) -> Path:
    """One agent: the policy's try failed, the planner's code was delivered."""
    traces = [trace("a-policy", 0.1, is_delivered=False), trace("a-planner", 1.0, is_delivered=True)]
    (folder / AGENTS).mkdir(parents=True)
    write_agent(folder / AGENTS / "a", {"agent/register.py": "pass\n"}, RECORD, traces)
    return folder


def test_feedback_becomes_labels_and_rows_to_train_on(tmp_path: Path) -> None:
    folder, store = deployment(tmp_path / "deployment"), tmp_path / "traces"
    FeedbackFile(folder).add("a", "Ada", "bad", "wrong")
    FeedbackFile(folder).add("a", "Ada", "good", "right after all")
    found = export_feedback(folder, store)
    assert (found["agents"], found["traces"], found["labels"], found["not_written"]) == (1, 2, 1, [])
    marks = LabelFile(store / "labels.jsonl")
    assert marks.labels() == {"a-planner": True}, "the last word counts, and only for what was delivered"
    traces = apply_labels(TraceStore(store).read().traces, marks.labels())
    assert [word["rating"] for word in traces[1].metadata["feedback"]] == ["bad", "good"]
    assert "Ada" not in (store / "labels.jsonl").read_text() + str(traces)
    rows = kto_examples(traces).examples
    assert [(row["completion"], row["label"]) for row in rows] == [
        ("here it is, a-policy", False),
        ("here it is, a-planner", True),
    ]
    [group] = grpo_groups(traces).groups
    assert [member["reward"] for member in group["members"]] == [0.1, 1.0]


def test_exported_twice_adds_nothing_and_later_words_are_added(tmp_path: Path) -> None:
    folder, store = deployment(tmp_path / "deployment"), tmp_path / "traces"
    FeedbackFile(folder).add("a", "u", "good")
    export_feedback(folder, store)
    again = export_feedback(folder, store)
    assert (again["traces"], again["labels"]) == (0, 0)
    FeedbackFile(folder).add("a", "v", "bad")
    later = export_feedback(folder, store)
    assert (later["traces"], later["labels"]) == (1, 1)
    assert LabelFile(store / "labels.jsonl").labels() == {"a-planner": False}


def test_a_line_that_a_crash_cut_off_loses_no_other(tmp_path: Path) -> None:
    file = FeedbackFile(tmp_path)
    file.add("a", "u", "good")
    with (tmp_path / FEEDBACK).open("ab") as lines:
        lines.write(b'{"agent_id": "b", "us')
    file.add("c", "u", "bad", "no")
    assert [(said.agent_id, said.rating, said.user) for said in file.read()] == [
        ("a", "good", mark_of("u")),
        ("c", "bad", mark_of("u")),
    ]


@pytest.mark.parametrize(("rating", "comment"), [("fine", ""), ("True", ""), ("good", "x" * 4001)])
def test_what_is_no_feedback_is_refused(tmp_path: Path, rating: str, comment: str) -> None:
    with pytest.raises(DataError, match="Feedback must rate good or bad"):
        FeedbackFile(tmp_path).add("a", "u", rating, comment)
    assert FeedbackFile(tmp_path).read() == []


def test_a_deployment_without_agents_has_nothing_to_export(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must hold created agents"):
        export_feedback(tmp_path, tmp_path / "traces")


@pytest.mark.parametrize("name", ["../out.py", "/etc/out.py", "agent/../../../out.py"])
def test_no_file_leaves_the_agents_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(DataError, match="must stay in its folder"):
        write_agent(tmp_path / "a", {name: "x"}, RECORD, [])
    assert list(tmp_path.iterdir()) == []


def test_an_archive_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    write_agent(tmp_path / "a", {"agent/register.py": "pass\n", "scripts/go.sh": "exit\n"}, RECORD, [])
    assert archive(tmp_path / "a") == archive(tmp_path / "a")
