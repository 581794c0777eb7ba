"""Records what any agent object does while it is used: each run becomes one trace.

    with record(agent, TraceStore(folder)):
        answer = await agent.run("How large is 3 by 4?")

and, as deep inside as one likes:

    step("12", tool="area", arguments={"width": 3, "height": 4})

Recording never changes, breaks or delays a run: traces are written by a thread of their own, and what goes wrong there
is counted and said once.
"""

import functools
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, closing, contextmanager
from types import TracebackType
from typing import Any, Protocol

from skyrl_nat.data.traces import plain
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.recorded_run import RecordedRun, current_run, inside, step
from skyrl_nat.errors import ConfigError

__all__ = ["METHODS", "Recording", "Store", "record", "step"]
METHODS = ("run", "arun", "invoke", "ainvoke", "stream", "astream")
"""What is wrapped, where the agent has it."""
MAX_PENDING = 1000
"""Traces that wait for a slow disk; further ones are lost, and counted."""
_logger = logging.getLogger(__name__)


class Store(Protocol):
    """Takes finished traces."""

    def append(self, traces: list[Trace], /) -> Any:
        """Keep them."""
        ...


def record(agent: Any, store: Store, *, name: str = "", methods: tuple[str, ...] = METHODS) -> "Recording":
    """Record each run of an agent from now on, until the recording is closed.

    Args:
        agent: Any object; those of `methods` that it has are wrapped on this object alone.
        store: Where traces go.
        name: Of the agent in its traces; empty takes its class's.
        methods: Names of what begins a run. Only the outermost call of one agent is a run.

    Raises:
        ConfigError: The object has none of the methods, or takes no attributes.
    """
    return Recording(agent, store, name, methods)


