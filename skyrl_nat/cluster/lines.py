"""Calls to one actor that travel together: what is asked in the same moment, and what is answered in the same moment.

A call by itself costs some tenths of a millisecond of the controller's time. Hundreds of rollouts that end with the
same step of an engine would wait for that.
"""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import nullcontext
from typing import Any

from ray.actor import ActorHandle

from skyrl_nat.errors import SkyRLNatError, WorkerError
from skyrl_nat.monitoring import spans

Request = tuple[int, str, tuple[Any, ...], str | None]
"""Number, method, arguments, and the span that the caller is in (`spans.carried`)."""
Answer = tuple[int, bool, Any]
"""Number, whether it succeeded, and the result or what was raised: one of our errors, or the text of another."""
GATHER_S = 0.002
"""Answers wait so long for others."""


class Failed(Exception):  # noqa: N818 - names what happened, the error is its cause
    """A method of the worker raised."""

    def __init__(self, cause: SkyRLNatError | str) -> None:
        """Take what it raised: one of our errors, or the text of another."""
        super().__init__(str(cause))
        self.cause = cause


class Line:
    """The controller's end."""

    def __init__(self, handle: ActorHandle) -> None:
        """Take the actor, whose host has an `Exchange`."""
        self.handle = handle
        """May change, when the actor is started anew."""
        self._numbers = itertools.count()
        self._unsent: list[tuple[Request, asyncio.Future[Any]]] = []
        self._dropped: list[int] = []
        self._readers: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """Call a method; one that is cancelled here is cancelled there too.

        Raises:
            Failed: It raised.
            RayError: The actor died.
        """
        number = next(self._numbers)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._send_soon()
        self._unsent.append(((number, method, args, spans.carried()), answer))
        try:
            return await answer
        except asyncio.CancelledError:
            self._send_soon()
            self._dropped.append(number)
            raise

    async def close(self) -> None:
        """Read nothing more; calls that are not answered fail.

        Before Ray ends: whoever reads a stream after that ends the process, with code 1 and without a word.
        """
        self._is_closed = True
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)

    def _send_soon(self) -> None:
        if not self._unsent and not self._dropped:
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        (unsent, self._unsent), (dropped, self._dropped) = (self._unsent, []), (self._dropped, [])
        answers = {request[0]: answer for request, answer in unsent if not answer.done()}
        if self._is_closed:
            _fail(answers, _closed())
            return
        if answers:
            stream = self.handle.answer.remote([request for request, _ in unsent if request[0] in answers])
            reader = asyncio.ensure_future(_read(stream, answers))
            self._readers.add(reader)
            reader.add_done_callback(self._readers.discard)
        if dropped:
            self.handle.drop.remote(dropped)


async def _read(stream: Any, answers: dict[int, asyncio.Future[Any]]) -> None:
    """Hand answers over as they come; whatever ends the stream early fails those that are left."""
    error: Exception = WorkerError("an actor must answer every call before it ends a stream, it did not")
    try:
        async for ref in stream:
            for number, is_ok, value in await ref:
                _settle(answers.pop(number), None if is_ok else Failed(value), value)
    except asyncio.CancelledError:
        error = _closed()
        raise
    except Exception as found:  # noqa: BLE001 - raised where the answers are awaited
        error = found
    finally:
        _fail(answers, error)


def _closed() -> WorkerError:
    return WorkerError("a call must be answered before the run ends, it was not")


def _fail(answers: dict[int, asyncio.Future[Any]], error: Exception) -> None:
    for answer in answers.values():
        _settle(answer, error, None)


def _settle(answer: asyncio.Future[Any], error: Exception | None, value: Any) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(value)
    else:
        answer.set_exception(error)


class Exchange:
    """The actor's end: runs methods of a worker on the actor's event loop."""

    def __init__(self, run: Callable[..., Any]) -> None:
        """Take what runs a method by name."""
        self._run = run
        self._running: dict[int, asyncio.Task[None]] = {}

    async def answer(self, requests: Sequence[Request]) -> AsyncIterator[list[Answer]]:
        """Run all at once and yield answers as they come, those of the same moment together."""
        found: asyncio.Queue[Answer] = asyncio.Queue()
        for request in requests:
            self._running[request[0]] = asyncio.ensure_future(self._work(found, request))
        left = len(requests)
        while left:
            answers = [await found.get()]
            await asyncio.sleep(GATHER_S)
            while not found.empty():
                answers.append(found.get_nowait())
            left -= len(answers)
            yield answers

    def drop(self, numbers: Sequence[int]) -> None:
        """Cancel what nobody waits for any more."""
        for number in numbers:
            if number in self._running:
                self._running[number].cancel()

    async def _work(self, found: "asyncio.Queue[Answer]", request: Request) -> None:
        number, method, args, parent = request
        try:
            with nullcontext() if parent is None else spans.span(method, parent=parent):
                result = self._run(method, *args)
                answer: Answer = (number, True, await result if inspect.isawaitable(result) else result)
        except asyncio.CancelledError:
            answer = (number, False, WorkerError("nobody waits for this call any more"))
        except BaseException as error:  # noqa: BLE001 - travels to the caller
            answer = (number, False, error if isinstance(error, SkyRLNatError) else f"{type(error).__name__}: {error}")
        del self._running[number]
        found.put_nowait(answer)
