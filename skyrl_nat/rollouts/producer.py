"""Groups ahead of the trainer, as far as the staleness bound allows, handed over in stream order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.errors import StoppedError
from skyrl_nat.types import Outcome, RolloutGroup, Task

PlayFn = Callable[[Task, int], Awaitable[RolloutGroup]]


@dataclass(slots=True)
class ProducerCounts:
    """What was left out since the last batch, for the step's metrics."""

    dropped_groups: int = 0
    stale_groups: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)


class GroupProducer:
    """Plays groups in the background.

    Staleness as a number: before batch b has been trained and its weights pushed, only groups of batches up
    to b + S may start. With S = 0 that is exactly the current batch, so every token is sampled by the
    policy that will be trained on it. Groups are handed over in the order in which they were started:
    slow groups delay a batch but are never displaced by quick ones, so batches are not biased towards short
    rollouts.
    """

    def __init__(
        self,
        play: PlayFn,
        stream: PromptStream,
        *,
        tasks_per_step: int,
        staleness: int,
        min_valid_rollouts: int,
        max_dropped_groups: int,
    ) -> None:
        """Take what plays one group and the stream that it draws tasks from."""
        self._play = play
        self._stream = stream
        self._tasks_per_step = tasks_per_step
        self._staleness = staleness
        self._min_valid = min_valid_rollouts
        self._max_dropped = max_dropped_groups
        self._running: deque[asyncio.Task[RolloutGroup]] = deque()
        self._consumed = 0
        self._version = 0
        self._trained_batches = 0
        self.next_position = stream.position
        """Stream index of the first task that no handed-over batch has reached; goes into checkpoints."""
        self.counts = ProducerCounts()

    def advance(self, version: int) -> None:
        """Say that one more batch was trained and that the engines now serve `version`."""
        self._trained_batches += 1
        self._version = version
        self._admit()

    def start_at(self, version: int) -> None:
        """Say which version the engines serve before the first batch, and start playing."""
        self._version = version
        self._admit()

    async def take(self) -> list[RolloutGroup]:
        """Return the next P usable groups in stream order.

        Raises:
            StoppedError: After too many groups in a row without a usable result.
        """
        self.counts = ProducerCounts()
        batch: list[RolloutGroup] = []
        dropped_in_a_row = 0
        while len(batch) < self._tasks_per_step:
            self._admit()
            group = await self._running[0]
            self._running.popleft()
            self.next_position = group.index + 1
            self._count(group)
            if self._is_usable(group):
                batch.append(group)
                self._consumed += 1
                dropped_in_a_row = 0
                continue
            dropped_in_a_row += 1
            if dropped_in_a_row >= self._max_dropped:
                reasons = sorted({r.reason for r in group.rollouts if r.reason and not r.outcome.is_trainable})
                raise StoppedError(
                    f"At least one in {self._max_dropped} groups must be usable, none was; the last one, task "
                    f"{group.task.task_id}, failed with: {'; '.join(reasons)[:500] or 'stale weights'}. Mend the cause "
                    "and go on with resume=latest"
                )
        return batch

    async def close(self) -> None:
        """Cancel what is in flight."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    def _admit(self) -> None:
        limit = (self._trained_batches + 1 + self._staleness) * self._tasks_per_step
        while self._consumed + len(self._running) < limit:
            index, task = self._stream.next()
            self._running.append(asyncio.create_task(self._play_one(task, index)))

    async def _play_one(self, task: Task, index: int) -> RolloutGroup:
        return await self._play(task, index)

    def _is_usable(self, group: RolloutGroup) -> bool:
        if len(group.valid_rollouts) < self._min_valid:
            self.counts.dropped_groups += 1
            return False
        oldest = group.oldest_version
        if oldest >= 0 and self._version - oldest > self._staleness:
            self.counts.stale_groups += 1
            return False
        return True

    def _count(self, group: RolloutGroup) -> None:
        for outcome in Outcome:
            number = sum(rollout.outcome is outcome for rollout in group.rollouts)
            if number:
                self.counts.outcomes[outcome] = self.counts.outcomes.get(outcome, 0) + number
