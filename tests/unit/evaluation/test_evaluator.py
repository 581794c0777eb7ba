"""Summing up held-out tasks."""

import asyncio
import dataclasses
import errno
import json
import math

import pytest

from skyrl_nat.evaluation.evaluator import EvaluationResult, play_tasks, summarize
from skyrl_nat.json_lines import encode_line
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task


def group(task_id: str, difficulty: int, reward: float | None, outcome: Outcome = Outcome.FINISHED) -> RolloutGroup:
    task = Task(task_id=task_id, family="f", payload={}, difficulty=difficulty)
    result = None if reward is None else RewardResult(total=reward, parts={"p": reward}, is_success=reward == 1.0)
    rollout = Rollout(
        rollout_id=task_id,
        task=task,
        token_ids=[1, 2],
        loss_mask=[False, True],
        rollout_logprobs=[0.0, -1.0],
        token_versions=[-1, 0],
        turns=[],
        prompt=[],
        outcome=outcome,
        reward=result,
    )
    return RolloutGroup(task=task, index=0, rollouts=[rollout])


def test_failures_of_the_policy_count_and_lost_tasks_are_named():
    """EV-08: errors of the model stay in the denominator, lost infrastructure does not become a zero."""
    groups = [
        group("a", 1, 1.0),
        group("b", 1, 0.0, Outcome.POLICY_FAILURE),
        group("c", 2, 0.5, Outcome.TRUNCATED),
        group("d", 2, None, Outcome.INFRASTRUCTURE_FAILURE),
    ]
    result = summarize(4, groups)
    assert (result.num_tasks, result.num_without_verdict) == (4, 1)
    assert result.success == 1 / 3
    assert result.reward == 0.5
    assert result.success_by_difficulty == {1: 0.5, 2: 0.0}
    assert result.parts == {"p": 0.5}


def test_a_result_is_the_same_after_it_was_written_down():
    result = summarize(4, [group("a", 1, 1.0), group("c", 3, 0.5)])
    assert EvaluationResult.from_dict(json.loads(encode_line(result.to_dict()))) == result


def test_a_mean_of_nothing_is_read_as_such():
    result = dataclasses.replace(
        summarize(4, [group("a", 1, 1.0)]), reward=math.nan, success_by_difficulty={2: math.nan}
    )
    found = EvaluationResult.from_dict(json.loads(encode_line(result.to_dict())))
    assert math.isnan(found.reward)
    assert math.isnan(found.success_by_difficulty[2])
    assert found.success == 1.0


class Player:
    """Stands for a runner that counts what it plays."""

    def __init__(self) -> None:
        self.played: list[int] = []

    async def play_group(self, task: Task, index: int, **_: object) -> RolloutGroup:
        self.played.append(index)
        return group(task.task_id, 1, 1.0)


def test_what_was_played_before_is_not_played_again():
    player, handed = Player(), []
    tasks = [group(name, 1, 1.0).task for name in "abc"]
    known = {1: group("b", 1, 0.5)}
    found = asyncio.run(
        play_tasks(player, tasks, temperature=0.0, kept=known, keep=handed.append)  # type: ignore[arg-type]
    )
    assert player.played == [0, 2]
    assert [one.task.task_id for one in found] == ["a", "b", "c"]
    assert found[1] is known[1]
    assert [one.task.task_id for one in handed] == ["a", "c"]


def test_a_disk_that_is_full_is_one_error_and_ends_what_is_played():
    def refuse(_: RolloutGroup) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    tasks = [group(name, 1, 1.0).task for name in "abc"]
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(play_tasks(Player(), tasks, temperature=0.0, keep=refuse))  # type: ignore[arg-type]
