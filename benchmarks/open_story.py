"""Open a run in this process, as the trainer does, for what its metrics do not say."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from story_run import HERE

from skyrl_nat.config.load import load_config
from skyrl_nat.controller.opening import open_run
from skyrl_nat.controller.run import Run


def in_open_run(
    overrides: Sequence[str], use: Callable[[Run], Awaitable[dict[str, Any]]], timeout_s: float
) -> dict[str, Any]:
    """Start a topology, use it, end it.

    Args:
        overrides: All of the run's.
        use: Gets the open run and returns what it found.
        timeout_s: Of everything.
    """
    if str(HERE) not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH", "")]))

    async def bounded() -> dict[str, Any]:
        async with asyncio.timeout(timeout_s), open_run(load_config(list(overrides))) as run:
            return await use(run)

    return asyncio.run(bounded())
