"""Recording any agent: everything of a run is in its trace, and the run itself never notices."""

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from skyrl_nat.data.traces.hook import record, step
from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.errors import ConfigError

ROOT = Path(__file__).parents[4]


class Kept:
    """A store in memory."""

    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def append(self, traces: list[Trace]) -> None:
        self.traces += traces

    def only(self) -> Trace:
        assert len(self.traces) == 1
        return self.traces[0]


def area(width: float, height: float) -> float:
    found = width * height
    assert step(found, tool="area", arguments={"width": width, "height": height}, seconds=0.5)
    return found


class Agent:
    """Every form of a run that a framework may have."""

    model = "small-1"

    def __init__(self) -> None:
        self.usage = SimpleNamespace(input_tokens=1000, output_tokens=100)

    def think(self, request: str) -> str:
        step("I multiply.", kind=StepKind.reasoning, tokens=(30, 4))
        self.usage.input_tokens += 30
        self.usage.output_tokens += 4
        return f"{request}: {area(3, 4)}"

    def run(self, request: str) -> str:
        return self.think(request)

    async def arun(self, request: str) -> str:
        await asyncio.sleep(0)
        return await asyncio.to_thread(self.think, request)

    def invoke(self, request: str) -> Any:
        return self.arun(request)

    async def ainvoke(self, request: str) -> str:
        return await self.arun(request)

    def stream(self, request: str) -> Any:
        yield from self.think(request).partition(": ")

    async def astream(self, request: str) -> AsyncIterator[str]:
        for part in self.think(request).partition(": "):
            await asyncio.sleep(0)
            yield part


async def collect(parts: AsyncIterator[str]) -> str:
    return "".join([part async for part in parts])


WAYS: dict[str, Callable[[Agent], str]] = {
    "run": lambda agent: agent.run("q"),
    "arun": lambda agent: asyncio.run(agent.arun("q")),
    "invoke": lambda agent: asyncio.run(agent.invoke("q")),
    "ainvoke": lambda agent: asyncio.run(agent.ainvoke(request="q")),
    "stream": lambda agent: "".join(agent.stream("q")),
    "astream": lambda agent: asyncio.run(collect(agent.astream("q"))),
}


@pytest.mark.parametrize("way", WAYS)
def test_request_steps_answer_tokens_and_time_of_a_run_are_in_one_trace(way: str):
    agent, store = Agent(), Kept()
    with record(agent, store) as recorded:
        assert recorded is agent
        assert WAYS[way](agent) == "q: 12"
    trace = store.only()
    assert trace.steps == (
        TraceStep(kind=StepKind.message, role="user", text="q"),
        TraceStep(kind=StepKind.reasoning, text="I multiply.", num_prompt_tokens=30, num_completion_tokens=4),
        TraceStep(
            kind=StepKind.tool,
            role="tool",
            tool="area",
            arguments={"width": 3, "height": 4},
            text="12",
            seconds=0.5,
        ),
        TraceStep(kind=StepKind.message, text="q: 12", num_prompt_tokens=30, num_completion_tokens=4),
    )
    assert (trace.request, trace.outcome, trace.agent, trace.model) == ("q", TraceOutcome.unknown, "Agent", "small-1")
    assert trace.source == "hook"
    assert trace.metadata == {"method": way}
    assert trace.seconds is not None and 0 < trace.seconds < 10
    assert trace.started_at.endswith("+00:00")


def test_closing_gives_the_agent_its_own_methods_back_and_ends_recording():
    agent, store = Agent(), Kept()
    own = agent.run
    agent.arun = own_attribute = lambda request: request  # type: ignore[method-assign,assignment]
    before = dict(vars(agent))
    recording = record(agent, store, name="mine")
    assert vars(agent).keys() - before.keys() == {"run", "invoke", "ainvoke", "stream", "astream"}
    agent.run("q")
    recording.close()
    assert vars(agent) == before
    assert agent.run == own
    assert agent.arun is own_attribute
    agent.think = lambda request: request  # type: ignore[method-assign]
    assert agent.run("q") == "q"
    assert store.only().agent == "mine"


