"""A task that no validator can judge, in a real run."""

import json

import pytest
import small_run
from letter_family import NAME

from skyrl_nat.data.specs import write_tasks
from skyrl_nat.types import Task

pytestmark = pytest.mark.long


def test_a_poisoned_task_is_put_aside_and_listed_and_stays_aside_after_a_resume(tmp_path):
    """Three tasks, two of them a step: the poisoned one fails in the first two epochs and is played no more."""
    tasks = [Task(task_id=f"say_{letter}", family=NAME, payload={"letter": letter}) for letter in "ab"]
    tasks.append(Task(task_id="poisoned", family=NAME, payload={"letter": "c", "is_poisoned": True}))
    poisoned = [f"environment.train_files=[{tmp_path / 'poisoned.parquet'}]", "rollout.quarantine_after=2"]
    common = ["name=run", *poisoned, "rollout.max_retries=0", "evaluation.before_and_after=false"]
    small_run.arguments(tmp_path)
    write_tasks(tasks, tmp_path / "poisoned.parquet")
    output = small_run.run(tmp_path, *common, "trainer.steps=3")
    assert output.count("task poisoned is played no more") == 1
    small_run.run(tmp_path, *common, "trainer.steps=5", "resume=latest")
    run = tmp_path / "runs" / "run"
    (listed,) = map(json.loads, (run / "quarantine.jsonl").read_text().splitlines())
    assert (listed["task_id"], listed["failures"]) == ("poisoned", 2)
    assert "no verdict on this task" in listed["reason"]
    entries = small_run.metrics(tmp_path, "run")
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4, 5]
    assert sum(entry["rollout/dropped_groups/count"] for entry in entries) == 2
    assert [entry["rollout/quarantined_tasks/count"] for entry in entries[2:]] == [1, 1, 1]
