from pathlib import Path

import pytest

from skyrl_nat.data.specs import load_tasks, resolve_file, write_tasks
from skyrl_nat.environments.jira.catalogue import load_workflows, read_issue
from skyrl_nat.environments.jira.generator import kinds_of, make_splits
from skyrl_nat.environments.jira.machine import Machine
from skyrl_nat.environments.jira.prompts import build_prompt
from skyrl_nat.errors import DataError


def test_shipped_files_are_the_generator_s_byte_for_byte(tmp_path: Path) -> None:
    for split, tasks in zip(("train", "validation"), make_splits(), strict=True):
        write_tasks(tasks, tmp_path / split)
        assert (tmp_path / split).read_bytes() == resolve_file(f"builtin:jira/{split}").read_bytes()


def test_shipped_tasks_are_many_and_can_be_read() -> None:
    train, validation = (load_tasks([f"builtin:jira/{split}"], family="jira") for split in ("train", "validation"))
    assert (len(train), len(validation)) == (240, 72)
    for task in train + validation:
        machine = Machine(read_issue(task.payload["issue"]))
        assert task.hidden == {}
        assert task.difficulty == min(5, max(1, len(machine.plan) - 2))


def test_splits_share_no_task_summary_or_key() -> None:
    train, validation = make_splits()
    for name in ("summary", "key"):
        seen = [task.payload["issue"][name] for task in train + validation]
        assert len(set(seen)) == len(seen)
    prompts = [str(build_prompt(Machine(read_issue(task.payload["issue"])))) for task in train + validation]
    assert len(set(prompts)) == 312


def test_other_seed_gives_other_tasks() -> None:
    assert make_splits(seed=1) != make_splits(seed=2)


def test_every_kind_of_issue_is_in_the_training_split() -> None:
    names = ("workflow", "status", "facts", "target")
    kinds = [kind.to_json() for workflow in load_workflows().values() for kind in kinds_of(workflow)]
    assert len(kinds) == 8 + 16 + 8
    seen = {str([task.payload["issue"][name] for name in names]) for task in make_splits()[0]}
    assert seen == {str([kind[name] for name in names]) for kind in kinds}


def test_more_tasks_than_summaries_are_refused() -> None:
    with pytest.raises(DataError, match="got 320 for 330 tasks"):
        make_splits(300, 30)
