"""What rollouts see of remote engines, environments and reward workers: plain async faces."""

import asyncio
import itertools
import time
from dataclasses import replace
from typing import Any

from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import DeadlineError, LostWorkerError, SilentWorkerError, WorkerError
from skyrl_nat.types import Completion, GenerationRequest, Message, Outcome, Rollout, Task

LONGEST_REST_S = 60.0
_NOT_SCORED = ("token_ids", "loss_mask", "rollout_logprobs", "token_versions", "turns", "prompt", "segment_starts")


class RemoteEngine:
    """One engine actor, for the pool."""

    def __init__(self, group: ActorGroup, rank: int, timeout_s: float) -> None:
        self._group = group
        self._rank = rank
        self._timeout_s = timeout_s

    async def generate(self, request: GenerationRequest) -> Completion:
        """Pass one request on."""
        return await self._group.call_one(self._rank, "generate", request, timeout_s=self._timeout_s)


class RemoteEnvironments:
    """All environment workers; a rollout stays on the worker that made its environment."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._turns = _Turns(group)
        self._home: dict[str, int] = {}

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        """Make an environment on the next worker in turn."""
        rank = self._turns.next()
        self._home[rollout_id] = rank
        return await self._turns.call(rank, "create", rollout_id, task)

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        """Play one turn."""
        return await self._turns.call(self._home[rollout_id], "step", rollout_id, action)

    async def close(self, rollout_id: str) -> dict[str, Any]:
        """Forget the environment and return its artifact."""
        rank = self._home.pop(rollout_id, None)
        return {} if rank is None else await self._turns.call(rank, "close", rollout_id)

    def abandon(self, rollout_id: str) -> None:
        """Let the worker forget an environment that nobody waits for any more."""
        rank = self._home.pop(rollout_id, None)
        if rank is not None:
            self._group.call_opaque(rank, "close", rollout_id)


class RemoteRewards:
    """All reward workers: the rollouts of a group are spread over them."""

    def __init__(self, group: ActorGroup) -> None:
        self._turns = _Turns(group)

    async def score(self, task: Task, rollouts: list[Rollout]) -> list[Rollout]:
        """Score rollouts, in order; those whose worker died or did not answer are validator failures, never a 0."""
        return list(await asyncio.gather(*(self._score_one(task, rollout) for rollout in rollouts)))

    async def _score_one(self, task: Task, rollout: Rollout) -> Rollout:
        # A validator sees task and artifact alone; tokens and texts stay here.
        asked = replace(rollout, **{name: [] for name in _NOT_SCORED})
        try:
            scored: Rollout = (await self._turns.call(self._turns.next(), "score", task, [asked]))[0]
            return replace(rollout, outcome=scored.outcome, reason=scored.reason, reward=scored.reward)
        except (WorkerError, DeadlineError) as error:
            return replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason=str(error))


class _Turns:
    """Who is asked next: in turn, and one that was lost again and again less and less often."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._number = itertools.count()
        self._losses = dict.fromkeys(group.ranks, 0)
        self._not_before = dict.fromkeys(group.ranks, 0.0)

    def next(self) -> int:
        """Return the rank whose turn it is; of those that all rest, the one that has rested longest."""
        now, size = time.monotonic(), self._group.size
        start = next(self._number)
        order = [self._group.ranks[(start + i) % size] for i in range(size)]
        return next(
            (rank for rank in order if self._not_before[rank] <= now),
            min(order, key=lambda rank: self._not_before[rank]),
        )

    async def call(self, rank: int, method: str, *args: Any) -> Any:
        """Call one worker; one that does not answer in time is ended, and Ray starts it anew."""
        try:
            answer = await self._group.call_one(rank, method, *args)
        except SilentWorkerError:
            self._rest(rank)
            self._group.end(rank)
            raise
        except LostWorkerError:
            self._rest(rank)
            raise
        self._losses[rank] = 0
        return answer

    def _rest(self, rank: int) -> None:
        now = time.monotonic()
        # Many calls are lost with one worker: they count once.
        if now >= self._not_before[rank]:
            self._losses[rank] += 1
            self._not_before[rank] = now + min(2.0 ** (self._losses[rank] - 1), LONGEST_REST_S)
