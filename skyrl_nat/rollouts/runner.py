"""Playing one group: G rollouts of one task, each by a player, then scored together."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import DeadlineError, WorkerError
from skyrl_nat.rollouts.policy_access import Attempt
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task

ScoreFn = Callable[[Task, list[Rollout]], Awaitable[list[Rollout]]]


class Player(Protocol):
    """Plays single rollouts: `EnvironmentPlayer`, or `HarnessPlayer` for a harness outside."""

    async def play(self, task: Task, attempt: Attempt) -> Rollout:
        """Play one rollout once; only the visible part of the task is shown to anyone."""
        ...


class GroupRunner:
    """Plays groups. Whatever happens in a rollout becomes its outcome; only cancellation passes through."""

    def __init__(self, *, player: Player, score: ScoreFn | None, config: RolloutConfig) -> None:
        """Make a runner.

        Args:
            player: Plays single rollouts.
            score: Scores the rollouts of a task; None takes the sum of the environment's step rewards.
            config: Limits and retries.
        """
        self._player = player
        self._score = score
        self._config = config
        self._slots = asyncio.Semaphore(config.max_concurrent_rollouts)
        self.num_finished = 0
        """Turns that the policy answered, and rollouts played or scored to their end, for whoever watches progress."""

    async def play_group(
        self, task: Task, index: int, *, num_rollouts: int, temperature: float, label: str = "train"
    ) -> RolloutGroup:
        """Play and score the rollouts of one task.

        Args:
            task: With its hidden part, which goes to the reward worker only.
            index: Stream index, part of the rollout ids and of the sampling seeds.
            num_rollouts: G.
            temperature: 0 for greedy.
            label: Keeps ids and seeds of training and evaluation apart.

        Returns:
            The group with all G rollouts, failed ones included.
        """
        names = [f"{label}-{index}-{number}" for number in range(num_rollouts)]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(self._play_with_retries(task, name, temperature)) for name in names]
        played = time.monotonic()
        rollouts = await self._score_with_retries(task, [done.result() for done in running])
        return RolloutGroup(task=task, index=index, rollouts=rollouts, score_s=time.monotonic() - played)

    async def _play_with_retries(self, task: Task, rollout_id: str, temperature: float) -> Rollout:
        async with self._slots:
            for number in range(self._config.max_retries + 1):
                attempt = Attempt(
                    rollout_id=rollout_id, number=number, temperature=temperature, on_answer=self._count_finished
                )
                rollout = await self._player.play(task, attempt)
                if rollout.outcome is not Outcome.INFRASTRUCTURE_FAILURE:
                    break
        rollout.metrics["retries"] = number
        self._count_finished()
        return rollout

    async def _score_with_retries(self, task: Task, rollouts: list[Rollout]) -> list[Rollout]:
        if self._score is None:
            return [_with_environment_reward(rollout) for rollout in rollouts]
        result = list(rollouts)
        pending = [i for i, rollout in enumerate(rollouts) if rollout.outcome.is_trainable]
        for _ in range(self._config.max_retries + 1):
            if not pending:
                break
            try:
                scored = await self._score(task, [rollouts[i] for i in pending])
            except (WorkerError, DeadlineError) as error:
                scored = [replace(rollouts[i], outcome=Outcome.VALIDATOR_FAILURE, reason=str(error)) for i in pending]
            self._count_finished(len(scored))
            for i, rollout in zip(pending, scored, strict=True):
                result[i] = rollout
            pending = [i for i in pending if result[i].outcome is Outcome.VALIDATOR_FAILURE]
        return result

    def _count_finished(self, number: int = 1) -> None:
        self.num_finished += number


def _with_environment_reward(rollout: Rollout) -> Rollout:
    if not rollout.outcome.is_trainable:
        return rollout
    total = rollout.metrics["environment_reward"]
    reward = RewardResult(total=total, parts={"environment": total}, is_success=total >= 1.0, is_by_turn=True)
    return replace(rollout, reward=reward)
