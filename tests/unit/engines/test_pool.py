import asyncio
from dataclasses import replace

import pytest
from fakes import FakeEngine

from skyrl_nat.engines.pool import EnginePool
from skyrl_nat.errors import DeadlineError, EngineError
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams


def request(request_id: str, prompt: list[int] | None = None) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        prompt_token_ids=prompt or [1],
        sampling=SamplingParams(max_new_tokens=1),
    )


def play(pool: EnginePool, *request_ids: str) -> list[Completion | BaseException]:
    async def all_at_once() -> list[Completion | BaseException]:
        calls = (pool.generate(request(r)) for r in request_ids)
        return list(await asyncio.gather(*calls, return_exceptions=True))

    return asyncio.run(all_at_once())


def test_all_turns_of_a_rollout_stay_on_one_engine() -> None:
    engines = [FakeEngine(), FakeEngine()]
    pool = EnginePool(engines, request_timeout_s=5)
    play(pool, "a/0", "b/0")
    for turn in (1, 2):
        play(pool, f"b/{turn}", f"a/{turn}")
    assert engines[0].request_ids == ["a/0", "a/1", "a/2"]
    assert engines[1].request_ids == ["b/0", "b/1", "b/2"]


def test_a_new_rollout_goes_to_the_engine_with_the_fewest_requests_in_flight() -> None:
    engines = [FakeEngine(delay_s=0.01) for _ in range(3)]
    pool = EnginePool(engines, request_timeout_s=5)
    play(pool, *(f"{i}/0" for i in range(9)))
    assert [len(engine.request_ids) for engine in engines] == [3, 3, 3]
    assert pool.loads == [0, 0, 0]


def test_answers_belong_to_their_requests_whatever_the_order_of_completion() -> None:
    """EN-01."""

    async def reversed_delays() -> list[Completion]:
        engines = [FakeEngine(delay_s=(8 - i) / 200) for i in range(8)]
        pool = EnginePool(engines, request_timeout_s=5)
        calls = (pool.generate(request(f"{i}/0", [i])) for i in range(8))
        return list(await asyncio.gather(*calls))

    assert [answer.token_ids for answer in asyncio.run(reversed_delays())] == [[i] for i in range(8)]


def test_an_engine_that_failed_gets_nothing_until_it_is_marked_healthy() -> None:
    broken = FakeEngine(error=ConnectionError("socket closed"))
    sound = FakeEngine()
    pool = EnginePool([broken, sound], request_timeout_s=5)
    [error] = play(pool, "a/0")
    assert isinstance(error, EngineError)
    assert "ConnectionError: socket closed" in str(error)
    assert pool.healthy == [1]

    play(pool, "a/0", "c/0")  # the rollout that was on the broken engine moves
    assert len(broken.request_ids) == 1
    assert sound.request_ids == ["a/0", "c/0"]

    broken.error = None
    pool.mark_healthy(0)
    play(pool, "d/0")
    assert broken.request_ids[-1] == "d/0"


def test_no_healthy_engine_is_an_error_that_lists_the_faults() -> None:
    pool = EnginePool([FakeEngine(error=ValueError("x"))], request_timeout_s=5)
    play(pool, "a/0")
    [error] = play(pool, "b/0")
    assert isinstance(error, EngineError)
    assert "ValueError: x" in str(error)


def test_a_request_over_its_deadline_is_named_and_its_engine_unhealthy() -> None:
    pool = EnginePool([FakeEngine(delay_s=5), FakeEngine()], request_timeout_s=0.05)
    [error] = play(pool, "a/0")
    assert isinstance(error, DeadlineError)
    assert "a/0" in str(error)
    assert pool.healthy == [1]


def test_a_prompt_without_room_blames_no_engine() -> None:
    """EN-04: refused before any engine is asked."""
    engine = FakeEngine()
    pool = EnginePool([engine], request_timeout_s=5, max_model_len=4)
    with pytest.raises(EngineError, match="at most 3 tokens"):
        asyncio.run(pool.generate(request("a/0", [1, 2, 3, 4])))
    assert pool.healthy == [0]
    assert engine.request_ids == []


def test_a_late_failure_of_a_replaced_engine_does_not_touch_its_successor() -> None:
    async def replaced_while_it_answers() -> list[int]:
        pool = EnginePool([FakeEngine(delay_s=0.02, error=ValueError("dead"))], request_timeout_s=5)
        call = asyncio.create_task(pool.generate(request("a/0")))
        await asyncio.sleep(0)
        pool.replace(0, FakeEngine())
        assert pool.healthy == []
        pool.mark_healthy(0)
        with pytest.raises(EngineError):
            await call
        return pool.healthy

    assert asyncio.run(replaced_while_it_answers()) == [0]


def test_cancelling_a_request_blames_no_engine() -> None:
    async def cancel() -> EnginePool:
        pool = EnginePool([FakeEngine(delay_s=5)], request_timeout_s=5)
        call = asyncio.create_task(pool.generate(request("a/0")))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return pool

    pool = asyncio.run(cancel())
    assert pool.healthy == [0]
    assert pool.loads == [0]


class Versioned(FakeEngine):
    """Labels its tokens with the version that it serves."""

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = version

    async def generate(self, request: GenerationRequest) -> Completion:
        answer = await super().generate(request)
        return replace(answer, token_versions=[self.version] * len(answer.token_ids))


def test_a_restarted_engine_gets_nothing_until_it_serves_the_current_version() -> None:
    """Row 60, WS-05: it comes back with version 0 while the other one is at 7."""
    dead, restarted = FakeEngine(error=ConnectionError("gone")), Versioned(0)
    pool = EnginePool([dead, Versioned(7)], request_timeout_s=5)
    play(pool, "a/0")
    pool.replace(0, restarted)
    answers = [play(pool, f"{i}/0", f"{i}/1") for i in range(4)]
    restarted.version = 7
    pool.mark_healthy(0)
    answers.append(play(pool, *(f"late{i}/0" for i in range(8))))
    assert {version for pair in answers for answer in pair for version in answer.token_versions} == {7}
    assert restarted.request_ids, "it serves again"
    assert all(name.startswith("late") for name in restarted.request_ids)


def test_requests_that_come_while_it_is_held_wait_and_those_under_way_do_not() -> None:
    async def scenario() -> tuple[list[str], list[str]]:
        engine = FakeEngine(delay_s=0.01)
        pool = EnginePool([engine], request_timeout_s=0.05)
        early = asyncio.ensure_future(pool.generate(request("a/0")))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionError), pool.hold():
            late = asyncio.ensure_future(pool.generate(request("b/0")))
            await early
            await asyncio.sleep(0.1)  # longer than a request may take
            held = list(engine.request_ids)
            raise ConnectionError("a push that fails holds nothing for ever")
        await late
        return held, engine.request_ids

    assert asyncio.run(scenario()) == (["a/0"], ["a/0", "b/0"])
