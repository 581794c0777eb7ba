"""The loop over time without a model: rollouts of uneven lengths, verdicts, a trainer, a staleness bound, failures.

Engines are one pool: with b of them busy evenly, every rollout in it gains one token in the time of a decoding step.
That is processor sharing, so that the next rollout to end is known from the tokens that all have gained.
"""

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field

from skyrl_nat.planning.roofline import DecodeStep


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopShape:
    """What is simulated."""

    tasks_per_step: int
    """P."""
    rollouts_per_task: int
    """G."""
    staleness: int
    """S: before batch b is trained, only groups of batches up to b + S may start."""
    is_colocated: bool
    """Whether engines stand still while the policy trains."""
    num_engines: float
    num_sequences: int
    """That one engine decodes at once."""
    decode: DecodeStep
    mean_tokens: float
    longest_tokens: float
    spread: float
    """Of the lognormal lengths; 0 makes all alike."""
    turn_s: float = 0.0
    """Seconds of a rollout outside the engine before its verdict: prefill and replies."""
    num_judges: int = 1
    """Verdicts at once."""
    verdict_s: float = 0.0
    train_s: float
    push_s: float


@dataclass(slots=True)
class LoopResult:
    """What came out."""

    step_s: list[float] = field(default_factory=list[float])
    """Of every step."""
    staleness: list[int] = field(default_factory=list[int])
    """Of the oldest token of every trained batch, in batches."""
    waited_s: list[float] = field(default_factory=list[float])
    """The trainer's wait for rollouts and verdicts in every step."""

    @property
    def mean_step_s(self) -> float:
        """Without the first step, where there are others: it starts with nothing played ahead."""
        counted = self.step_s[1:] or self.step_s
        return sum(counted) / len(counted)


@dataclass(slots=True)
class _Rollout:
    batch: int
    tokens: float
    version: int = 0
    """Of the policy that sampled its first token."""


class _Loop:
    """State of one simulation; times in seconds since its start."""

    def __init__(self, shape: LoopShape, num_steps: int, seed: int) -> None:
        self.shape, self.num_steps = shape, num_steps
        self.random = random.Random(seed)
        self.now = 0.0
        self.gained = 0.0
        """Tokens that a rollout which was there from the start would have by now."""
        self.running: list[tuple[float, int, _Rollout]] = []
        self.queue: deque[_Rollout] = deque()
        self.events: list[tuple[float, int, _Rollout]] = []
        """Verdicts to come."""
        self.judges = [0.0] * max(1, shape.num_judges)
        self.missing: dict[int, int] = {}
        """Rollouts of a batch without a verdict."""
        self.oldest: dict[int, int] = {}
        self.next_batch = self.trained = 0
        self.engines_until = 0.0
        """Engines stand still until then."""
        self._number = 0

    def admit(self) -> None:
        while self.next_batch <= self.trained + self.shape.staleness and self.next_batch < self.num_steps:
            size = self.shape.tasks_per_step * self.shape.rollouts_per_task
            self.missing[self.next_batch] = size
            self.queue.extend(_Rollout(self.next_batch, self._length()) for _ in range(size))
            self.next_batch += 1
        self._fill()

    def advance(self, until: float) -> None:
        """Play until a moment."""
        while True:
            end = self._next_end()
            verdict = self.events[0][0] if self.events else math.inf
            if min(end, verdict) > until:
                break
            if verdict <= end:
                self._settle(verdict)
                batch = heapq.heappop(self.events)[2].batch
                self.missing[batch] -= 1
            else:
                self._settle(end)
                self._judge(heapq.heappop(self.running)[2])
                self._fill()
        self._settle(until)

    def ready_at(self, batch: int) -> float:
        """Play until a batch is complete and return that moment."""
        while self.missing.get(batch, 1) > 0:
            verdict = self.events[0][0] if self.events else math.inf
            coming = min(self._next_end(), verdict)
            if math.isinf(coming):
                raise AssertionError(f"batch {batch} can never be complete")
            self.advance(coming)
        return self.now

    def stand_still(self, until: float) -> None:
        """Keep engines from playing until a moment; verdicts go on."""
        self.engines_until = max(self.engines_until, until)

    def _fill(self) -> None:
        room = max(1, round(self.shape.num_engines * self.shape.num_sequences)) - len(self.running)
        while self.queue and room > 0:
            rollout = self.queue.popleft()
            rollout.version = self.trained
            self.oldest[rollout.batch] = min(self.oldest.get(rollout.batch, rollout.version), rollout.version)
            self._number += 1
            heapq.heappush(self.running, (self.gained + rollout.tokens, self._number, rollout))
            room -= 1

    def _step_s(self) -> float:
        per_engine = len(self.running) / self.shape.num_engines
        return self.shape.decode.seconds(max(1.0, per_engine))

    def _next_end(self) -> float:
        if not self.running:
            return math.inf
        begin = max(self.now, self.engines_until)
        return begin + max(0.0, self.running[0][0] - self.gained) * self._step_s()

    def _settle(self, moment: float) -> None:
        """Move the clock; what runs gains tokens while engines do not stand still."""
        played = max(0.0, moment - max(self.now, self.engines_until))
        if self.running and played:
            self.gained = min(self.gained + played / self._step_s(), self.running[0][0])
        self.now = max(self.now, moment)

    def _judge(self, rollout: _Rollout) -> None:
        begin = max(self.now + self.shape.turn_s, heapq.heappop(self.judges))
        end = begin + self.shape.verdict_s
        heapq.heappush(self.judges, end)
        self._number += 1
        heapq.heappush(self.events, (end, self._number, rollout))

    def _length(self) -> float:
        shape = self.shape
        drawn = math.exp(self.random.gauss(-(shape.spread**2) / 2, shape.spread)) if shape.spread else 1.0
        return max(1.0, min(shape.longest_tokens, shape.mean_tokens * drawn))


