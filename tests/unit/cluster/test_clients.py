"""What travels to environment and reward workers, and what does not."""

import asyncio
import pickle
from dataclasses import replace
from typing import Any

import pytest

from skyrl_nat.cluster.clients import RemoteEnvironments, RemoteRewards
from skyrl_nat.errors import LostWorkerError
from skyrl_nat.types import FinishReason, Outcome, RewardResult, Rollout, Task, Turn

NUM_TOKENS = 8192
TASK = Task(task_id="t", family="f", payload={"ask": "build"}, hidden={"answer": 1})


class Group:
    """Two workers; `calls` has what was asked of whom."""

    ranks = (0, 1)
    size = 2

    def __init__(self, answer: Any = None) -> None:
        self.calls: list[tuple[int, str, tuple[Any, ...]]] = []
        self._answer = answer

    async def call_one(self, rank: int, method: str, *args: Any) -> Any:
        self.calls.append((rank, method, args))
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer(*args) if self._answer else None

    def call_opaque(self, rank: int, method: str, *args: Any) -> None:
        self.calls.append((rank, method, args))


def long_rollout() -> Rollout:
    turn = Turn(
        completion_text="code " * NUM_TOKENS,
        observations=[{"role": "user", "content": "go on"}],
        num_prompt_tokens=10,
        num_completion_tokens=NUM_TOKENS,
        finish_reason=FinishReason.STOP,
        generate_s=1.0,
        environment_s=0.0,
    )
    return Rollout(
        rollout_id="train-3-1",
        task=TASK.visible(),
        token_ids=list(range(NUM_TOKENS)),
        loss_mask=[True] * NUM_TOKENS,
        rollout_logprobs=[-1.0 / (i + 1) for i in range(NUM_TOKENS)],
        token_versions=[4] * NUM_TOKENS,
        turns=[turn],
        prompt=[{"role": "user", "content": "build"}],
        outcome=Outcome.FINISHED,
        artifact={"files": {"a.py": "x = 1\n"}},
        metrics={"retries": 0},
        segment_starts=[0, 7],
    )


def test_a_reward_worker_gets_task_and_artifact_and_its_verdict_comes_to_the_whole_rollout():
    """In bytes: of a rollout of 8,192 tokens less than a hundredth travels."""
    reward = RewardResult(total=0.5, parts={"a": 0.5}, is_success=False)

    def judge(task: Task, rollouts: list[Rollout]) -> list[Rollout]:
        (asked,) = rollouts
        assert task.hidden == {"answer": 1}
        assert (asked.rollout_id, asked.artifact, asked.outcome) == ("train-3-1", whole.artifact, Outcome.FINISHED)
        return [replace(asked, outcome=Outcome.SCREENED, reason="suspected", reward=reward)]

    whole, group = long_rollout(), Group(judge)
    (scored,) = asyncio.run(RemoteRewards(group).score(TASK, [whole]))  # type: ignore[arg-type]
    assert scored == replace(whole, outcome=Outcome.SCREENED, reason="suspected", reward=reward)
    (_, _, (_, [asked])) = group.calls[0]
    assert len(pickle.dumps(asked)) < len(pickle.dumps(whole)) / 100


def test_a_lost_reward_worker_is_a_validator_failure_of_the_whole_rollout():
    whole = long_rollout()
    rewards = RemoteRewards(Group(LostWorkerError("reward 0 died")))  # type: ignore[arg-type]
    (scored,) = asyncio.run(rewards.score(TASK, [whole]))
    assert scored == replace(whole, outcome=Outcome.VALIDATOR_FAILURE, reason="reward 0 died")


@pytest.mark.parametrize("is_open", [True, False])
def test_an_abandoned_environment_is_closed_where_it_is(is_open: bool):
    async def scenario() -> None:
        if is_open:
            await environments.create("r-0", TASK)
            await environments.create("r-1", TASK)
        environments.abandon("r-1")
        environments.abandon("r-1")

    group = Group()
    environments = RemoteEnvironments(group)  # type: ignore[arg-type]
    asyncio.run(scenario())
    assert [(rank, args) for rank, method, args in group.calls if method == "close"] == [(1, ("r-1",))] * is_open
