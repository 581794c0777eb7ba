"""When an engine computes, and how many tokens: requests in flight, pauses left out, updates and moved memory."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from skyrl_nat.monitoring.usage import Activity, ActivityLog, Usage
from skyrl_nat.types import Completion, GenerationRequest

T = TypeVar("T")
_NOTHING = Usage(intervals=[])


class BusyClock(ActivityLog):
    """The log of one engine; one event loop calls it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """Start idle; `now` is replaced in tests."""
        super().__init__(now)
        self._is_paused = False
        self._num_in_flight = 0
        self._since = now()
        """When the number in flight or the pause last changed."""
        self._counts = _NOTHING

    @property
    def is_paused(self) -> bool:
        """Whether requests stand still."""
        return self._is_paused

    @is_paused.setter
    def is_paused(self, value: bool) -> None:
        self._advance()
        self._is_paused = value

    async def follow(self, request: GenerationRequest, answer: Awaitable[Completion]) -> Completion:
        """Await an answer; the engine is busy until it comes, or the request fails."""
        self._advance()
        self._num_in_flight += 1
        try:
            completion = await answer
        finally:
            self._advance()
            self._num_in_flight -= 1
        num_prompt, num = len(request.prompt_token_ids), len(completion.token_ids)
        # The first token comes after the prompt, the last one after all the others.
        self._count(
            num_prompt_tokens=num_prompt,
            num_completion_tokens=num,
            num_context_tokens=num * num_prompt + num * (num - 1) // 2,
        )
        return completion

    async def moving_memory(self, move: Awaitable[T]) -> T:
        """Await a call that gives memory back or takes it again."""
        with self.during(Activity.OFFLOAD):
            return await move

    def take(self) -> Usage:
        """Return what was noted since the last call; a stretch that is not over is cut here."""
        self._advance()
        counts, self._counts = self._counts, _NOTHING
        return replace(counts, intervals=super().take().intervals)

    def _advance(self) -> None:
        now = self._now()
        if self._num_in_flight and not self._is_paused:
            self._note(Activity.ROLLOUT, self._since, now)
            self._count(request_s=self._num_in_flight * (now - self._since))
        self._since = now

    def _count(self, **more: float) -> None:
        self._counts = replace(self._counts, **{name: getattr(self._counts, name) + n for name, n in more.items()})
