"""The story family with long-tailed lengths: how many tokens a rollout gets is drawn from its place in the stream.

`rollout.harness=lognormal_story:make_harness`; the mean is `LOGNORMAL_MEAN` of the environment. The same rollout of the
same run length has the same limit whatever the layout and the staleness.
"""

import hashlib
import math
import os
import re
from statistics import NormalDist
from typing import Any

import aiohttp
from story_family import prompt

from skyrl_nat.rollouts.harness import HarnessContext
from skyrl_nat.types import Task

MEAN = "LOGNORMAL_MEAN"
SPREAD = 1.0
"""Standard deviation of the logarithm."""
LONGEST = 8
"""The longest rollout, in means."""


def limit_of(index: int, number: int, mean: int) -> int:
    """Return how many tokens rollout `number` of the group at place `index` may have: lognormal, cut at 8 means."""
    digest = hashlib.sha256(f"{index}/{number}".encode()).digest()
    share = (int.from_bytes(digest[:7], "big") + 0.5) / 256**7
    drawn = math.exp(SPREAD * NormalDist().inv_cdf(share) - SPREAD**2 / 2)
    return max(1, round(mean * min(drawn, LONGEST)))


class LognormalHarness:
    """`Harness` that asks once, for as many tokens as the rollout may have."""

    def __init__(self, mean: int, timeout_s: float) -> None:
        """Take the mean in tokens and the deadline of a request."""
        self._mean = mean
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._session: aiohttp.ClientSession | None = None

    async def play(self, *, task: Task, base_url: str, api_key: str, model: str) -> dict[str, Any]:
        """Play one rollout; see `Harness`."""
        found = re.search(r"-(\d+)-(\d+)\.\d+/v1$", base_url)
        if found is None:
            raise ValueError(f"{base_url} must name the rollout, its place in the stream and its number")
        body = {
            "model": model,
            "messages": [{"role": "user", "content": prompt(task.payload["subject"])}],
            "max_tokens": limit_of(int(found[1]), int(found[2]), self._mean),
        }
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=self._timeout)
        headers = {"Authorization": f"Bearer {api_key}"}
        async with self._session.post(f"{base_url}/chat/completions", json=body, headers=headers) as answer:
            answer.raise_for_status()
            text = (await answer.json())["choices"][0]["message"]["content"] or ""
        return {"text": text, "is_done": True}

    def __del__(self) -> None:
        """Leave no open connection behind: there is no call that ends a harness."""
        if self._session is not None and self._session.connector is not None:
            self._session.connector.close()


def make_harness(context: HarnessContext) -> LognormalHarness:
    """Return the harness."""
    return LognormalHarness(int(os.environ[MEAN]), context.rollout.rollout_timeout_s)
