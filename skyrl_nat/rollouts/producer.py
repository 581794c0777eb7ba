"""Groups ahead of the trainer, as far as the staleness bound allows, handed over in stream order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.errors import StoppedError
from skyrl_nat.rollouts.quarantine import Quarantine
from skyrl_nat.types import Outcome, RolloutGroup, Task

PlayFn = Callable[[Task, int], Awaitable[RolloutGroup]]
MAX_FLAT_BATCHES = 10
"""A batch is filled up with flat groups once it has left out this many times its own size."""
LONGEST_REASON = 1000
LOST = (Outcome.INFRASTRUCTURE_FAILURE, Outcome.VALIDATOR_FAILURE)
"""Outcomes that put a task under suspicion: those that the policy could not have helped."""


@dataclass(slots=True)
class ProducerCounts:
    """What was left out since the last batch, for the step's metrics."""

    dropped_groups: int = 0
    stale_groups: int = 0
    flat_groups: int = 0
    """Left out because all their rewards are equal (`algorithm.dynamic_sampling=filter`)."""
    outcomes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    """How much is played and how far ahead."""

    tasks_per_step: int
    """P."""
    staleness: int
    """S."""
    min_valid_rollouts: int
    """Groups with fewer are dropped."""
    max_dropped_groups: int
    """In a row, before the run stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerState:
    """What a checkpoint holds of a producer after a trained batch."""

    position: int
    """Stream index of the first task that no trained batch has reached."""
    finished: list[RolloutGroup]
    """Groups from there on that are ready to be handed over, in stream order."""
    unfinished: list[int]
    """Stream indices of those that are being played, and will be played again."""
    quarantine: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of `Quarantine.state`."""


