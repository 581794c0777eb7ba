"""Calls that travel together, without Ray between the two ends."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.cluster.lines import Answer, Exchange, Failed, Line, Request
from skyrl_nat.errors import DeadlineError, WorkerError
from skyrl_nat.monitoring import spans


class Worker:
    """Has a method of every kind."""

    def __init__(self) -> None:
        self.num_cancelled = 0

    async def double(self, number: int) -> int:
        return 2 * number

    def plain(self, number: int) -> int:
        return -number

    async def wait(self, seconds: float) -> str:
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            self.num_cancelled += 1
            raise
        return "waited"

    async def fail(self, error: Exception) -> None:
        raise error


class Wire:
    """An actor handle in this process; `is_cut_after` ends streams after so many messages."""

    def __init__(self, *, is_cut_after: int | None = None) -> None:
        self.worker = Worker()
        self.sent: list[list[Request]] = []
        self.received: list[list[Answer]] = []
        self.dropped: list[int] = []
        self._cut = is_cut_after
        self._exchange = Exchange(lambda method, *args: getattr(self.worker, method)(*args))
        self.answer = SimpleNamespace(remote=self._answer)
        self.drop = SimpleNamespace(remote=self._drop)

    async def _answer(self, requests: list[Request]) -> AsyncIterator[Awaitable[list[Answer]]]:
        self.sent.append(requests)
        async for answers in self._exchange.answer(requests):
            if len(self.received) == self._cut:
                raise ConnectionError("the actor died")
            self.received.append(answers)
            yield asyncio.sleep(0, answers)

    def _drop(self, numbers: list[int]) -> None:
        self.dropped += numbers
        self._exchange.drop(numbers)


def run(scenario: Callable[[Line, Wire], Awaitable[Any]], **settings: Any) -> tuple[Any, Wire]:
    async def work() -> tuple[Any, Wire]:
        wire = Wire(**settings)
        return await asyncio.wait_for(scenario(Line(wire), wire), 20), wire  # type: ignore[arg-type]

    return asyncio.run(work())


def test_what_is_asked_at_once_is_one_message_each_way_and_everybody_gets_the_own_answer() -> None:
    async def scenario(line: Line, wire: Wire) -> list[int]:
        calls = [line.call("plain" if n % 2 else "double", (n,)) for n in range(200)]
        return list(await asyncio.gather(*calls))

    found, wire = run(scenario)
    assert found == [-n if n % 2 else 2 * n for n in range(200)]
    assert [len(requests) for requests in wire.sent] == [200]
    assert len(wire.received) == 1


def test_a_slow_call_holds_nobody_up() -> None:
    async def scenario(line: Line, wire: Wire) -> tuple[int, bool, str]:
        slow = asyncio.ensure_future(line.call("wait", (0.3,)))
        quick = await line.call("double", (4,))
        return quick, slow.done(), await slow

    (quick, was_done, slow), wire = run(scenario)
    assert (quick, was_done, slow) == (8, False, "waited")
    assert len(wire.sent) == 1
    assert [len(answers) for answers in wire.received] == [1, 1]


OURS, THEIRS = DeadlineError("no answer"), ValueError(threading.Lock())


@pytest.mark.parametrize(("error", "cause"), [(OURS, OURS), (THEIRS, f"ValueError: {THEIRS}")], ids=["ours", "theirs"])
def test_an_error_is_that_of_its_own_call_and_what_may_not_travel_is_its_text(
    error: Exception, cause: Exception | str
) -> None:
    async def scenario(line: Line, wire: Wire) -> list[Any]:
        calls = [line.call("fail", (error,)), line.call("double", (1,))]
        return list(await asyncio.gather(*calls, return_exceptions=True))

    (failed, fine), _ = run(scenario)
    assert isinstance(failed, Failed)
    assert failed.cause == cause
    assert fine == 2


def test_what_nobody_waits_for_is_cancelled_there_and_the_rest_goes_on() -> None:
    async def scenario(line: Line, wire: Wire) -> int:
        left = [asyncio.ensure_future(line.call("wait", (60.0,))) for _ in range(3)]
        other = asyncio.ensure_future(line.call("wait", (0.2,)))
        await asyncio.sleep(0.05)
        for call in left:
            call.cancel()
        assert await other == "waited"
        return wire.worker.num_cancelled

    num_cancelled, wire = run(scenario)
    assert num_cancelled == 3
    assert wire.dropped == [0, 1, 2]


def test_a_call_that_is_cancelled_before_it_is_sent_is_never_sent() -> None:
    async def scenario(line: Line, wire: Wire) -> int:
        call = asyncio.ensure_future(line.call("wait", (60.0,)))
        other = asyncio.ensure_future(line.call("double", (3,)))
        await asyncio.sleep(0)
        call.cancel()
        return await other

    found, wire = run(scenario)
    assert found == 6
    assert [[method for _, method, *_ in requests] for requests in wire.sent] == [["double"]]


def test_a_stream_that_ends_early_fails_what_is_left_and_later_calls_are_sent_anew() -> None:
    async def scenario(line: Line, wire: Wire) -> list[Any]:
        calls = [line.call("double", (1,)), line.call("wait", (0.2,))]
        found = list(await asyncio.gather(*calls, return_exceptions=True))
        wire._cut = None
        return [*found, await line.call("double", (5,))]

    (quick, lost, later), _ = run(scenario, is_cut_after=1)
    assert quick == 2
    assert isinstance(lost, ConnectionError)
    assert later == 10


def test_a_line_that_is_closed_reads_nothing_more_and_fails_what_is_open() -> None:
    """Ray ends a process, with code 1 and without a word, that reads a stream once Ray has ended."""

    async def scenario(line: Line, wire: Wire) -> list[Any]:
        calls = [asyncio.ensure_future(line.call(method, (60,))) for method in ("double", "wait")]
        assert await calls[0] == 120
        readers = set(line._readers)
        late = asyncio.ensure_future(line.call("double", (1,)))
        await line.close()
        assert [reader.done() for reader in readers] == [True]
        assert not line._readers
        return await asyncio.gather(calls[1], late, line.call("double", (2,)), return_exceptions=True)

    found, wire = run(scenario)
    assert [type(error) for error in found] == [WorkerError] * 3
    assert len(wire.sent) == 1, "nothing is sent after it, either"


def test_the_span_of_the_caller_travels_with_its_call_and_nothing_does_without_traces(tmp_path) -> None:
    async def scenario(line: Line, wire: Wire) -> None:
        with spans.span("rollout"):
            await line.call("double", (1,))
        await line.call("double", (2,))

    _, untraced = run(scenario)
    spans.trace_to(str(tmp_path), "test")
    try:
        _, traced = run(scenario)
        spans.flush_traces()
    finally:
        spans.end_traces()
    assert [request[3] for requests in untraced.sent for request in requests] == [None, None]
    written = [json.loads(line) for line in next(tmp_path.iterdir()).read_text().splitlines()]
    rollout, call = sorted(written, key=lambda span: span["name"] != "rollout")
    assert (call["name"], call["parent_id"]) == ("double", rollout["context"]["span_id"])
    assert [request[3] is None for requests in traced.sent for request in requests] == [False, True]