def simulate(shape: LoopShape, *, num_steps: int, seed: int = 0) -> LoopResult:
    """Return what a loop of this shape does.

    Args:
        shape: Of the loop.
        num_steps: To train.
        seed: The same gives the same.
    """
    loop, result = _Loop(shape, num_steps, seed), LoopResult()
    loop.admit()
    end_of_last = 0.0
    while loop.trained < num_steps:
        batch = loop.trained
        begin = loop.now
        ready = loop.ready_at(batch)
        busy = shape.train_s + shape.push_s
        result.waited_s.append(ready - begin)
        result.staleness.append(batch - loop.oldest.get(batch, batch))
        if shape.is_colocated:
            loop.stand_still(ready + busy)
        loop.advance(ready + shape.train_s)
        loop.stand_still(ready + busy)
        loop.trained += 1
        loop.admit()
        loop.advance(ready + busy)
        result.step_s.append(loop.now - end_of_last)
        end_of_last = loop.now
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """How often GPUs fail, and what that costs."""

    hours_per_gpu: float = 50_000.0
    """Mean time between two failures of one GPU: 419 interruptions of 16,384 GPUs in 54 days, Llama 3,
    arXiv:2407.21783, section 3.3.4."""
    repair_s: float = 300.0
    """Until all workers are there again."""
    steps_per_checkpoint: int = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LongRun:
    """What a long run with failures got done."""

    num_failures: int
    num_kept_steps: int
    num_lost_steps: int
    """Trained again: those since the last checkpoint."""
    seconds: float

    @property
    def kept_step_s(self) -> float:
        """Seconds of the run for each step that was kept."""
        return self.seconds / max(1, self.num_kept_steps)


def long_run(loop: LoopResult, failures: Failures, *, num_gpus: int, hours: float, seed: int = 0) -> LongRun:
    """Return what becomes of steps over a long time in which GPUs fail.

    Steps are drawn from those of the simulated loop. A failure ends its step, costs the repair and all steps since the
    last checkpoint, and the step after it plays everything anew, as the first one did.

    Args:
        loop: From `simulate`.
        failures: How often, and what they cost.
        num_gpus: That may fail.
        hours: Of the run.
        seed: The same gives the same.
    """
    drawn = random.Random(seed)
    later, first = loop.step_s[1:] or loop.step_s, loop.step_s[0]
    now, kept, trained, lost, number, is_first = 0.0, 0, 0, 0, 0, True
    mean = failures.hours_per_gpu * 3600 / num_gpus
    next_failure = drawn.expovariate(1 / mean)
    while now < hours * 3600:
        step = first if is_first else drawn.choice(later)
        is_first = now + step > next_failure
        if is_first:
            number, lost = number + 1, lost + trained - kept
            now, trained = next_failure + failures.repair_s, kept
            next_failure = now + drawn.expovariate(1 / mean)
            continue
        now, trained = now + step, trained + 1
        if trained - kept == failures.steps_per_checkpoint:
            kept = trained
    return LongRun(num_failures=number, num_kept_steps=trained, num_lost_steps=lost, seconds=now)
