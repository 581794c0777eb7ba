"""The embedded engine on a tiny model; what all engines owe is in the contract test."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tiny_model import make_tiny_model

from skyrl_nat.config.rollout import EngineConfig
from skyrl_nat.engines.hf import HfEngine
from skyrl_nat.errors import EngineError
from skyrl_nat.monitoring.usage import Activity, Usage
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


def request(prompt: list[int], seed: int = 0, num_new: int = 8) -> GenerationRequest:
    sampling = SamplingParams(max_new_tokens=num_new, seed=seed)
    return GenerationRequest(request_id=f"r{seed}", prompt_token_ids=prompt, sampling=sampling)


def with_engine(folder: Path, work: Callable[[HfEngine], Awaitable[Any]], **config: Any) -> Any:
    async def run() -> Any:
        engine = HfEngine(str(folder), EngineConfig(**config), max_model_len=256, device="cpu", seed=0, num_threads=1)
        await engine.start()
        try:
            return await work(engine)
        finally:
            await engine.shutdown()
            await engine.shutdown()

    return asyncio.run(run())


def test_alone_or_in_a_crowd_a_request_samples_the_same_tokens(folder: Path) -> None:
    prompts = [list(range(20 + i % 3, 40)) for i in range(9)]

    async def crowd(engine: HfEngine) -> list[Completion]:
        return list(await asyncio.gather(*(engine.generate(request(p, i)) for i, p in enumerate(prompts))))

    together = with_engine(folder, crowd)
    alone = with_engine(folder, crowd, deterministic=True)
    few_rows = with_engine(folder, crowd, max_num_seqs=2, prefix_caching=False)
    for a, b, c in zip(together, alone, few_rows, strict=True):
        assert a.token_ids == b.token_ids == c.token_ids
        assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


def test_alone_means_equal_to_the_bit_whatever_else_is_asked(folder: Path) -> None:
    async def first_of(engine: HfEngine, num: int) -> Completion:
        calls = [engine.generate(request([5, 6, 7], 0))]
        calls += [engine.generate(request([5, 6, 7, i], i)) for i in range(10, 10 + num)]
        return (await asyncio.gather(*calls))[0]

    few = with_engine(folder, lambda engine: first_of(engine, 0), deterministic=True)
    many = with_engine(folder, lambda engine: first_of(engine, 6), deterministic=True)
    assert few == many


def test_a_cancelled_request_leaves_and_the_engine_goes_on(folder: Path) -> None:
    async def cancel(engine: HfEngine) -> tuple[bool, Completion]:
        # It must be in the middle of its tokens: no early end, and it stands still while it is cancelled.
        engine._decoder.stop_token_ids = frozenset()
        long = asyncio.create_task(engine.generate(request([1, 2], 1, num_new=250)))
        while not engine._decoder.active:  # noqa: ASYNC110  (the decoder lives in a thread and has no event)
            await asyncio.sleep(0)
        await engine.pause()
        assert not long.done()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        await engine.resume()
        answer = await engine.generate(request([3, 4]))
        return engine._decoder.has_work, answer

    has_work, answer = with_engine(folder, cancel)
    assert answer.token_ids
    assert not has_work


def test_a_fault_in_the_model_ends_the_engine_and_fails_what_is_in_flight(folder: Path) -> None:
    async def break_down(engine: HfEngine) -> None:
        def fail(**kwargs: Any) -> None:
            raise RuntimeError("out of memory")

        engine._decoder.model = fail
        with pytest.raises(EngineError, match="out of memory"):
            await asyncio.wait_for(engine.generate(request([1, 2])), 5)
        with pytest.raises(EngineError, match="out of memory"):
            await engine.check_health()
        with pytest.raises(EngineError, match="Start a new engine"):
            await engine.generate(request([1, 2]))

    with_engine(folder, break_down)


def test_shutdown_fails_what_is_in_flight(folder: Path) -> None:
    async def stop(engine: HfEngine) -> None:
        await engine.pause()
        waiting = asyncio.create_task(engine.generate(request([1, 2])))
        await asyncio.sleep(0.01)
        await engine.shutdown()
        with pytest.raises(EngineError, match="shut down"):
            await asyncio.wait_for(waiting, 5)

    with_engine(folder, stop)


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json"):
        HfEngine(str(tmp_path), EngineConfig(), max_model_len=8, device="cpu", seed=0, num_threads=1)


def test_the_embedded_engine_tells_when_it_was_busy_and_how_many_tokens_passed(folder: Path) -> None:
    async def work(engine: HfEngine) -> tuple[list[Completion], Usage, Usage]:
        answers = await asyncio.gather(engine.generate(request([1] * 9, 0)), engine.generate(request([2] * 4, 1)))
        await engine.pause()
        return list(answers), await engine.usage(), await engine.usage()

    before = time.time()
    answers, usage, again = with_engine(folder, work)
    [(activity, start, end)] = usage.intervals
    assert activity is Activity.ROLLOUT
    assert before <= start < end <= time.time()
    assert usage.num_prompt_tokens == 13
    assert usage.num_completion_tokens == sum(len(answer.token_ids) for answer in answers)
    assert end - start <= usage.request_s + 1e-6 <= 2 * (end - start) + 2e-6
    assert again == Usage(intervals=[])