class GroupProducer:
    """Plays groups in the background.

    Staleness as a number: before batch b has been trained, only groups of batches up to b + S may start, and whoever
    pushes its weights holds requests back meanwhile. With S = 0 that is exactly the current batch, so every token is
    sampled by the policy that will be trained on it. Groups are handed over in the order in which they were started:
    slow groups delay a batch but are never displaced by quick ones, so batches are not biased towards short rollouts.
    """

    def __init__(
        self,
        play: PlayFn,
        stream: PromptStream,
        limits: ProducerLimits,
        *,
        has_signal: Callable[[RolloutGroup], bool] = lambda group: True,
        quarantine: Quarantine | None = None,
    ) -> None:
        """Take what plays one group and the stream that it draws tasks from.

        Args:
            play: Plays and scores one group.
            stream: Where tasks come from.
            limits: How much and how far ahead.
            has_signal: Groups without are left out and counted as flat; of a batch of which P * `MAX_FLAT_BATCHES`
                are, the rest is taken as it comes.
            quarantine: Tasks that fail every time; default: never any.
        """
        self._play = play
        self._stream = stream
        self._limits = limits
        self._has_signal = has_signal
        self.quarantine = Quarantine(0) if quarantine is None else quarantine
        """Tasks in it are not played, and groups of them that were under way are left out."""
        self._running: deque[tuple[int, asyncio.Task[RolloutGroup]]] = deque()
        self._restored: dict[int, RolloutGroup] = {}
        self._taken: list[RolloutGroup] = []
        """What `take` has looked at since the last trained batch: of a batch that is never trained nothing is lost."""
        self._settled = self.quarantine.state()
        """As of the last trained batch."""
        self._consumed = 0
        self._version = 0
        self._trained_batches = 0
        self._reached = self.next_position = stream.position
        """Stream index of the first task that no batch has reached, and no trained one, which goes into checkpoints."""
        self.counts = ProducerCounts()
        self._is_closed = False

    def advance(self, version: int) -> None:
        """Say that one more batch was trained, and that the next request is answered with `version`."""
        self._trained_batches += 1
        self._version = version
        self.next_position, self._settled, self._taken = self._reached, self.quarantine.state(), []
        self._admit()

    def start_at(self, version: int) -> None:
        """Say which version the engines serve before the first batch, and start playing."""
        self._version = version
        self.quarantine.write()
        self._admit()

    async def take(self) -> list[RolloutGroup]:
        """Return the next P usable groups in stream order.

        Raises:
            StoppedError: After too many groups in a row without a usable result, or with no task left to play.
        """
        self.counts = ProducerCounts()
        batch: list[RolloutGroup] = []
        dropped_in_a_row = 0
        while len(batch) < self._limits.tasks_per_step:
            self._admit()
            group = await self._first_group()
            self._reached = self._running.popleft()[0] + 1
            if group is None or group.task.task_id in self.quarantine:
                continue
            self._taken.append(group)
            self._count(group)
            if self._is_usable(group):
                dropped_in_a_row = 0
                if not self._is_left_out(group):
                    batch.append(group)
                    self._consumed += 1
                continue
            dropped_in_a_row += 1
            if dropped_in_a_row >= self._limits.max_dropped_groups:
                why = _reasons(group)[:LONGEST_REASON] or "stale weights"
                raise StoppedError(
                    f"At least one in {self._limits.max_dropped_groups} groups must be usable, none was; the last one, "
                    f"task {group.task.task_id}, failed with: {why}. Mend the cause and go on with resume=latest"
                )
        return batch

    async def _first_group(self) -> RolloutGroup | None:
        """Wait for the first group in stream order and return it, None if it was given up."""
        if not self._running:
            raise StoppedError(
                f"At least one task must be playable, but groups of all {len(self.quarantine)} were lost "
                f"{self.quarantine.after} times in a row (quarantine.jsonl). Mend the cause, then play them again with "
                "rollout.quarantine_after=0 resume=latest"
            )
        index, running = self._running[0]
        await asyncio.wait([running])
        if not running.cancelled():
            return running.result()
        self.counts.dropped_groups += 1
        self.quarantine.fail(self._stream.task_at(index).task_id, "given up after a stall", self._version + 1)
        return None

    @property
    def num_ready(self) -> int:
        """Groups that are over and wait to be taken."""
        return sum(running.done() for _, running in list(self._running))

    @property
    def num_playing(self) -> int:
        """Groups that are not over."""
        return sum(not running.done() for _, running in list(self._running))

    def drop_oldest(self) -> None:
        """Give the oldest unfinished group up; another is played in its place, and it counts as dropped."""
        if self._running:
            self._running[0][1].cancel()

    def state(self) -> ProducerState:
        """Return what must not be lost after the last trained batch."""
        finished = {index: running.result() for index, running in self._running if _is_finished(running)}
        finished |= self._restored | {group.index: group for group in self._taken}
        return ProducerState(
            position=self.next_position,
            finished=[finished[index] for index in sorted(finished)],
            unfinished=[index for index, _ in self._running if index not in finished],
            quarantine=self._settled,
        )

    def restore(self, finished: Sequence[RolloutGroup], quarantine: Mapping[str, Any]) -> None:
        """Take over from an earlier producer over the same stream; tasks of finished groups are not played again.

        A group that is too stale once its place in the stream comes is played like any other.

        Args:
            finished: Of `state`, at or after the stream's position.
            quarantine: Of `state`.
        """
        self._restored = {group.index: group for group in finished}
        self.quarantine.restore(quarantine)
        self._settled = self.quarantine.state()

    async def close(self) -> None:
        """Cancel what is in flight."""
        self._is_closed = True
        tasks = [task for _, task in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._running.clear()

    def _admit(self) -> None:
        limit = (self._trained_batches + 1 + self._limits.staleness) * self._limits.tasks_per_step
        # What is known to be flat makes room at once, before its turn to be taken comes.
        flat = sum(self._is_known_flat(running) for _, running in self._running)
        num_skipped = 0
        # Any two epochs long stretch of the stream holds every task.
        while self._consumed + len(self._running) - flat < limit and num_skipped < 2 * len(self._stream):
            index, task = self._stream.next()
            if task.task_id in self.quarantine:
                num_skipped += 1
                continue
            running = asyncio.create_task(self._play_one(task, index))
            running.add_done_callback(self._on_done)
            self._running.append((index, running))

    def _on_done(self, running: asyncio.Task[RolloutGroup]) -> None:
        if not self._is_closed and self._is_known_flat(running):
            self._admit()

    def _is_known_flat(self, running: asyncio.Task[RolloutGroup]) -> bool:
        """Return whether a group is finished and will be left out as flat."""
        return _is_finished(running) and self._is_patient and not self._has_signal(running.result())

    @property
    def _is_patient(self) -> bool:
        """False once a batch has left out so many flat groups that it takes what comes."""
        return self.counts.flat_groups < MAX_FLAT_BATCHES * self._limits.tasks_per_step

    async def _play_one(self, task: Task, index: int) -> RolloutGroup:
        group = self._restored.pop(index, None)
        # Another training set, or a lower bound than before, makes it of no use.
        if group is not None and group.task.task_id == task.task_id and not self._is_stale(group):
            return replace(group, task=task)
        return await self._play(task, index)

    def _is_stale(self, group: RolloutGroup) -> bool:
        oldest = group.oldest_version
        return oldest >= 0 and self._version - oldest > self._limits.staleness

    def _is_usable(self, group: RolloutGroup) -> bool:
        if len(group.valid_rollouts) < self._limits.min_valid_rollouts:
            self.counts.dropped_groups += 1
            if any(rollout.outcome in LOST for rollout in group.rollouts):
                self.quarantine.fail(group.task.task_id, _reasons(group), self._version + 1)
            return False
        self.quarantine.clear(group.task.task_id)
        if self._is_stale(group):
            self.counts.stale_groups += 1
            return False
        return True

    def _is_left_out(self, group: RolloutGroup) -> bool:
        """Return whether a usable group is left out because it teaches nothing."""
        is_flat = self._is_patient and not self._has_signal(group)
        self.counts.flat_groups += is_flat
        return is_flat

    def _count(self, group: RolloutGroup) -> None:
        for outcome in Outcome:
            number = sum(rollout.outcome is outcome for rollout in group.rollouts)
            if number:
                self.counts.outcomes[outcome] = self.counts.outcomes.get(outcome, 0) + number


def _is_finished(running: asyncio.Task[RolloutGroup]) -> bool:
    """Return whether a group was played to its end."""
    return running.done() and not running.cancelled() and running.exception() is None


def _reasons(group: RolloutGroup) -> str:
    return "; ".join(sorted({r.reason for r in group.rollouts if r.reason and not r.outcome.is_trainable}))
