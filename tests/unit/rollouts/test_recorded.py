"""Recorded rollouts come back as they were."""

import asyncio
import dataclasses
import re
from pathlib import Path

import pytest
from groups import make_group

from skyrl_nat.errors import DataError
from skyrl_nat.rollouts.recorded import RecordedGroups
from skyrl_nat.rollouts.recorder import RolloutRecorder


def test_groups_come_back_from_their_file(tmp_path: Path) -> None:
    groups = [make_group(3, [1.0, 0.25, None]), make_group(4, [0.0, 0.5], num_sampled=5)]
    path = RolloutRecorder(tmp_path).write(1, groups)
    recorded = RecordedGroups.read([path])
    assert recorded is not None
    assert [task.task_id for task in recorded.tasks] == ["0/train_000001/3", "0/train_000001/4"]
    for task, group in zip(recorded.tasks, groups, strict=True):
        found = asyncio.run(recorded.play(task, 17))
        assert found.index == 17
        for mine, theirs in zip(found.rollouts, group.rollouts, strict=True):
            same = dataclasses.replace(
                theirs,
                rollout_id=f"17/{theirs.rollout_id}",
                task=mine.task,
                token_versions=[-1] * len(theirs.token_ids),
            )
            assert mine == same
        assert found.oldest_version == -1


def test_no_files_mean_no_recorded_groups() -> None:
    assert RecordedGroups.read([]) is None


@pytest.mark.parametrize("text", ["", "\n", "{}", "nonsense", '{"index": 1}', "[1]"])
def test_files_without_rollouts_are_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r\u00e9sum\u00e9.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=re.escape(path.name)):
        RecordedGroups.read([path])
    with pytest.raises(DataError, match="must be readable text"):
        RecordedGroups.read([tmp_path / "missing.jsonl"])


def test_files_of_two_runs_with_one_name_lose_nothing(tmp_path: Path) -> None:
    """Groups and rollouts that are named alike in both runs stay apart, and so does one group at two places."""
    rewards = ([1.0, 0.0], [0.25, 0.5])
    paths = [RolloutRecorder(tmp_path / str(run)).write(1, [make_group(3, rewards[run])]) for run in (0, 1)]
    recorded = RecordedGroups.read(paths)
    assert recorded is not None
    groups = [asyncio.run(recorded.play(recorded.tasks[run], place)) for place, run in enumerate((0, 1, 0))]
    found = [[rollout.reward.total for rollout in group.rollouts if rollout.reward] for group in groups]
    assert found == [rewards[0], rewards[1], rewards[0]]
    assert len({rollout.rollout_id for group in groups for rollout in group.rollouts}) == 6


def test_line_separators_inside_a_text_do_not_end_the_line(tmp_path: Path) -> None:
    """The recorder writes them as they are, and Python's `splitlines` would break there."""
    group = make_group(3, [1.0])
    odd = "one\u2028two\u0085three\x0bfour"
    group = dataclasses.replace(group, rollouts=[dataclasses.replace(group.rollouts[0], reason=odd)])
    recorded = RecordedGroups.read([RolloutRecorder(tmp_path).write(1, [group])])
    assert recorded is not None
    [rollout] = asyncio.run(recorded.play(recorded.tasks[0], 0)).rollouts
    assert rollout.reason == odd
