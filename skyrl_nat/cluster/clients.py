"""What rollouts see of remote engines, environments and reward workers: plain async faces."""

import asyncio
import hashlib
import itertools
import json
import time
from collections import OrderedDict
from dataclasses import replace
from typing import Any

from skyrl_nat.cluster.group import ActorGroup
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import DeadlineError, LostWorkerError, SilentWorkerError, WorkerError
from skyrl_nat.types import Completion, GenerationRequest, Message, Outcome, Rollout, Task

LONGEST_REST_S = 60.0
LONGEST_WAIT_S = 5.0
"""For a worker to have rested, where all others rest too."""
MAX_VERDICTS = 4096
"""Verdicts remembered: those of some batches."""
_NOT_JUDGED = ("token_ids", "loss_mask", "rollout_logprobs", "token_versions", "turns", "prompt", "segment_starts")


class RemoteEngine:
    """One engine actor, for the pool."""

    def __init__(self, group: ActorGroup, rank: int, timeout_s: float) -> None:
        self._group = group
        self._rank = rank
        self._timeout_s = timeout_s

    async def generate(self, request: GenerationRequest) -> Completion:
        """Pass one request on."""
        return await self._group.call_often(self._rank, "generate", request, timeout_s=self._timeout_s)


class RemoteEnvironments:
    """All environment workers; a rollout stays on the worker that made its environment."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._turns = _Turns(group)
        self._home: dict[str, int] = {}
        self._made: dict[str, dict[str, Any]] = {}
        """Artifacts of environments that are done."""

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        """Make an environment on the next worker in turn."""
        rank = await self._turns.next()
        self._home[rollout_id] = rank
        return await self._turns.call(rank, "create", rollout_id, task)

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        """Play one turn."""
        reply = await self._turns.call(self._home[rollout_id], "step", rollout_id, action)
        if reply.artifact is not None:
            self._made[rollout_id] = reply.artifact
        return reply

    async def close(self, rollout_id: str) -> dict[str, Any]:
        """Forget the environment and return its artifact."""
        rank, made = self._home.pop(rollout_id, None), self._made.pop(rollout_id, None)
        if made is not None or rank is None:
            return made or {}
        return await self._turns.call(rank, "close", rollout_id)

    def abandon(self, rollout_id: str) -> None:
        """Let the worker forget an environment that nobody waits for any more."""
        rank, made = self._home.pop(rollout_id, None), self._made.pop(rollout_id, None)
        if rank is not None and made is None:
            self._group.tell(rank, "close", rollout_id)


class RemoteRewards:
    """All reward workers; a rollout goes to the one that has least to do.

    All rollouts of a group are judged with the same seed, so that the same answer gets the same verdict: it is judged
    once.
    """

    def __init__(self, group: ActorGroup) -> None:
        self._turns = _Turns(group)
        self._verdicts: OrderedDict[str, asyncio.Task[Rollout]] = OrderedDict()
        """Answer of a group -> its verdict, which may be under way."""

    async def score(self, task: Task, rollout: Rollout) -> Rollout:
        """Score a rollout; one whose worker died or did not answer is a validator failure, never a 0."""
        if not rollout.outcome.is_trainable:
            return rollout
        key = _answer_key(task, rollout)
        known = self._verdicts.get(key)
        judged = await asyncio.shield(known or self._begin(key, task, rollout))
        if known is not None and judged.reward is None:
            # The other one's worker failed, which says nothing of the answer.
            judged = await self._judge(task, rollout)
        return replace(rollout, outcome=judged.outcome, reason=judged.reason, reward=judged.reward)

    def _begin(self, key: str, task: Task, rollout: Rollout) -> asyncio.Task[Rollout]:
        """Return a verdict under way, in a task of its own: whoever asked first may give up while others wait."""
        running = asyncio.ensure_future(self._judge(task, rollout))
        self._verdicts[key] = running
        while len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)

        def forget_failure(done: asyncio.Task[Rollout]) -> None:
            if done.cancelled() or done.exception() is not None or done.result().reward is None:
                self._verdicts.pop(key, None)

        running.add_done_callback(forget_failure)
        return running

    async def _judge(self, task: Task, rollout: Rollout) -> Rollout:
        try:
            rank = await self._turns.next()
            return await self._turns.call(rank, "score", task, _to_judge(rollout))
        except (WorkerError, DeadlineError) as error:
            return replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason=str(error))


def _answer_key(task: Task, rollout: Rollout) -> str:
    """Return what rollouts share that get the same verdict: group and task, how they ended, and what they made."""
    group = rollout.rollout_id.rpartition("-")[0] or rollout.rollout_id
    judged = [group, task.task_id, rollout.outcome.value, rollout.reason, rollout.artifact]
    return hashlib.sha256(json.dumps(judged, sort_keys=True, default=repr).encode()).hexdigest()


def _to_judge(rollout: Rollout) -> Rollout:
    """Return what a verdict needs: all but tokens and dialogue, which are most of a rollout."""
    return replace(rollout, **{name: [] for name in _NOT_JUDGED})


class _Turns:
    """Who is asked next: in turn who has the fewest calls; one that was lost again and again less and less often."""

    def __init__(self, group: ActorGroup) -> None:
        self._group = group
        self._number = itertools.count()
        self._num_calls = dict.fromkeys(group.ranks, 0)
        """Under way."""
        self._losses = dict.fromkeys(group.ranks, 0)
        self._not_before = dict.fromkeys(group.ranks, 0.0)

    async def next(self) -> int:
        """Return the rank whose turn it is; where all rest, wait a while for the one that has rested longest."""
        now, size = time.monotonic(), self._group.size
        start = next(self._number)
        order = [self._group.ranks[(start + i) % size] for i in range(size)]
        if ready := [rank for rank in order if self._not_before[rank] <= now]:
            return min(ready, key=lambda rank: self._num_calls[rank])
        rank = min(order, key=lambda rank: self._not_before[rank])
        await asyncio.sleep(min(self._not_before[rank] - now, LONGEST_WAIT_S))
        return rank

    async def call(self, rank: int, method: str, *args: Any) -> Any:
        """Call one worker; one that does not answer in time is ended, and Ray starts it anew."""
        self._num_calls[rank] += 1
        try:
            answer = await self._group.call_often(rank, method, *args)
        except SilentWorkerError:
            self._rest(rank)
            self._group.end(rank)
            raise
        except LostWorkerError:
            self._rest(rank)
            raise
        finally:
            self._num_calls[rank] -= 1
        self._losses[rank] = 0
        return answer

    def _rest(self, rank: int) -> None:
        now = time.monotonic()
        # Many calls are lost with one worker: they count once.
        if now >= self._not_before[rank]:
            self._losses[rank] += 1
            self._not_before[rank] = now + min(2.0 ** (self._losses[rank] - 1), LONGEST_REST_S)
