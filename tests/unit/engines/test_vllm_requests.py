"""Which version each token of an answer gets, whatever happens while weights change; vLLM is a fake here."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from vllm_names import put_vllm_names

from skyrl_nat.engines.vllm_requests import VllmRequests
from skyrl_nat.types import Completion, GenerationRequest, SamplingParams


class Core:
    """vLLM's front end: outputs lie in a queue until its handler counts them, as in `AsyncLLM`."""

    def __init__(self) -> None:
        self.salts: list[str] = []
        self.may_enter = asyncio.Event()
        self.may_enter.set()
        self.engine_core = SimpleNamespace(outputs_queue=asyncio.Queue())
        self.output_processor = SimpleNamespace(request_states={})
        self.output_handler = asyncio.create_task(self._handle())

    async def add_request(self, name: str, prompt: Any, sampling: Any) -> Any:
        await self.may_enter.wait()
        self.salts.append(prompt.cache_salt)
        assert sampling.detokenize is False  # the codec reads tokens; text here would cost time for nobody
        tokens: list[int] = []
        finished = asyncio.Event()
        state = SimpleNamespace(external_req_id=name, tokens=tokens, finished=finished)
        state.detokenizer = SimpleNamespace(num_output_tokens=lambda: len(tokens))
        self.output_processor.request_states[f"{name}-internal"] = state

        async def get() -> Any:
            await finished.wait()
            await asyncio.sleep(0.01)  # the caller is picked up late
            places = range(len(tokens))
            flat = SimpleNamespace(
                start_indices=list(places),
                end_indices=[place + 1 for place in places],
                token_ids=list(tokens),
                logprobs=[-1.0] * len(tokens),
            )
            part = SimpleNamespace(token_ids=list(tokens), logprobs=flat, finish_reason="length")
            return SimpleNamespace(outputs=[part], finished=True)

        return SimpleNamespace(request_id=f"{name}-internal", get_nowait=lambda: None, get=get, close=lambda: None)

    def emit(self, name: str, count: int, *, is_last: bool = False) -> None:
        self.engine_core.outputs_queue.put_nowait((f"{name}-internal", count, is_last))

    async def _handle(self) -> None:
        while True:
            name, count, is_last = await self.engine_core.outputs_queue.get()
            await asyncio.sleep(0.005)  # taken from the queue, not yet counted
            state = self.output_processor.request_states[name]
            state.tokens.extend([7] * count)
            if is_last:
                del self.output_processor.request_states[name]
                state.finished.set()


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    put_vllm_names(monkeypatch)


def start(requests: VllmRequests, name: str) -> "asyncio.Task[Completion]":
    request = GenerationRequest(request_id=name, prompt_token_ids=[1], sampling=SamplingParams(max_new_tokens=9))
    return asyncio.create_task(requests.sample(request, max_tokens=9, seed=0))


def test_tokens_carry_the_version_in_service_when_they_were_sampled_even_if_counted_late() -> None:
    async def scenario() -> list[list[int]]:
        core = Core()
        requests = VllmRequests(core, Path(), [])
        running = start(requests, "a")
        await asyncio.sleep(0)
        core.emit("a#1", 2)
        core.emit("a#1", 1)
        await requests.serve_as(4)  # three tokens still lie in the queue
        core.emit("a#1", 1)
        await requests.serve_as(5)
        core.emit("a#1", 2, is_last=True)
        return [(await running).token_versions]

    assert asyncio.run(scenario()) == [[0, 0, 0, 4, 5, 5]]


def test_an_answer_that_ended_before_an_update_keeps_its_version_though_it_is_picked_up_later() -> None:
    async def scenario() -> list[int]:
        core = Core()
        requests = VllmRequests(core, Path(), [])
        running = start(requests, "a")
        await asyncio.sleep(0)
        core.emit("a#1", 3, is_last=True)
        await requests.serve_as(1)
        return (await running).token_versions

    assert asyncio.run(scenario()) == [0, 0, 0]


def test_a_request_that_enters_while_weights_change_gets_the_new_version_alone() -> None:
    async def scenario() -> tuple[list[int], list[str]]:
        core = Core()
        requests = VllmRequests(core, Path(), [])
        core.may_enter.clear()
        running = start(requests, "a")
        await asyncio.sleep(0)
        await requests.serve_as(1)
        core.may_enter.set()
        await asyncio.sleep(0.01)
        core.emit("a#1", 2, is_last=True)
        later = start(requests, "b")
        await asyncio.sleep(0.01)
        core.emit("b#2", 1, is_last=True)
        await later
        return (await running).token_versions, core.salts

    versions, salts = asyncio.run(scenario())
    assert versions == [1, 1]
    assert salts == ["0", "1"]


def test_nothing_is_remembered_of_finished_requests() -> None:
    async def scenario() -> VllmRequests:
        core = Core()
        requests = VllmRequests(core, Path(), [])
        running = start(requests, "a")
        await asyncio.sleep(0)
        core.emit("a#1", 1, is_last=True)
        await running
        return requests

    requests = asyncio.run(scenario())
    assert (requests._starts, requests._entering) == ({}, set())
