"""Training that outlives its workers: keeper and watchdog beside the loop, new policy ranks, a save at the end."""

import asyncio
import faulthandler
from collections.abc import Coroutine
from typing import Any, TypeVar

from skyrl_nat.controller.loop import train
from skyrl_nat.controller.run import Run
from skyrl_nat.controller.watchdog import Watchdog
from skyrl_nat.errors import (
    LostNodeError,
    LostWorkerError,
    SilentWorkerError,
    SkyRLNatError,
    StalledError,
    WeightSyncError,
    WorkerError,
)

T = TypeVar("T")
_LOOK_S = 0.05


async def train_to_the_end(run: Run) -> None:
    """Train; ranks of policy and reference that are lost are started anew from the newest checkpoint.

    A signal (cancellation) lets the optimizer step in flight end and saves it; a stall saves the last one.

    Raises:
        WorkerError, SilentWorkerError, WeightSyncError: Ranks were lost more often than `recovery` allows without a
            trained step in between.
    """
    num_restarts, reached = 0, run.step
    cause: BaseException | None = None
    while True:
        try:
            if cause is not None:
                run.console.warn(f"policy and reference are started anew from the newest checkpoint: {cause}")
                await run.restart_policy()
                cause = None
            await supervised(run, _train(run))
            await run.saver.finish()
            faulthandler.cancel_dump_traceback_later()
            return
        except (asyncio.CancelledError, StalledError):
            if cause is None:
                await _save_last_step(run)
            raise
        except (WorkerError, SilentWorkerError, WeightSyncError) as error:
            num_restarts = 0 if run.step > reached else num_restarts
            reached = max(reached, run.step)
            cause = await _lost_rank(run, error)
            if cause is None:
                raise
            if num_restarts >= run.config.recovery.max_policy_restarts:
                raise cause from None
            # Where a node was lost, the restart itself may fail until Ray knows of that.
            num_restarts += 1


async def _lost_rank(run: Run, error: SkyRLNatError) -> BaseException | None:
    """Return how a rank of policy or reference was lost, if one was: pushes and its peers fail too then, even first."""
    if isinstance(error, (LostWorkerError, SilentWorkerError)):
        return error
    if isinstance(error, LostNodeError):
        return None
    for group in run.topology.groups:
        if group.role in ("policy", "reference"):
            ill = await group.probe(run.config.recovery.probe_timeout_s)
            if ill:
                return next(iter(ill.values()))
    return None


async def supervised(run: Run, work: Coroutine[Any, Any, T]) -> T:
    """Await work beside keeper and watchdog; whichever fails first ends all three."""
    working = asyncio.ensure_future(work)
    others = [asyncio.ensure_future(run.keeper.keep()), asyncio.ensure_future(Watchdog(run).watch())]
    try:
        done, _ = await asyncio.wait([working, *others], return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            if task in done:
                task.result()
        return await working
    except asyncio.CancelledError:
        await _let_step_end(run, working)
        raise
    except StalledError:
        run.grace.begin()
        raise
    finally:
        ended = asyncio.gather(working, *others, return_exceptions=True)
        for task in [working, *others]:
            task.cancel()
        await asyncio.wait([ended], timeout=run.grace.closing_s)


async def _let_step_end(run: Run, working: asyncio.Future[Any]) -> None:
    """Wait until the policy is that of a whole step, and no checkpoint is half written."""
    run.grace.begin()
    if run.devices.is_in_step:
        run.console.warn(f"stopping: step {run.step + 1} is trained to its end, then saved")
    while run.devices.is_in_step and not working.done() and run.grace.left_s:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)


async def _train(run: Run) -> None:
    """Train, and wait for the checkpoint that may still be written."""
    await train(run)
    await run.saver.settle()


async def _save_last_step(run: Run) -> None:
    run.grace.begin()
    end = run.saver.settle if run.devices.is_in_step else run.save_last_step
    try:
        await asyncio.wait_for(end(), run.grace.left_s)
    except SkyRLNatError as error:
        run.console.warn(f"step {run.step} could not be saved: {error}")
    except TimeoutError:
        run.console.warn(f"step {run.step} could not be saved within recovery.grace_s")
