"""How fast a service is asked: one limiter that all workers share."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

JITTER = 0.25
"""Share by which a wait is lengthened at most, so that clients do not come back together."""
MAX_BACKOFF_S = 60.0


class Limiter:
    """Spaces calls evenly, so that no minute holds more requests or tokens than allowed."""

    def __init__(
        self,
        requests_per_minute: float,
        tokens_per_minute: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """Start with nothing used.

        Args:
            requests_per_minute: Of all workers together.
            tokens_per_minute: Of all workers together.
            clock: Seconds that only go up.
            sleep: Waits so many of them.
            rng: Where the jitter comes from.
        """
        self._request_s = 60 / requests_per_minute
        self._token_s = 60 / tokens_per_minute
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._turn = asyncio.Lock()
        self._requests_free = self._tokens_free = self._paused_until = clock()

    async def acquire(self, tokens: int) -> None:
        """Wait for a turn; who came first goes first.

        Args:
            tokens: What the call may use at most.
        """
        async with self._turn:
            while (wait := self._next() - self._clock()) > 0:
                await self._sleep(wait)
            now = self._clock()
            self._requests_free = now + self._request_s
            self._tokens_free = now + self._token_s * tokens

    def give_back(self, tokens: int) -> None:
        """Return tokens that were acquired and not used; below 0 if more were used."""
        start = self._tokens_free if tokens >= 0 else max(self._tokens_free, self._clock())
        self._tokens_free = start - self._token_s * tokens

    async def back_off(self, attempt: int, delay_s: float, *, is_shared: bool) -> None:
        """Wait after a refusal, at least as long as the server wants.

        Args:
            attempt: How many calls for this request were refused before.
            delay_s: What the server wants; 0 where it does not say.
            is_shared: Whether no other worker may call meanwhile.
        """
        wait = max(delay_s, min(MAX_BACKOFF_S, 2.0**attempt)) * (1 + JITTER * self._rng.random())
        if is_shared:
            self._paused_until = max(self._paused_until, self._clock() + wait)
        await self._sleep(wait)

    def _next(self) -> float:
        return max(self._requests_free, self._tokens_free, self._paused_until)
