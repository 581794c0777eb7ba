"""When an engine counts as busy; the clock is moved by hand."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from skyrl_nat.engines.busy_clock import BusyClock
from skyrl_nat.engines.lifecycle import Lifecycle
from skyrl_nat.errors import EngineError
from skyrl_nat.monitoring.usage import Activity, Interval
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams

BUSY = Activity.ROLLOUT


class Scene:
    """An engine's clock, with the time and the ends of requests in a test's hands."""

    def __init__(self) -> None:
        self.time = 0.0
        self.clock = BusyClock(now=lambda: self.time)

    async def begin(self, num_prompt: int) -> tuple[asyncio.Future[Completion], asyncio.Task[Completion]]:
        request = GenerationRequest(
            request_id="r", prompt_token_ids=[1] * num_prompt, sampling=SamplingParams(max_new_tokens=9)
        )
        answer: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        task = asyncio.ensure_future(self.clock.follow(request, answer))
        await asyncio.sleep(0)
        return answer, task


def completion(num: int) -> Completion:
    return Completion(
        token_ids=[5] * num, logprobs=[0.0] * num, finish_reason=FinishReason.LENGTH, token_versions=[0] * num
    )


def played(play: Callable[[Scene], Awaitable[None]]) -> Scene:
    scene = Scene()
    asyncio.run(play(scene))  # type: ignore[arg-type]
    return scene


def test_overlapping_requests_are_one_stretch_and_tokens_are_counted() -> None:
    async def play(scene: Scene) -> None:
        scene.time = 1.0
        first, one = await scene.begin(num_prompt=10)
        scene.time = 3.0
        second, two = await scene.begin(num_prompt=4)
        scene.time = 4.0
        first.set_result(completion(3))
        await one
        scene.time = 9.0
        second.set_result(completion(1))
        await two
        scene.time = 20.0

    usage = played(play).clock.take()
    assert usage.intervals == [Interval(BUSY, 1.0, 9.0)]
    assert (usage.num_prompt_tokens, usage.num_completion_tokens) == (14, 4)
    # Three tokens after 10, 11 and 12 others, one after 4; two requests from 3 to 4, else one.
    assert usage.num_context_tokens == 10 + 11 + 12 + 4
    assert usage.request_s == 2.0 + 2.0 + 5.0


def test_a_paused_engine_is_not_busy() -> None:
    async def play(scene: Scene) -> None:
        answer, task = await scene.begin(1)
        scene.time = 2.0
        scene.clock.is_paused = True
        scene.time = 5.0
        scene.clock.is_paused = True
        scene.time = 6.0
        scene.clock.is_paused = False
        scene.time = 8.0
        answer.set_result(completion(1))
        await task

    usage = played(play).clock.take()
    assert usage.intervals == [Interval(BUSY, 0.0, 2.0), Interval(BUSY, 6.0, 8.0)]
    assert usage.request_s == 4.0


def test_a_stretch_that_goes_on_is_cut_where_it_is_asked_about() -> None:
    async def play(scene: Scene) -> None:
        answer, task = await scene.begin(7)
        scene.time = 2.0
        usage = scene.clock.take()
        assert usage.intervals == [Interval(BUSY, 0.0, 2.0)]
        assert (usage.num_prompt_tokens, usage.num_completion_tokens) == (0, 0)
        scene.time = 3.0
        answer.set_result(completion(2))
        await task
        usage = scene.clock.take()
        assert usage.intervals == [Interval(BUSY, 2.0, 3.0)]
        assert (usage.num_prompt_tokens, usage.num_completion_tokens) == (7, 2)
        assert scene.clock.take().intervals == []

    played(play)


def test_failed_and_cancelled_requests_leave_the_engine_idle() -> None:
    async def play(scene: Scene) -> None:
        answer, failing = await scene.begin(1)
        _, cancelled = await scene.begin(1)
        scene.time = 1.0
        answer.set_exception(EngineError("no"))
        cancelled.cancel()
        await asyncio.gather(failing, cancelled, return_exceptions=True)
        scene.time = 5.0

    usage = played(play).clock.take()
    assert usage.intervals == [Interval(BUSY, 0.0, 1.0)]
    assert usage.num_completion_tokens == 0


def test_updates_and_moved_memory_are_activities_of_their_own() -> None:
    scene = Scene()
    life = Lifecycle()
    life.clock = scene.clock
    life.is_started = True

    async def move() -> str:
        scene.time += 2.0
        return "moved"

    life.is_paused = True
    assert life.is_paused
    assert asyncio.run(scene.clock.moving_memory(move())) == "moved"
    with pytest.raises(ValueError, match="lost"), life.update():
        scene.time += 1.0
        raise ValueError("lost")
    assert scene.clock.take().intervals == [
        Interval(Activity.OFFLOAD, 0.0, 2.0),
        Interval(Activity.PUSH, 2.0, 3.0),
    ]
