"""How fast the service is asked, and what happens when it says no (PL-01): real HTTP, virtual time."""

import asyncio
import json
import random
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from planner_server import PlannerServer, Reply, VirtualClock

from skyrl_nat.data.planner.ask import Answered, Failed, Outcome, Planner
from skyrl_nat.data.planner.limits import Limiter
from skyrl_nat.data.planner.refusals import RefusalKind, read_refusal
from skyrl_nat.errors import StoppedError

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FINE = Reply(text='{"n": 1}')
PER_MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
PER_DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"


def busy(backend: str, **how: Any) -> Reply:
    """A 429 that asks for 53 s, as each protocol says it."""
    if backend == "gemini":
        return Reply(status=429, name="RESOURCE_EXHAUSTED", retry_delay="53s", quota_id=PER_MINUTE, **how)
    return Reply(status=429, name="rate_limit_exceeded", headers={"Retry-After": "53"}, **how)


def ask_all(server: PlannerServer, clock: VirtualClock, backend: str, folder: Path, num: int = 1, **how: Any):
    """Ask `num` requests at once; return what became of them, errors included."""

    async def run() -> tuple[list[Outcome | BaseException], Planner]:
        limiter = Limiter(600_000, 1e12, clock=clock, sleep=clock.sleep, rng=random.Random(0))
        async with server, Planner(server.config(backend, **how), folder, limiter=limiter) as planner:
            asked = [planner.ask(f"p{i}", SCHEMA) for i in range(num)]
            return await asyncio.gather(*asked, return_exceptions=True), planner

    return asyncio.run(run())


def test_pl_01_after_a_429_with_a_delay_the_next_call_comes_no_earlier_and_not_much_later(backend: str, tmp_path: Path):
    clock = VirtualClock()
    server = PlannerServer(busy(backend), FINE, clock=clock)
    [outcome], _ = ask_all(server, clock, backend, tmp_path)
    assert outcome == Answered({"n": 1})
    first, second = (call.at for call in server.calls)
    assert 53 <= second - first <= 53 * 1.25 + 1


def test_pl_01_429_for_ever_ends_after_the_bound_and_the_run_goes_on(backend: str, tmp_path: Path):
    clock = VirtualClock()
    server = PlannerServer(*[busy(backend)] * 4, FINE, clock=clock)

    async def run() -> list[Outcome]:
        limiter = Limiter(600_000, 1e12, clock=clock, sleep=clock.sleep)
        async with server, Planner(server.config(backend, max_tries=4), tmp_path, limiter=limiter) as planner:
            return [await planner.ask(prompt, SCHEMA) for prompt in ("a", "b")]

    failed, answered = asyncio.run(run())
    assert isinstance(failed, Failed)
    assert failed.kind is RefusalKind.rate_limited
    assert answered == Answered({"n": 1})
    gaps = [b.at - a.at for a, b in zip(server.calls, server.calls[1:4], strict=False)]
    assert len(server.calls) == 5
    assert all(gap >= 53 for gap in gaps[:3])


def test_pl_01_all_workers_keep_away_while_one_was_told_to_wait(backend: str, tmp_path: Path):
    """In real time, since a virtual clock would jump over the wait of the first worker."""

    async def run() -> list[Outcome]:
        async with server, Planner(server.config(backend, concurrency=1), tmp_path) as planner:
            return await asyncio.gather(*(planner.ask(f"p{i}", SCHEMA) for i in range(4)))

    told = Reply(status=429, name="RESOURCE_EXHAUSTED", retry_delay="1s", headers={"Retry-After": "1"})
    server = PlannerServer(told, FINE)
    assert asyncio.run(run()) == [Answered({"n": 1})] * 4
    first, *later = (call.at for call in server.calls)
    assert [1 <= at - first < 3 for at in later] == [True] * 4


@pytest.mark.parametrize(("is_shared", "starts_at"), [(True, 53), (False, 0)])
def test_pl_01_only_what_concerns_all_keeps_the_other_workers_waiting(is_shared: bool, starts_at: float):
    clock = VirtualClock()

    async def sleep(seconds: float) -> None:
        if asyncio.current_task() is told[0]:
            await asyncio.Event().wait()  # the worker that was told to wait never comes back
        await clock.sleep(seconds)

    async def run() -> float:
        limiter = Limiter(60, 60, clock=clock, sleep=sleep)
        told.append(asyncio.create_task(limiter.back_off(0, 53, is_shared=is_shared)))
        await asyncio.sleep(0)
        await limiter.acquire(1)
        told[0].cancel()
        return clock.now

    told: list[asyncio.Task[None]] = []
    assert starts_at <= asyncio.run(run()) <= starts_at * 1.25


def test_pl_01_a_daily_quota_stops_at_once_and_what_was_answered_is_kept(backend: str, tmp_path: Path):
    clock = VirtualClock()
    message = "" if backend == "gemini" else "Rate limit reached on requests per day (RPD): Limit 200"
    spent = Reply(status=429, name="RESOURCE_EXHAUSTED", retry_delay="2s", quota_id=PER_DAY, message=message)
    server = PlannerServer(FINE, spent, clock=clock)
    outcomes, planner = ask_all(server, clock, backend, tmp_path, num=5, concurrency=1)
    assert outcomes[0] == Answered({"n": 1})
    assert all(isinstance(outcome, StoppedError) for outcome in outcomes[1:])
    assert "quota must not be used up" in str(outcomes[1])
    assert len(server.calls) == 2
    assert clock.now < 1
    assert planner.ledger.totals.results == {"answer": 1, "exhausted": 1}


