"""A worker for an actor: answers at once, late, with an error, or not at all."""

import asyncio
import os
import time
from typing import Any

from skyrl_nat.errors import DeadlineError


class EchoWorker:
    """Counts the calls that nobody waited for."""

    def __init__(self) -> None:
        self.num_cancelled = 0

    async def echo(self, value: Any) -> Any:
        return value

    async def fail(self) -> None:
        raise ValueError("not today")

    async def fail_by_name(self) -> None:
        raise DeadlineError("the sandbox must answer, it did not")

    async def sleep(self) -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise

    async def hoard(self, mib: int) -> None:
        """Take memory bit by bit and keep it."""
        taken = []
        for _ in range(mib // 64):
            taken.append(b"x" * (64 * 2**20))
            await asyncio.sleep(0.02)
        await self.sleep()

    async def count(self) -> int:
        return self.num_cancelled

    async def environment(self) -> dict[str, str]:
        return dict(os.environ)


class BlockingWorker:
    """Has blocking methods, as the policy has."""

    def slow(self, seconds: float) -> str:
        time.sleep(seconds)
        return "made"

    def fail(self) -> None:
        raise ValueError("not today")
