"""Calls to a group of actors: a deadline on each, a list of who is waited for, and errors that name role and node."""

import asyncio
import copy
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import ray
from ray.actor import ActorHandle
from ray.exceptions import RayError, RayTaskError

from skyrl_nat.cluster.last_words import last_words
from skyrl_nat.cluster.lines import Failed, Line
from skyrl_nat.errors import LostWorkerError, SilentWorkerError, SkyRLNatError, WorkerError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A call that has no answer yet."""

    role: str
    rank: int
    method: str
    since: float
    """`time.monotonic` of the call."""


@contextmanager
def waiting(waits: set[Wait], role: str, rank: int, method: str) -> Iterator[None]:
    """Have a wait among others while the block runs."""
    wait = Wait(role, rank, method, time.monotonic())
    waits.add(wait)
    try:
        yield
    finally:
        waits.discard(wait)


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Await all; the first failure is raised as soon as the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


class ActorGroup:
    """The actors of one role; implements `weight_sync.base.WorkerCalls`.

    Calls go to the actors of `ranks`: one that died may be left out, started anew and taken in again.
    """

    def __init__(
        self, role: str, make: Callable[[int], ActorHandle], ranks: Sequence[int], *, timeout_s: float
    ) -> None:
        """Start all actors.

        Args:
            role: For messages.
            make: Starts the actor of a rank.
            ranks: All of the role.
            timeout_s: Deadline of one call.
        """
        self.role = role
        self.ranks = list(ranks)
        """Who is called, in rank order."""
        self.waits: set[Wait] = set()
        self.identities: dict[int, dict[str, Any]] = {}
        """Process id and node by rank."""
        self.progress: dict[int, int] = {}
        """Micro-batches that each rank had computed when it was last asked for a sign of life."""
        self._deaths: dict[int, asyncio.Task[str]] = {}
        """What is known of each death, by process id, until another process has taken the place."""
        self._make = make
        self._handles = {rank: make(rank) for rank in ranks}
        self._lines: dict[int, Line] = {}
        self._timeout_s = timeout_s

    @property
    def size(self) -> int:
        """Number of actors that are called."""
        return len(self.ranks)

    def snapshot(self) -> Self:
        """Return the group as it is now: who leaves or comes later changes nothing in it."""
        return copy.copy(self)

    async def wait_ready(self, timeout_s: float, ranks: Sequence[int] | None = None) -> list[dict[str, Any]]:
        """Wait until every actor answers; returns their process ids and nodes."""
        waited = self.ranks if ranks is None else ranks
        found = await self._gather("start", {rank: self._control(rank) for rank in waited}, timeout_s)
        self._note(dict(zip(waited, found, strict=True)))
        return found

    async def probe(self, timeout_s: float, method: str | None = None) -> dict[int, BaseException]:
        """Ask every actor for a sign of life.

        Args:
            timeout_s: Time to answer in.
            method: Of the worker, raises if it is not well; None asks the actor only, also while a call is running.

        Returns:
            What each that is not well failed with, by rank: LostWorkerError where it died.
        """
        refs = [
            self._control(rank) if method is None else self._handles[rank].call.remote(method) for rank in self.ranks
        ]
        name = method or "identity"
        calls = [self._one(rank, name, ref, timeout_s) for rank, ref in zip(self.ranks, refs, strict=True)]
        answers = dict(zip(self.ranks, await asyncio.gather(*calls, return_exceptions=True), strict=True))
        ill = {rank: answer for rank, answer in answers.items() if isinstance(answer, BaseException)}
        if method is None:
            self._note({rank: answer for rank, answer in answers.items() if isinstance(answer, dict)})
        return ill

    async def restart(self, rank: int, timeout_s: float) -> None:
        """Kill an actor and start it anew; what it held is lost."""
        ray.kill(self._handles[rank])
        self._handles[rank] = self._make(rank)
        if rank in self._lines:
            self._lines[rank].handle = self._handles[rank]
        await self.wait_ready(timeout_s, [rank])

    def end(self, rank: int) -> None:
        """Kill an actor; Ray starts it anew as often as it was told to, and calls in flight fail."""
        ray.kill(self._handles[rank], no_restart=False)

    def leave_out(self, rank: int) -> None:
        """Call an actor no more."""
        self.ranks = [other for other in self.ranks if other != rank]

    def take_in(self, rank: int) -> None:
        """Call an actor again."""
        self.ranks = sorted({*self.ranks, rank})

    async def rendezvous(self) -> tuple[str, int]:
        """Return address and free port of the first actor."""
        first = self.ranks[0]
        address, port = await self._one(first, "address", self._control(first, "address"), self._timeout_s)
        return str(address), int(port)

    async def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every actor; the first failure is raised at once, without waiting for the others."""
        refs = {rank: self._handles[rank].call.remote(method, *args, **kwargs) for rank in self.ranks}
        return await self._gather(method, refs, self._timeout_s)

    async def call_beside(self, method: str, *args: Any) -> list[Any]:
        """Call a method on every actor that runs beside whatever else it is called for."""
        refs = {rank: self._handles[rank].beside.remote(method, *args) for rank in self.ranks}
        return await self._gather(method, refs, self._timeout_s)

    async def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method on every actor with its own arguments."""
        refs = {
            rank: self._handles[rank].call.remote(method, *args)
            for rank, args in zip(self.ranks, arguments, strict=True)
        }
        return await self._gather(method, refs, self._timeout_s)

    async def call_hosts(self, method: str) -> None:
        """Call a method of every actor's host, also while a call is running."""
        await self._gather(method, {rank: self._control(rank, method) for rank in self.ranks}, self._timeout_s)

    async def call_one(self, rank: int, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Call a method on one actor; a call that nobody waits for any more is cancelled there too."""
        ref = self._handles[rank].call.remote(method, *args)
        try:
            return await self._one(rank, method, ref, timeout_s or self._timeout_s)
        except (asyncio.CancelledError, SilentWorkerError):
            ray.cancel(ref)
            raise

    async def call_often(self, rank: int, method: str, *args: Any, timeout_s: float | None = None) -> Any:
        """Call a method on one actor with an event loop; calls of the same moment travel together (`lines`)."""
        line = self._lines.setdefault(rank, Line(self._handles[rank]))
        return await self._answer(rank, method, line.call(method, args), timeout_s or self._timeout_s)

    async def call_opaque(self, rank: int, method: str, *args: Any) -> Any:
        """Call a method on one actor with blocking methods; its result stays there until others are passed it."""
        is_there, result = cast("tuple[Any, Any]", self._handles[rank].hold.remote(method, *args))
        await self._one(rank, method, is_there, self._timeout_s)
        return result

    def tell(self, rank: int, method: str, *args: Any) -> None:
        """Start a call that nobody waits for."""
        self._handles[rank].call.remote(method, *args)

    async def close(self) -> None:
        """Wait for no answer of `call_often` any more; before Ray ends."""
        await asyncio.gather(*(line.close() for line in self._lines.values()))

    def _note(self, answers: dict[int, dict[str, Any]]) -> None:
        self.progress |= {rank: answer.pop("progress") for rank, answer in answers.items()}
        self.identities |= answers

    def _control(self, rank: int, method: str = "identity") -> Any:
        return self._handles[rank].control.remote(method)

    async def _gather(self, method: str, refs: dict[int, Any], timeout_s: float) -> list[Any]:
        return await together(*(self._one(rank, method, ref, timeout_s) for rank, ref in refs.items()))

    async def _one(self, rank: int, method: str, ref: Any, timeout_s: float) -> Any:
        return await self._answer(rank, method, asyncio.wrap_future(ref.future()), timeout_s)

    async def _answer(self, rank: int, method: str, answer: Awaitable[Any], timeout_s: float) -> Any:
        node = self.identities.get(rank, {}).get("node", "unknown")
        who = f"{self.role} {rank} on node {node}"
        try:
            with self._waiting(rank, method):
                return await asyncio.wait_for(answer, timeout_s)
        except (RayTaskError, Failed) as error:  # first: Ray makes it a TimeoutError too if the worker raised one
            cause = error.cause
            if isinstance(cause, SkyRLNatError):
                raise type(cause)(*cause.args) from error
            text = cause if isinstance(cause, str) else f"{type(cause).__name__}: {cause}"
            raise WorkerError(f"{who} failed in `{method}`: {text}") from error
        except TimeoutError as error:
            raise SilentWorkerError(
                f"{who} must answer `{method}` within {timeout_s:g} s, it did not. Look at its log, or raise the limit"
            ) from error
        except RayError as error:  # not only RayActorError: one ended for its node's memory has a class of its own
            raise LostWorkerError(
                f"{who} must stay alive during `{method}`, it died: {await self._cause_of_death(rank, error)}. "
                "Go on with resume=latest"
            ) from error

    async def _cause_of_death(self, rank: int, error: RayError) -> str:
        """Return what is known; many calls are lost with one worker, and all wait for one look."""
        identity = self.identities.get(rank, {})
        pid = identity.get("pid", -1 - rank)
        if pid not in self._deaths:
            in_place = {one.get("pid") for one in self.identities.values()}
            self._deaths = {one: told for one, told in self._deaths.items() if one in in_place or not told.done()}
            self._deaths[pid] = asyncio.ensure_future(last_words(error, identity))
        return await asyncio.shield(self._deaths[pid])

    def _waiting(self, rank: int, method: str) -> AbstractContextManager[None]:
        return waiting(self.waits, self.role, rank, method)


class BaseModelCalls:
    """A reference without a model of its own: the policy's ranks, whose adapters are off during its calls (LoRA)."""

    def __init__(self, policy: ActorGroup) -> None:
        """Take the policy's ranks."""
        self._policy = policy

    @property
    def size(self) -> int:
        """Number of ranks."""
        return self._policy.size

    @property
    def ranks(self) -> list[int]:
        """Those of the policy."""
        return self._policy.ranks

    async def call_all(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method on every rank; see `call_each`."""
        return await self._policy.call_all(_ON_BASE[method], *args, **kwargs)

    async def call_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of a reference on every rank with its own arguments."""
        return await self._policy.call_each(_ON_BASE[method], arguments)

    async def call_opaque(self, rank: int, method: str, *args: Any) -> Any:
        """Call a method of a reference on one rank; its result stays there."""
        return await self._policy.call_opaque(rank, _ON_BASE[method], *args)


_ON_BASE = {"compute_logprobs": "compute_base_logprobs"}
"""Method of a reference -> what the policy has for it."""
