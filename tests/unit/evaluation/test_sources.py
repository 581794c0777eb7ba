"""What can be compared is found under the names that people have for it."""

from pathlib import Path

import pytest
from evaluated import group

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.folder import GREEDY, SAMPLED, EvaluationFolder
from skyrl_nat.evaluation.sources import differences, read_source
from skyrl_nat.rollouts.recorder import RolloutRecorder


def evaluation(folder: Path, **about) -> Path:
    EvaluationFolder(folder, {"model": "m", "seed": 0, **about}).finish(GREEDY, [group(0, [1.0])])
    return folder


def run(folder: Path, *steps: int) -> Path:
    recorder = RolloutRecorder(folder / "rollouts")
    for step in steps:
        recorder.write(step, [group(step, [1.0])], label="eval")
    return folder


def test_a_run_is_its_newest_evaluation_or_that_of_a_step(tmp_path):
    """The newest by its number, not by its name."""
    folder = run(tmp_path / "run", 2, 1_000_000)
    found, older = read_source(str(folder), GREEDY), read_source(f"{folder}@2", GREEDY)
    assert (found.name, found.groups[0].task.task_id) == (f"{folder}@1000000", "t1000000")
    assert (older.name, older.groups[0].task.task_id) == (f"{folder}@2", "t2")
    assert older.page_folder(found) == folder / "comparison-run-1000000-run-2"


def test_a_folder_of_an_evaluation_and_a_file_are_read(tmp_path):
    folder = evaluation(tmp_path / "e")
    found, file = read_source(str(folder), GREEDY), read_source(str(folder / "greedy.jsonl"), GREEDY)
    assert found.groups == file.groups
    assert (found.about["model"], file.about) == ("m", {})
    assert found.page_folder(file) == tmp_path / "comparison-greedy.jsonl-e"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nothing", r"found none of them \(there is nothing of that name\)\. Evaluate first"),
        ("empty", r"found none of them\. Evaluate first"),
        ("run@3", r"must have an evaluation of step 3, it has those of 2, 4\. Choose one"),
        ("run@x", r"must have an evaluation of step x"),
        ("e@2", r"found none of them"),
        ("void.jsonl", r"must hold rollouts, it is empty"),
        ("e", r"must hold sampled\.jsonl"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(tmp_path, text: str, sentence: str):
    run(tmp_path / "run", 2, 4)
    evaluation(tmp_path / "e")
    (tmp_path / "empty").mkdir()
    (tmp_path / "void.jsonl").touch()
    with pytest.raises(DataError, match=sentence):
        read_source(str(tmp_path / text), SAMPLED)


def test_other_settings_are_told_and_other_models_are_not(tmp_path):
    one = read_source(str(evaluation(tmp_path / "one")), GREEDY)
    other = read_source(str(evaluation(tmp_path / "other", model="n", seed=1)), GREEDY)
    assert differences(one, one) == []
    assert differences(one, other) == ["the evaluations differ in seed: 0 and 1"]
