"""How many requests are served at once, how many wait, and what those are told for whom there is no room."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

from skyrl_nat.errors import SkyRLNatError

FIRST_GUESS_S = 30.0
"""How long a request is taken to last before one has ended."""


class BusyError(SkyRLNatError):
    """The queue is full."""

    def __init__(self, message: str, again_s: int) -> None:
        """Say after how many seconds to come again."""
        super().__init__(message)
        self.again_s = again_s


class Admission:
    """A semaphore with a bounded queue."""

    def __init__(self, *, max_running: int, max_waiting: int) -> None:
        """Keep both limits."""
        self._slots = asyncio.Semaphore(max_running)
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._mean_s = FIRST_GUESS_S
        self.num_running = self.num_waiting = self.num_refused = 0

    def require_room(self) -> None:
        """Refuse where no place is free.

        Raises:
            BusyError: As many wait as may.
        """
        if not self._slots.locked() or self.num_waiting < self._max_waiting:
            return
        self.num_refused += 1
        again_s = max(1, round(self._mean_s * (self.num_waiting + 1) / self._max_running))
        raise BusyError(
            f"At most {self._max_running} requests run and {self._max_waiting} wait, all places are taken. Come again "
            f"in {again_s} s",
            again_s,
        )

    @contextlib.asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it.

        Raises:
            BusyError: As many wait as may.
        """
        self.require_room()
        self.num_waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.num_waiting -= 1
        self.num_running += 1
        started = time.monotonic()
        try:
            yield
        finally:
            self._mean_s += 0.2 * (time.monotonic() - started - self._mean_s)
            self.num_running -= 1
            self._slots.release()
