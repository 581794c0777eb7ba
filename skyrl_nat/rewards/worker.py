"""Scores rollouts: a validator behind asyncio, with deadlines, failures as data."""

import asyncio
import dataclasses
import functools
import hashlib
import logging

from skyrl_nat.config.environment import Screen, SlowChecks
from skyrl_nat.errors import DeadlineError
from skyrl_nat.rewards.deadline import call_in_thread
from skyrl_nat.rewards.validators import Validator
from skyrl_nat.types import Outcome, RewardResult, Rollout, Task

_logger = logging.getLogger(__name__)


class RewardWorker:
    """Owns a validator. A plain class: the cluster part turns it into an actor."""

    def __init__(
        self,
        validator: Validator,
        timeout_s: float,
        num_threads: int,
        *,
        screen: Screen = Screen.log,
        slow_checks: SlowChecks = SlowChecks.evaluation,
    ) -> None:
        """Keep the validator.

        Args:
            validator: Thread-safe; closed by `close`.
            timeout_s: Deadline of one validation from the moment it starts.
            num_threads: Validations at once.
            screen: What becomes of rollouts that are suspected of cheating.
            slow_checks: Which rollouts get the checks that are too slow for all.
        """
        self._screen = screen
        self._slow_checks = slow_checks
        self._validator = validator
        self._timeout_s = timeout_s
        self._slots = asyncio.Semaphore(num_threads)

    async def score(self, task: Task, rollout: Rollout) -> Rollout:
        """Return the rollout with its reward.

        A rollout that is not trainable comes back untouched. Where the validator raised or ran out of time
        the outcome is VALIDATOR_FAILURE with the reason and no reward: never a reward of 0.

        Args:
            task: With its hidden part.
            rollout: Of that task.
        """
        if not rollout.outcome.is_trainable:
            return rollout
        try:
            async with self._slots:
                validate = functools.partial(
                    self._validator.validate,
                    seed=group_seed(rollout.rollout_id),
                    is_final=self._is_final(rollout.rollout_id),
                )
                reward: RewardResult = await call_in_thread(
                    validate,
                    task,
                    rollout.artifact,
                    timeout_s=self._timeout_s,
                    name=f"validation of {rollout.rollout_id}",
                )
        except Exception as error:  # noqa: BLE001 - the border of one reward call: what is caught becomes data
            kind = "timeout" if isinstance(error, DeadlineError) else type(error).__name__
            _logger.warning("validation of %s failed: %s", rollout.rollout_id, error)
            reason = f"validator: {kind}: {error}"[:500]
            return dataclasses.replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason=reason, reward=None)
        if reward.suspicions and self._screen is Screen.drop:
            reason = f"suspected: {'; '.join(reward.suspicions)}"[:500]
            return dataclasses.replace(rollout, outcome=Outcome.SCREENED, reason=reason, reward=reward)
        return dataclasses.replace(rollout, reward=reward)

    def _is_final(self, rollout_id: str) -> bool:
        is_training = rollout_id.startswith("train-")
        return self._slow_checks is SlowChecks.always or (
            self._slow_checks is SlowChecks.evaluation and not is_training
        )

    async def ping(self) -> bool:
        """Return True: the worker's loop answers."""
        return True

    async def close(self) -> None:
        """Close the validator; safe to call twice."""
        await call_in_thread(self._validator.close, timeout_s=60.0, name="closing the validator")


def group_seed(rollout_id: str) -> int:
    """Return the seed that all rollouts of a group share: their ids differ in the last number only."""
    digest = hashlib.sha256(rollout_id.rpartition("-")[0].encode()).digest()
    return int.from_bytes(digest[:6], "big")
