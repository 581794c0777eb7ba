"""Calls to a group of actors: a deadline on each, and errors that name role, rank and node."""

import asyncio
from collections.abc import Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayActorError, RayTaskError

from skyrl_nat.errors import DeadlineError, SkyRLNatError, WorkerError


class ActorGroup:
    """The actors of one role, in rank order; implements `weight_sync.base.WorkerCalls`."""

    def __init__(self, role: str, handles: Sequence[ActorHandle], *, timeout_s: float) -> None:
        """Wrap started actors.

        Args:
            role: For messages.
            handles: In rank order.
            timeout_s: Deadline of one call.
        """
        self.role = role
        self.handles = list(handles)
        self._timeout_s = timeout_s
        self._nodes: dict[int, str] = {}

    @property
    def size(self) -> int:
        """Number of actors."""
        return len(self.handles)

    async def wait_ready(self, timeout_s: float) -> list[dict[str, Any]]:
        """Wait until every actor answers; returns their process ids and nodes."""
        refs = [handle.control.remote("identity") for handle in self.handles]
        identities = await self._gather("start", refs, timeout_s)
        self._nodes = {rank: str(identity["node"]) for rank, identity in enumerate(identities)}
        return identities

    async def rendezvous(self) -> tuple[str, int]:
        """Return address and free port of rank 0."""
        address, port = await self._one(0, "address", self.handles[0].control.remote("address"), self._timeout_s)
        return str(address), int(port)

    async def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every actor; the first failure is raised at once, without waiting for the others."""
        refs = [handle.call.remote(method, *args, **kwargs) for handle in self.handles]
        return await self._gather(method, refs, self._timeout_s)

    async def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method on every actor with its own arguments."""
        refs = [handle.call.remote(method, *args) for handle, args in zip(self.handles, arguments, strict=True)]
        return await self._gather(method, refs, self._timeout_s)

    async def call_one(self, rank: int, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Call a method on one actor; a call that nobody waits for any more is cancelled there too."""
        ref = self.handles[rank].call.remote(method, *args)
        try:
            return await self._one(rank, method, ref, timeout_s or self._timeout_s)
        except (asyncio.CancelledError, DeadlineError):
            ray.cancel(ref)
            raise

    def call_opaque(self, rank: int, method: str, *args: Any) -> Any:
        """Start a call and return its reference, to be passed on to other actors without coming here."""
        return self.handles[rank].call.remote(method, *args)

    def kill(self) -> None:
        """End all actors at once."""
        for handle in self.handles:
            ray.kill(handle)

    async def _gather(self, method: str, refs: Sequence[Any], timeout_s: float) -> list[Any]:
        calls = [asyncio.ensure_future(self._one(rank, method, ref, timeout_s)) for rank, ref in enumerate(refs)]
        try:
            return list(await asyncio.gather(*calls))
        except BaseException:
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            raise

    async def _one(self, rank: int, method: str, ref: Any, timeout_s: float) -> Any:
        who = f"{self.role} {rank} on node {self._nodes.get(rank, 'unknown')}"
        try:
            return await asyncio.wait_for(asyncio.wrap_future(ref.future()), timeout_s)
        except TimeoutError as error:
            raise DeadlineError(
                f"{who} must answer `{method}` within {timeout_s:g} s, it did not. Look at its log, or raise the limit"
            ) from error
        except RayActorError as error:
            raise WorkerError(
                f"{who} must stay alive during `{method}`, it died: {_first_line(error)}. Go on with resume=latest"
            ) from error
        except RayTaskError as error:
            cause = error.cause
            if isinstance(cause, SkyRLNatError):
                raise type(cause)(*cause.args) from error
            raise WorkerError(f"{who} failed in `{method}`: {type(cause).__name__}: {cause}") from error


class BaseModelCalls:
    """A reference without a model of its own: the policy's ranks, whose adapters are off during its calls (LoRA)."""

    def __init__(self, policy: ActorGroup) -> None:
        """Take the policy's ranks."""
        self._policy = policy

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._policy.size

    async def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every rank; see `call_each`."""
        return await self._policy.call_all(_ON_BASE[method], *args, **kwargs)

    async def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of a reference on every rank with its own arguments."""
        return await self._policy.call_each(_ON_BASE[method], arguments)

    def call_opaque(self, rank: int, method: str, *args: Any) -> Any:
        """Start a call and return its reference."""
        return self._policy.call_opaque(rank, _ON_BASE[method], *args)


_ON_BASE = {"compute_logprobs": "compute_base_logprobs"}
"""Method of a reference -> what the policy has for it."""


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
