"""Which engine answers which request: sticky per rollout, else the least loaded healthy one."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from skyrl_nat.errors import DeadlineError, EngineError
from skyrl_nat.types import Completion, GenerationRequest

_MAX_REMEMBERED_ROLLOUTS = 8192
"""Far more than play at once; the others are over."""


class Generates(Protocol):
    """What the pool needs of an engine; `Engine` and its remote handles both have it."""

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion."""
        ...


class EnginePool:
    """Spreads requests over engines.

    An engine that raised anything, or did not answer in time, gets no further request until
    `mark_healthy`: whoever restarts it and brings its weights up to date says so, and learns of faults from
    `wait_for_fault`. The failed request is not repeated here, as one bad request could then take every engine along.

    Args:
        engines: The engines, or handles to them.
        request_timeout_s: Deadline of one request, pauses included.
        max_model_len: Context length of all engines; longer prompts are refused without asking one, so
            that they count as the request's fault. None leaves that to the engines.
    """

    def __init__(
        self,
        engines: Sequence[Generates],
        *,
        request_timeout_s: float,
        max_model_len: int | None = None,
    ) -> None:
        self._engines = list(engines)
        self._request_timeout_s = request_timeout_s
        self._max_model_len = max_model_len
        self._loads = [0] * len(self._engines)
        self._faults: dict[int, str] = {}
        self.silent: set[int] = set()
        """Unhealthy engines that did not answer: they may live and yet be of no use."""
        self._engine_of: OrderedDict[str, int] = OrderedDict()
        self._changed = asyncio.Event()
        self._is_held = False
        self.is_kept = False
        """Whether somebody mends engines: requests then wait for one where none is healthy, instead of failing."""

    @property
    def healthy(self) -> list[int]:
        """Indices of the engines that get requests."""
        return [i for i in range(len(self._engines)) if i not in self._faults]

    @property
    def faults(self) -> dict[int, str]:
        """Why each unhealthy engine gets no requests, by index."""
        return dict(self._faults)

    @property
    def loads(self) -> list[int]:
        """Requests in flight on each engine."""
        return list(self._loads)

    def mark_healthy(self, index: int) -> None:
        """Give an engine requests again; its weights must be those of the current version."""
        self._faults.pop(index, None)
        self.silent.discard(index)
        self._signal()

    def mark_unhealthy(self, index: int, cause: str) -> None:
        """Give an engine no more requests until `mark_healthy`."""
        self._faults.setdefault(index, cause)
        self._signal()

    async def wait_for_fault(self) -> dict[int, str]:
        """Return the faults once there are any."""
        while not self._faults:
            await self._changed.wait()
        return self.faults

    def replace(self, index: int, engine: Generates) -> None:
        """Put a new engine in the place of a dead one; it stays unhealthy until `mark_healthy`."""
        self._engines[index] = engine
        self._faults.setdefault(index, "replaced, not yet marked healthy")

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let requests that come in the block wait for its end; those that engines have are left to them."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            self._signal()

    async def generate(self, request: GenerationRequest) -> Completion:
        """Sample one completion on the rollout's engine.

        Raises:
            EngineError: The prompt does not fit, no engine is healthy, or the chosen one failed.
            DeadlineError: The engine did not answer in time.
        """
        self._require_room(request)
        await self._wait_for_engine()
        index = self._choose(request.request_id.split("/", 1)[0])
        engine = self._engines[index]
        self._loads[index] += 1
        try:
            async with asyncio.timeout(self._request_timeout_s):
                return await engine.generate(request)
        except TimeoutError as error:
            self.silent.add(index)
            self._blame(index, engine, f"no answer within {self._request_timeout_s} s")
            raise DeadlineError(
                f"Engine {index} must answer request {request.request_id} within "
                f"{self._request_timeout_s} s, found no answer. Raise engine.request_timeout_s or look "
                "for an engine that stands still."
            ) from error
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            self._blame(index, engine, cause)
            raise EngineError(
                f"Engine {index} must answer request {request.request_id}, found {cause}. "
                "Play the rollout again; the engine gets no requests until it is healthy."
            ) from error
        finally:
            self._loads[index] -= 1

    def _blame(self, index: int, engine: Generates, cause: str) -> None:
        # A late failure of an engine that has been replaced says nothing about its successor.
        if self._engines[index] is engine:
            self.mark_unhealthy(index, cause)

    def _signal(self) -> None:
        """Wake all that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_engine(self) -> None:
        """Wait until nobody holds requests back, and until an engine is healthy, if somebody sees to it."""
        while self._is_held:
            await self._changed.wait()
        try:
            async with asyncio.timeout(self._request_timeout_s):
                while self.is_kept and not self.healthy:
                    await self._changed.wait()
        except TimeoutError as error:
            raise DeadlineError(
                f"One of {len(self._engines)} engines must be healthy within {self._request_timeout_s} s, found "
                f"{self._faults}. Raise engine.request_timeout_s if they take longer to start."
            ) from error

    def _choose(self, rollout_id: str) -> int:
        index = self._engine_of.get(rollout_id)
        if index is None or index in self._faults:
            healthy = self.healthy
            if not healthy:
                raise EngineError(
                    f"At least one of {len(self._engines)} engines must be healthy, found none: "
                    f"{self._faults}. Restart them and push the weights."
                )
            index = min(healthy, key=lambda i: self._loads[i])
            self._engine_of[rollout_id] = index
        self._engine_of.move_to_end(rollout_id)
        if len(self._engine_of) > _MAX_REMEMBERED_ROLLOUTS:
            self._engine_of.popitem(last=False)
        return index

    def _require_room(self, request: GenerationRequest) -> None:
        limit = self._max_model_len
        if limit is not None and len(request.prompt_token_ids) >= limit:
            raise EngineError(
                f"A prompt must have at most {limit - 1} tokens, found {len(request.prompt_token_ids)} in "
                f"request {request.request_id}. Shorten it or raise rollout.max_total_tokens."
            )
