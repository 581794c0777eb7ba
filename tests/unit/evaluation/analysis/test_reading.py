"""The record of a run, whole or torn."""

import json
import shutil
from pathlib import Path

import pytest
from recorded_run import RecordedRun, group_of, judged

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.analysis.analyze import analyze
from skyrl_nat.evaluation.analysis.reading import read_record, rollout_files


@pytest.fixture
def folder(tmp_path) -> Path:
    run = RecordedRun(tmp_path / "run")
    for step in (1, 2, 3):
        run.train(step, [group_of(step, [judged("a", 0.5), judged("b", 0.25 * step)])])
    run.evaluate(0, [group_of(0, [judged("e", 0.0)])])
    run.evaluate(3, [group_of(0, [judged("e", 1.0)])])
    return run.folder


def add(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def test_steps_and_evaluations_are_read(folder):
    record = read_record(folder)
    assert (record.name, list(record.steps), record.notes) == ("run", [1, 2, 3], [])
    assert record.series("rollout/reward/mean").to_dict() == {1: 0.375, 2: 0.5, 3: 0.625}
    assert [(result.step, result.reward) for result in record.evaluations] == [(0, 0.0), (3, 1.0)]
    assert [step for step, _ in rollout_files(folder, "train")] == [1, 2, 3]


def test_torn_lines_are_left_out_and_counted(folder):
    add(folder / "metrics.jsonl", '{"step": 4, "loss/pol')
    add(folder / "evaluations.jsonl", '{"step": 5}\n[1]\n')
    record = read_record(folder)
    assert list(record.steps) == [1, 2, 3]
    assert [result.step for result in record.evaluations] == [0, 3]
    assert record.notes == [
        "metrics.jsonl: 1 of 6 lines are torn or no records and are left out.",
        "evaluations.jsonl: 1 of 4 lines are torn or no records and are left out.",
        "evaluations.jsonl: 1 lines hold no evaluation and are left out.",
    ]


@pytest.mark.parametrize("line", ["[" * 100_000, '{"step": NaN}', '{"step": "x"}', "7", "null"])
def test_lines_that_are_no_records_do_no_harm(folder, line: str):
    add(folder / "metrics.jsonl", line + "\n")
    assert list(read_record(folder).steps) == [1, 2, 3]


def test_a_metric_that_is_not_finite_is_not_there(folder):
    line = {"step": 4, "loss/policy": 0.0, "loss/token_entropy": None, "not_finite": {"loss/token_entropy": "nan"}}
    add(folder / "metrics.jsonl", json.dumps(line) + "\n")
    assert list(read_record(folder).series("loss/token_entropy").to_dict()) == [1, 2, 3]


def test_evaluations_of_other_tasks_are_not_compared(folder):
    run = RecordedRun(folder)
    run.evaluate(2, [group_of(i, [judged("e", 1.0)]) for i in range(3)])
    record = read_record(folder)
    assert [result.step for result in record.evaluations] == [0, 3]
    assert record.notes == ["1 evaluations of another number of tasks than 1 are left out."]


def test_missing_files_are_named(folder):
    (folder / "evaluations.jsonl").unlink()
    shutil.rmtree(folder / "rollouts")
    analysis = analyze(folder)
    assert analysis.material.record.notes == [
        "There is no evaluations.jsonl: nothing can be said of held-out tasks.",
        "There are no recorded rollouts of training: nothing can be said of failures and groups.",
    ]
    assert analysis.findings


def test_torn_rollout_files_are_left_out_with_one_sentence(folder):
    for step in (2, 3):
        path = folder / "rollouts" / f"train_{step:06d}.jsonl"
        path.write_bytes(path.read_bytes()[:-50])
    analysis = analyze(folder)
    assert analysis.material.record.notes == [
        "2 of 3 rollout files are torn and left out, the first: train_000002.jsonl, line 2."
    ]
    assert analysis.material.train.outcomes == {"finished": 2}


def test_no_run_and_an_empty_run_are_refused(tmp_path, folder):
    with pytest.raises(DataError, match=r"must be a run folder with metrics\.jsonl, found none"):
        analyze(tmp_path / "nothing")
    (folder / "metrics.jsonl").write_text('{"step": 0, "eval/rollout/reward/mean": 0.5}\n')
    with pytest.raises(DataError, match="must hold a trained step, holds none"):
        analyze(folder)
