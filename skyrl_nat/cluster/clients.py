"""What rollouts see of remote engines, environments and reward workers: plain async faces."""

import asyncio
import itertools
from typing import Any

from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import DeadlineError, EngineError, WorkerError
from skyrl_nat.types import Completion, GenerationRequest, Message, Rollout, Task


class RemoteEngine:
    """One engine actor, for the pool."""

    def __init__(self, group: ActorGroup, rank: int, timeout_s: float) -> None:
        self._group = group
        self._rank = rank
        self._timeout_s = timeout_s

    async def generate(self, request: GenerationRequest) -> Completion:
        """Pass one request on; a dead or silent actor is an engine failure."""
        try:
            return await self._group.call_one(self._rank, "generate", request, timeout_s=self._timeout_s)
        except (WorkerError, DeadlineError) as error:
            raise EngineError(str(error)) from error


class RemoteEnvironments:
    """All environment workers; a rollout stays on the worker that made its environment."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._next = itertools.count()
        self._home: dict[str, int] = {}

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        """Make an environment on the next worker in turn."""
        rank = next(self._next) % self._group.size
        self._home[rollout_id] = rank
        return await self._group.call_one(rank, "create", rollout_id, task)

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        """Play one turn."""
        return await self._group.call_one(self._home[rollout_id], "step", rollout_id, action)

    async def close(self, rollout_id: str) -> dict[str, Any]:
        """Forget the environment and return its artifact."""
        rank = self._home.pop(rollout_id, None)
        return {} if rank is None else await self._group.call_one(rank, "close", rollout_id)


class RemoteRewards:
    """All reward workers: the rollouts of a group are spread over them."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._next = itertools.count()

    async def score(self, task: Task, rollouts: list[Rollout]) -> list[Rollout]:
        """Score rollouts, in order.

        Raises:
            WorkerError: If a worker died; nothing is scored 0 for that.
        """
        calls = [
            self._group.call_one(next(self._next) % self._group.size, "score", task, [rollout]) for rollout in rollouts
        ]
        return [scored[0] for scored in await asyncio.gather(*calls)]