def test_pl_01_a_delay_longer_than_allowed_stops_the_run(tmp_path: Path):
    clock = VirtualClock()
    server = PlannerServer(Reply(status=429, headers={"Retry-After": "7200"}), clock=clock)
    [outcome], _ = ask_all(server, clock, "openai", tmp_path)
    assert isinstance(outcome, StoppedError)
    assert "planner.max_wait_s = 600 s, it asked for 7200 s" in str(outcome)
    assert len(server.calls) == 1


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_is_tried_again_with_growing_waits(backend: str, tmp_path: Path, status: int):
    clock = VirtualClock()
    server = PlannerServer(*[Reply(status=status, name="INTERNAL")] * 3, FINE, clock=clock)
    [outcome], planner = ask_all(server, clock, backend, tmp_path)
    assert outcome == Answered({"n": 1})
    gaps = [b.at - a.at for a, b in zip(server.calls, server.calls[1:], strict=False)]
    assert [least <= gap <= least * 1.25 + 0.01 for least, gap in zip([1, 2, 4], gaps, strict=True)] == [True] * 3
    assert planner.ledger.totals.results == {"unavailable": 3, "answer": 1}


def test_a_server_that_is_down_stops_the_run_after_so_many_requests(backend: str, tmp_path: Path):
    clock = VirtualClock()
    server = PlannerServer(Reply(status=503, name="UNAVAILABLE", message="overloaded"), clock=clock)
    how = {"max_tries": 2, "max_failures_in_a_row": 3, "concurrency": 1}

    async def run() -> list[str]:
        limiter = Limiter(600_000, 1e12, clock=clock, sleep=clock.sleep)
        async with server, Planner(server.config(backend, **how), tmp_path, limiter=limiter) as planner:
            kinds = [str((await planner.ask(f"p{i}", SCHEMA)).kind) for i in range(2)]
            for _ in range(2):
                with pytest.raises(StoppedError, match=r"max_failures_in_a_row = 3 .*503 UNAVAILABLE: overloaded"):
                    await planner.ask("p2", SCHEMA)
            return kinds

    assert asyncio.run(run()) == ["unavailable", "unavailable"]
    assert len(server.calls) == 6


def test_calls_are_spaced_so_that_no_minute_holds_more_than_allowed():
    clock = VirtualClock()
    starts: list[float] = []

    async def worker(limiter: Limiter, tokens: int) -> None:
        await limiter.acquire(tokens)
        starts.append(clock())

    async def run(requests: float, tokens: float) -> None:
        limiter = Limiter(requests, tokens, clock=clock, sleep=clock.sleep)
        await asyncio.gather(*(worker(limiter, 500) for _ in range(5)))

    asyncio.run(run(20, 1e9))
    assert starts == [0, 3, 6, 9, 12]  # 60 s / 20
    starts.clear()
    clock.now = 0
    asyncio.run(run(1e9, 3000))
    assert starts == [0, 10, 20, 30, 40]  # 500 tokens at 50 a second


def test_tokens_that_were_not_used_are_given_back_and_further_ones_are_charged():
    clock = VirtualClock()

    async def run(unused: int) -> float:
        clock.now = 0
        limiter = Limiter(1e9, 60, clock=clock, sleep=clock.sleep)
        await limiter.acquire(40)
        limiter.give_back(unused)
        await limiter.acquire(1)
        return clock.now

    assert [asyncio.run(run(unused)) for unused in (0, 30, -5)] == [40, 10, 45]


def test_the_waits_of_two_clients_differ():
    async def wait(seed: int) -> float:
        clock = VirtualClock()
        limiter = Limiter(1, 1, clock=clock, sleep=clock.sleep, rng=random.Random(seed))
        await limiter.back_off(0, 53, is_shared=True)
        return clock.now

    waits = [asyncio.run(wait(seed)) for seed in range(20)]
    assert len(set(waits)) == 20
    assert min(waits) >= 53
    assert max(waits) <= 53 * 1.25


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "delay"),
    [
        (429, {"Retry-After": "1.5"}, {}, "rate_limited", 1.5),
        (429, {}, {"error": {"details": [{"retryDelay": "12.25s"}]}}, "rate_limited", 12.25),
        (429, {"Retry-After": "3"}, {"error": {"details": [{"retryDelay": "2s"}]}}, "rate_limited", 3),
        (429, {"Retry-After": "soon"}, "Too many", "rate_limited", 0),
        (429, {}, {"error": {"code": "insufficient_quota"}}, "exhausted", 0),
        (429, {}, {"error": {"message": "Daily limit reached"}}, "exhausted", 0),
        (402, {}, {"error": {"message": "Insufficient Balance"}}, "exhausted", 0),
        (503, {"Retry-After": "9"}, "<html>", "unavailable", 9),
        (408, {}, None, "unavailable", 0),
        (404, {}, {"error": "no such model"}, "denied", 0),
        (302, {}, "", "denied", 0),
    ],
)
def test_pl_01_delays_and_kinds_are_read_wherever_servers_put_them(
    status: int, headers: dict[str, str], body: Any, kind: str, delay: float
):
    refusal = read_refusal(status, headers, json.loads(json.dumps(body)))
    assert (refusal.kind, refusal.delay_s) == (kind, delay)


def test_pl_01_a_delay_may_be_a_date():
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    assert 55 < read_refusal(429, {"Retry-After": in_a_minute}, {}).delay_s <= 60
    assert read_refusal(429, {"Retry-After": formatdate(0, usegmt=True)}, {}).delay_s == 0
