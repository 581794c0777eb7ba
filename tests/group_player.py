"""Groups that are played by a clock, for tests of what is played when."""

import asyncio

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.rollouts.producer import GroupProducer, ProducerLimits
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task

TASKS = [Task(task_id=f"t{i}", family="f", payload={}) for i in range(100)]


def rollout(task: Task, version: int, outcome: Outcome = Outcome.FINISHED) -> Rollout:
    reward = RewardResult(total=1.0, parts={}, is_success=True) if outcome.is_trainable else None
    return Rollout(
        rollout_id=f"{task.task_id}-{version}",
        task=task,
        token_ids=[1, 2],
        loss_mask=[False, True],
        rollout_logprobs=[0.0, -1.0],
        token_versions=[-1, version],
        turns=[],
        prompt=[],
        outcome=outcome,
        reward=reward,
    )


class Player:
    """Plays groups whose tokens carry the version in force when the group was started."""

    def __init__(self, failing: frozenset[int] = frozenset(), delays: dict[int, float] | None = None) -> None:
        self.version = 0
        self.started: list[int] = []
        self.finished: list[int] = []
        self.failing = failing
        self.delays = delays or {}

    async def __call__(self, task: Task, index: int) -> RolloutGroup:
        self.started.append(index)
        version = self.version
        await asyncio.sleep(self.delays.get(index, 0))
        self.finished.append(index)
        outcome = Outcome.INFRASTRUCTURE_FAILURE if index in self.failing else Outcome.FINISHED
        return RolloutGroup(task=task, index=index, rollouts=[rollout(task, version, outcome)] * 2)


def make(player: Player, *, staleness: int, tasks_per_step: int = 2, max_dropped: int = 3) -> GroupProducer:
    return GroupProducer(
        player,
        PromptStream(TASKS, seed=0),
        ProducerLimits(
            tasks_per_step=tasks_per_step, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=max_dropped
        ),
    )
