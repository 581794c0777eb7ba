"""Playing one group: G rollouts of one task, each by a player, each scored as soon as it is played."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import DeadlineError, WorkerError
from skyrl_nat.monitoring import spans
from skyrl_nat.rollouts.policy_access import Attempt
from skyrl_nat.types import Outcome, RewardResult, Rollout, RolloutGroup, Task

ScoreFn = Callable[[Task, Rollout], Awaitable[Rollout]]


class Player(Protocol):
    """Plays single rollouts: `EnvironmentPlayer`, or `HarnessPlayer` for a harness outside."""

    async def play(self, task: Task, attempt: Attempt) -> Rollout:
        """Play one rollout once; only the visible part of the task is shown to anyone."""
        ...


class GroupRunner:
    """Plays groups. Whatever happens in a rollout becomes its outcome; only cancellation passes through."""

    def __init__(
        self, *, player: Player, score: ScoreFn | None, config: RolloutConfig, max_in_flight: int | None = None
    ) -> None:
        """Make a runner.

        Args:
            player: Plays single rollouts.
            score: Scores a rollout of a task; None takes the sum of the environment's step rewards.
            config: Retries.
            max_in_flight: Rollouts at most, of all groups; None sets no limit.
        """
        self._player = player
        self._score = score
        self._config = config
        self._slots = asyncio.Semaphore(max_in_flight or sys.maxsize)
        self.num_finished = 0
        """Turns that the policy answered, and rollouts played or scored to their end, for whoever watches progress."""
        self.num_playing = 0
        """Rollouts that are played now."""
        self.num_scoring = 0
        """Rollouts that wait for their verdict."""

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
        last_played_s = 0.0

        async def play_and_score(name: str) -> Rollout:
            nonlocal last_played_s
            with spans.span("rollout", rollout=name, task=task.task_id, kind=label) as span:
                rollout = await self._play_with_retries(task, name, temperature)
                last_played_s = time.monotonic()
                scored = await self._score_with_retries(task, rollout)
                span |= _described(scored)
            return scored

        async with asyncio.TaskGroup() as tasks:
            names = [f"{label}-{index}-{number}" for number in range(num_rollouts)]
            running = [tasks.create_task(play_and_score(name)) for name in names]
        rollouts = [done.result() for done in running]
        return RolloutGroup(task=task, index=index, rollouts=rollouts, score_s=time.monotonic() - last_played_s)

    async def _play_with_retries(self, task: Task, rollout_id: str, temperature: float) -> Rollout:
        async with self._slots:
            self.num_playing += 1
            try:
                rollout, number = await self._play_until_played(task, rollout_id, temperature)
            finally:
                self.num_playing -= 1
        rollout.metrics["retries"] = number
        self._count_finished()
        return rollout

    async def _play_until_played(self, task: Task, rollout_id: str, temperature: float) -> tuple[Rollout, int]:
        """Return the rollout of the first attempt that nothing broke, or of the last, and its number."""
        number = 0
        while True:
            attempt = Attempt(
                rollout_id=rollout_id,
                number=number,
                temperature=temperature,
                on_answer=self._count_finished,
                trace=spans.carried(),
            )
            rollout = await self._player.play(task, attempt)
            if rollout.outcome is not Outcome.INFRASTRUCTURE_FAILURE or number == self._config.max_retries:
                return rollout, number
            number += 1

    async def _score_with_retries(self, task: Task, rollout: Rollout) -> Rollout:
        if not rollout.outcome.is_trainable:
            return rollout
        if self._score is None:
            return _with_environment_reward(rollout)
        self.num_scoring += 1
        try:
            for _ in range(self._config.max_retries + 1):
                scored = await self._score_once(self._score, task, rollout)
                self._count_finished()
                if scored.outcome is not Outcome.VALIDATOR_FAILURE:
                    break
        finally:
            self.num_scoring -= 1
        return scored

    async def _score_once(self, score: ScoreFn, task: Task, rollout: Rollout) -> Rollout:
        with spans.span("score") as span:
            try:
                scored = await score(task, rollout)
            except (WorkerError, DeadlineError) as error:
                scored = replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason=str(error))
            span["is_verdict"] = scored.outcome is not Outcome.VALIDATOR_FAILURE
        return scored

    def _count_finished(self) -> None:
        self.num_finished += 1


def _described(rollout: Rollout) -> spans.Attributes:
    """Return what is known of a rollout that is over."""
    known: spans.Attributes = {"outcome": str(rollout.outcome), "turns": len(rollout.turns)}
    if rollout.reward is not None:
        known |= {"reward": rollout.reward.total, "is_success": rollout.reward.is_success}
    return known


def _with_environment_reward(rollout: Rollout) -> Rollout:
    total = rollout.metrics["environment_reward"]
    # Who pays by other measures than a whole of 1 says itself when it is enough.
    is_success = bool(rollout.metrics.get("is_success", total >= 1.0))
    reward = RewardResult(total=total, parts={"environment": total}, is_success=is_success, is_by_turn=True)
    return replace(rollout, reward=reward)