def test_another_object_of_the_class_is_not_recorded():
    store = Kept()
    with record(Agent(), store):
        other = Agent()
        other.think = lambda request: request  # type: ignore[method-assign]
        assert other.run("q") == "q"
    assert store.traces == []


@pytest.mark.parametrize("error", [KeyError("k"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_an_exception_reaches_the_caller_unchanged_and_is_the_outcome(error: BaseException):
    class Failing:
        async def run(self, request: str) -> None:
            step("half", tool="t", is_error=True)
            raise error

        def invoke(self, request: str) -> None:
            raise error

    store = Kept()

    async def call(agent: Failing) -> BaseException | None:
        try:
            await agent.run("q")
        except BaseException as caught:  # noqa: BLE001 - any may be the one
            return caught
        return None

    with record(Failing(), store) as agent:
        assert asyncio.run(call(agent)) is error
        with pytest.raises(type(error)) as caught:
            agent.invoke("q")
        assert caught.value is error
    outcomes = [(trace.outcome, trace.metadata["error"]) for trace in store.traces]
    assert outcomes == [(TraceOutcome.error, f"{type(error).__name__}: {error}")] * 2
    assert [s.text for s in store.traces[0].steps] == ["q", "half"]


def test_runs_at_the_same_time_do_not_mix():
    class Slow:
        usage = SimpleNamespace(prompt_tokens=5, completion_tokens=5)

        async def run(self, number: str) -> str:
            for turn in range(3):
                await asyncio.sleep(0.001 * (int(number) % 3))
                await asyncio.to_thread(step, f"{number}/{turn}", tool="t")
                await asyncio.gather(*(self._part(number) for _ in range(2)))
            return number

        async def _part(self, number: str) -> None:
            await asyncio.sleep(0)
            step(number)

    async def play(agent: Slow) -> list[str]:
        return await asyncio.gather(*(agent.run(str(number)) for number in range(30)))

    store = Kept()
    with record(Slow(), store) as agent:
        assert asyncio.run(play(agent)) == [str(number) for number in range(30)]
    assert len(store.traces) == 30
    for trace in store.traces:
        n = trace.request
        wanted = [n, *(text for turn in range(3) for text in (f"{n}/{turn}", n, n)), n]
        assert [s.text for s in trace.steps] == wanted
        assert trace.steps[-1].num_prompt_tokens is None
    assert len({trace.trace_id for trace in store.traces}) == 30


def test_streams_taken_turn_by_turn_in_one_task_do_not_mix_and_the_consumer_is_outside_of_both():
    class Streaming:
        async def astream(self, name: str) -> AsyncIterator[str]:
            for turn in range(2):
                step(f"{name}{turn}")
                yield name

        def stream(self, name: str) -> Any:
            for turn in range(2):
                step(f"{name}{turn}")
                yield name

    async def play(agent: Streaming) -> None:
        first, second = agent.astream("a"), agent.astream("b")
        for _ in range(2):
            assert [await anext(first), await anext(second)] == ["a", "b"]
            assert not step("of nobody")
        assert [await anext(first, None), await anext(second, None)] == [None, None]

    store = Kept()
    with record(Streaming(), store) as agent:
        asyncio.run(play(agent))
        assert list(zip(agent.stream("c"), agent.stream("d"), strict=True)) == [("c", "d")] * 2
    texts = [[s.text for s in trace.steps] for trace in store.traces]
    assert texts == [[n, f"{n}0", f"{n}1", n + n] for n in "abcd"]


def test_a_stream_that_is_left_early_is_recorded_so_far_and_its_generator_closed():
    closed: list[bool] = []

    class Endless:
        async def astream(self, request: str) -> AsyncIterator[str]:
            try:
                while True:
                    yield "x"
            finally:
                closed.append(True)

    async def play(agent: Endless) -> None:
        async with contextlib.aclosing(agent.astream("q")) as items:  # type: ignore[type-var]
            async for _ in items:
                break

    store = Kept()
    with record(Endless(), store) as agent:
        asyncio.run(play(agent))
    assert closed == [True]
    assert store.only().steps[-1].text == "x"
    assert store.only().outcome is TraceOutcome.unknown
    assert "stopped" in store.only().metadata


def test_an_agent_inside_an_agent_has_a_trace_of_its_own_and_calls_of_itself_have_none():
    inner = Agent()

    class Outer:
        def run(self, request: str) -> str:
            return self.invoke(request)

        def invoke(self, request: str) -> str:
            step("before")
            answer = inner.run("inner")
            step("after")
            return answer

    store = Kept()
    with record(inner, store), record(Outer(), store) as outer:
        outer.run("outer")
    texts = {trace.request: [s.text for s in trace.steps] for trace in store.traces}
    assert texts == {
        "inner": ["inner", "I multiply.", "12", "inner: 12"],
        "outer": ["outer", "before", "after", "inner: 12"],
    }


def test_a_step_outside_of_a_run_does_nothing_and_a_bare_thread_needs_the_context():
    assert not step("of nobody")
    told: list[bool] = []

    class Threaded:
        def run(self, request: str) -> None:
            context = contextvars.copy_context()
            targets = (lambda: told.append(step("lost")), lambda: told.append(context.run(step, "kept")))
            for target in targets:
                thread = threading.Thread(target=target)
                thread.start()
                thread.join()

    store = Kept()
    with record(Threaded(), store) as agent:
        agent.run("q")
    assert told == [False, True]
    assert [s.text for s in store.only().steps] == ["q", "kept", ""]


ANSWERS = [
    ({"output": "yes", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}, "yes", (7, 2)),
    (SimpleNamespace(content="yes", usage_metadata={"input_tokens": 7, "output_tokens": 2}), "yes", (7, 2)),
    (SimpleNamespace(output="yes", usage=lambda: SimpleNamespace(input_tokens=7, output_tokens=2)), "yes", (7, 2)),
    ({"messages": [SimpleNamespace(content="no"), SimpleNamespace(content="yes")]}, "yes", (None, None)),
    ([{"role": "user", "content": "no"}, {"role": "assistant", "content": "yes"}], "yes", (None, None)),
    ({"area": 12, "unit": ["m", "\xb2"]}, '{"area": 12, "unit": ["m", "\xb2"]}', (None, None)),
    (12.5, "12.5", (None, None)),
    (None, "", (None, None)),
]


@pytest.mark.parametrize(("answer", "text", "tokens"), ANSWERS)
def test_answers_of_many_kinds_are_read_and_handed_on_as_they_are(answer: Any, text: str, tokens: Any):
    class Any_:  # noqa: N801 - any agent
        def run(self, request: Any) -> Any:
            return answer

    store = Kept()
    with record(Any_(), store) as agent:
        assert agent.run([{"role": "user", "content": "hello"}]) is answer
    last = store.only().steps[-1]
    assert store.only().request == "hello"
    assert (last.text, (last.num_prompt_tokens, last.num_completion_tokens)) == (text, tokens)


def test_objects_that_cannot_be_read_cost_the_trace_and_not_the_run(caplog: pytest.LogCaptureFixture):
    class Hostile:
        @property
        def content(self) -> str:
            raise RuntimeError("do not look")

    class Giving:
        def run(self, request: Any) -> Any:
            return request

    hostile, store = Hostile(), Kept()
    recording = record(Giving(), store)
    with recording as agent:
        assert agent.run(hostile) is hostile
        assert agent.run(hostile) is hostile
        assert agent.run("fine") == "fine"
    assert recording.num_lost == 2
    assert store.only().request == "fine"
    assert len([r for r in caplog.records if "could not be recorded" in r.message]) == 1


def test_a_pydantic_agent_is_recorded_and_stays_what_it_was():
    class Model(BaseModel, extra="forbid"):
        name: str

        def run(self, request: str) -> str:
            return request

    agent, store = Model(name="m"), Kept()
    with record(agent, store):
        assert agent.run("q") == "q"
    assert store.only().request == "q"
    assert agent == Model(name="m")
    assert agent.model_dump() == {"name": "m"}


def test_what_cannot_be_wrapped_is_refused_with_the_reason():
    class Slotted:
        __slots__ = ()

        def run(self) -> None: ...

    with pytest.raises(ConfigError, match=r"must have one of run, arun, .*, dict has none"):
        record({}, Kept())
    with pytest.raises(ConfigError, match="must take attributes, Slotted does not"):
        record(Slotted(), Kept())
