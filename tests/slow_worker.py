"""A worker for an actor: its answers take for ever, and it counts those that nobody waited for."""

import asyncio

from skyrl_nat.types import Completion, GenerationRequest


class SlowWorker:
    """The `generate` of an engine that is never done."""

    def __init__(self) -> None:
        self.num_started = 0
        self.num_cancelled = 0

    async def generate(self, request: GenerationRequest) -> Completion:
        self.num_started += 1
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        raise AssertionError("nobody waits that long")

    async def counts(self) -> tuple[int, int]:
        return self.num_started, self.num_cancelled