class Recording:
    """Wraps an agent until it is closed; a context manager that gives the agent."""

    def __init__(self, agent: Any, store: Store, name: str, methods: tuple[str, ...]) -> None:
        """Wrap; see `record`."""
        self.num_lost = 0
        """Traces that could not be written."""
        self._agent = agent
        self._store = store
        self._name = name
        self._open: set[RecordedRun] = set()
        self._num_pending = 0
        self._lock = threading.Lock()
        found = [method for method in methods if callable(getattr(agent, method, None))]
        if not found:
            raise ConfigError(
                f"An agent to record must have one of {', '.join(methods)}, {type(agent).__name__} has none. "
                "Name its methods"
            )
        self._own = {method: vars(agent)[method] for method in found if method in getattr(agent, "__dict__", {})}
        try:
            for method in found:
                object.__setattr__(agent, method, self._wrap(method, getattr(agent, method)))
        except AttributeError as error:
            raise ConfigError(
                f"An agent to record must take attributes, {type(agent).__name__} does not: {error}. "
                "Record an object that holds it"
            ) from error
        self._wrapped = found
        # Its work is finished before the interpreter ends, even without `close`.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="traces")

    def __enter__(self) -> Any:
        """Give the agent."""
        return self._agent

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Give the agent its own methods back, and wait until all traces are written."""
        for method in self._wrapped:
            if method in self._own:
                object.__setattr__(self._agent, method, self._own[method])
            else:
                object.__delattr__(self._agent, method)
        self._wrapped = []
        self._writer.shutdown(wait=True)

    def _wrap(self, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
        wrap = _wrap_call
        if inspect.iscoroutinefunction(original):
            wrap = _wrap_coroutine
        elif inspect.isasyncgenfunction(original):
            wrap = _wrap_async_stream
        elif inspect.isgeneratorfunction(original):
            wrap = _wrap_stream
        return functools.wraps(original)(wrap(self, method, original))

    def begin(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedRun | None:
        """Return a new run, or None inside a run of the same agent, and where it cannot be recorded."""
        current = current_run()
        if current is not None and current.agent is self._agent:
            return None
        try:
            with self._lock:
                for other in self._open:
                    other.is_alone = False
                run = RecordedRun(
                    self._agent,
                    method,
                    plain.text(args[0] if args else next(iter(kwargs.values()), None)),
                    not self._open,
                )
                self._open.add(run)
            return run
        except Exception as error:  # noqa: BLE001 - whatever the agent's arguments raise must not reach its caller
            self._lose(error)
            return None

    def end(self, run: RecordedRun) -> None:
        """Hand a run to the writer."""
        try:
            with self._lock:
                self._open.discard(run)
                is_full = self._num_pending >= MAX_PENDING
                self._num_pending += not is_full
            if is_full:
                self._lose(RuntimeError(f"{MAX_PENDING} traces wait for the disk"))
                return
            self._writer.submit(self._write, run.finish(self._name))
        except Exception as error:  # noqa: BLE001 - whatever the agent's answer raises must not reach its caller
            self._lose(error)

    def _write(self, trace: Trace) -> None:
        try:
            self._store.append([trace])
        except Exception as error:  # noqa: BLE001 - a full disk ends the trace, not the agent
            self._lose(error)
        finally:
            with self._lock:
                self._num_pending -= 1

    def _lose(self, error: Exception) -> None:
        with self._lock:
            self.num_lost += 1
            is_first = self.num_lost == 1
        if is_first:
            _logger.warning(
                "A trace of %s could not be recorded: %r. The agent goes on; further ones are only counted",
                self._name or type(self._agent).__name__,
                error,
            )


@contextmanager
def _ending(recording: Recording, run: RecordedRun) -> Iterator[None]:
    """End a run on leaving."""
    try:
        yield
    except GeneratorExit:
        run.is_stopped = True
        raise
    except BaseException as error:
        run.error = error
        raise
    finally:
        recording.end(run)


def _wrap_coroutine(recording: Recording, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        run = recording.begin(method, args, kwargs)
        inner = original(*args, **kwargs)
        return await (inner if run is None else _follow_coroutine(recording, run, inner))

    return call


def _wrap_async_stream(recording: Recording, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    async def stream(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        run = recording.begin(method, args, kwargs)
        inner = original(*args, **kwargs)
        async with aclosing(inner if run is None else _follow_async(recording, run, inner)) as items:
            async for item in items:
                yield item

    return stream


def _wrap_stream(recording: Recording, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def stream(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        run = recording.begin(method, args, kwargs)
        inner = original(*args, **kwargs)
        return (yield from inner if run is None else _follow(recording, run, inner))

    return stream


def _wrap_call(recording: Recording, method: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a plain method, which may still give something to wait for or to iterate over."""

    def call(*args: Any, **kwargs: Any) -> Any:
        run = recording.begin(method, args, kwargs)
        if run is None:
            return original(*args, **kwargs)
        try:
            with inside(run):
                run.answer = result = original(*args, **kwargs)
        except BaseException as error:
            run.error = error
            recording.end(run)
            raise
        follow = next((follow for is_kind, follow in _LATER if is_kind(result)), None)
        if follow is None:
            recording.end(run)
            return result
        return follow(recording, run, result)

    return call


async def _follow_coroutine(recording: Recording, run: RecordedRun, inner: Any) -> Any:
    with _ending(recording, run), inside(run):
        run.answer = await inner
        return run.answer


async def _follow_async(
    recording: Recording, run: RecordedRun, inner: AsyncGenerator[Any, None]
) -> AsyncGenerator[Any, None]:
    """Yield what a stream yields; between two items the caller is outside of the run."""
    with _ending(recording, run):
        async with aclosing(inner):
            while True:
                with inside(run):
                    item = await anext(inner, _END)
                if item is _END:
                    return
                run.parts.append(item)
                yield item


def _follow(recording: Recording, run: RecordedRun, inner: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Yield what a stream yields; between two items the caller is outside of the run."""
    with _ending(recording, run), closing(inner):
        while True:
            with inside(run):
                try:
                    item = next(inner)
                except StopIteration as end:
                    run.answer = end.value
                    return end.value
            run.parts.append(item)
            yield item


_END = object()
_LATER: tuple[tuple[Callable[[Any], bool], Callable[..., Any]], ...] = (
    (inspect.iscoroutine, _follow_coroutine),
    (inspect.isasyncgen, _follow_async),
    (inspect.isgenerator, _follow),
)
