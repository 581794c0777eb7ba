"""Checkpoints to a mirror beside training, which neither a slow nor a broken mirror ever stops."""

import asyncio
import contextlib
import functools
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from skyrl_nat.checkpoint.manager import CheckpointManager, step_of
from skyrl_nat.checkpoint.mirror import Mirror

if TYPE_CHECKING:
    from skyrl_nat.controller.run import Run

T = TypeVar("T")


class Copier:
    """Copies the newest checkpoint, one at a time: one that is no longer the newest when its turn comes is left out."""

    def __init__(self, run: "Run", checkpoints: CheckpointManager, mirror: Mirror) -> None:
        """Copy nothing yet.

        Args:
            run: Whose console and metrics are told.
            checkpoints: What is copied; one that is being copied is not deleted.
            mirror: Where to.
        """
        self._run = run
        self._checkpoints = checkpoints
        self._mirror = mirror
        self._next: Path | None = None
        self._working: asyncio.Task[None] | None = None
        self._num_failures = 0

    def copy(self, checkpoint: Path) -> None:
        """Copy a checkpoint as soon as the one before is done."""
        self._next = checkpoint
        self._checkpoints.in_use.add(step_of(checkpoint))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())

    async def finish(self, timeout_s: float | None) -> None:
        """Wait for what is being copied, but not for ever; who is cancelled while it waits may wait again."""
        if self._working is None:
            return
        try:
            await asyncio.wait_for(asyncio.shield(self._working), timeout_s)
        except TimeoutError:
            self._working.cancel()
            self._run.console.warn(f"the newest checkpoint was not copied to {self._mirror.url} in time")

    async def leave_behind(self, after: int, timeout_s: float) -> None:
        """Make copies of later steps count no more: they are of a branch that the run goes back from."""
        try:
            steps = await asyncio.wait_for(in_thread(functools.partial(self._mirror.set_aside, after)), timeout_s)
        except Exception as error:  # noqa: BLE001 - whatever a file system of fsspec raises
            self._run.console.warn(
                f"{self._mirror.url} may hold checkpoints of steps that are left behind: {error!r:.300}"
            )
            return
        if steps:
            self._run.console.warn(
                f"steps {', '.join(map(str, steps))} in {self._mirror.url}: left behind by this start"
            )

    async def _work(self) -> None:
        while self._next is not None:
            checkpoint, self._next = self._next, None
            step, started = step_of(checkpoint), time.monotonic()
            try:
                await in_thread(functools.partial(self._copy_and_tidy, checkpoint))
            except Exception as error:  # noqa: BLE001 - whatever a file system of fsspec raises
                self._num_failures += 1
                self._run.console.warn(
                    f"step {step} could not be copied to {self._mirror.url}: {error!r:.300}. Training goes on, and "
                    "the next checkpoint is tried"
                )
            self._checkpoints.in_use -= {other for other in self._checkpoints.in_use if other <= step}
            figures = {"time/mirror_s": time.monotonic() - started}
            self._run.tracker.log(step, figures | {"checkpoint/failed_copies/count": float(self._num_failures)})

    def _copy_and_tidy(self, checkpoint: Path) -> None:
        self._mirror.push(checkpoint)
        kept = self._checkpoints.kept(self._mirror.steps(), dict(self._run.rewards))
        self._mirror.keep(kept | {step_of(checkpoint)})


async def in_thread(call: Callable[[], T]) -> T:
    """Return what a call returns; it runs in a thread that keeps no process alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(act: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # nobody waits any more, the loop is closed
            loop.call_soon_threadsafe(lambda: None if done.done() else act())

    def run() -> None:
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            failure = error
            settle(lambda: done.set_exception(failure))
        else:
            settle(lambda: done.set_result(result))

    threading.Thread(target=run, daemon=True, name="left-behind").start()
    return await done
