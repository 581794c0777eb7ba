"""Named stretches of a rollout's life, for whoever measures them: latencies of this process, traces across processes.

Where nobody does, a stretch costs one look at two names.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

VARIABLE = "SKYRL_NAT_TRACES"
"""Environment variable of all processes of a run that is traced: `otlp`, or the folder of the files."""
Attributes = dict[str, str | bool | int | float]
Observer = Callable[[str, float, Attributes], None]
"""Gets name, seconds and attributes of a stretch that has ended; one that failed has `error`."""


class Tracing(Protocol):
    """Makes spans of stretches (`traces.Traces`)."""

    def span(self, name: str, parent: str | None, attributes: Attributes) -> AbstractContextManager[None]:
        """Have a span while the block runs; attributes are read at its end."""
        ...

    def carried(self) -> str | None:
        """Return the span that this task is in, as it travels to another process; None where there is none."""
        ...

    def flush(self) -> None:
        """Send the spans that are left."""
        ...

    def close(self) -> None:
        """Send the spans that are left, and end."""
        ...


class _Measuring:
    """Who measures in this process."""

    def __init__(self) -> None:
        self.observers: tuple[Observer, ...] = ()
        self.tracing: Tracing | None = None
        self.target = ""


class _Nothing:
    """A stretch that nobody measures."""

    def __enter__(self) -> Attributes:
        return {}

    def __exit__(self, *_: object) -> None:
        return None


_measuring = _Measuring()
_nothing = _Nothing()


def span(
    name: str, *, parent: str | None = None, **attributes: str | bool | int | float
) -> AbstractContextManager[Attributes]:
    """Measure a block; what it learns meanwhile it adds to the attributes that it gets.

    Args:
        name: One of few.
        parent: What `carried` returned, for a block whose task is in no span.
        **attributes: What is known before.
    """
    if not _measuring.observers and _measuring.tracing is None:
        return _nothing
    return _measured(name, parent, attributes)


def carried() -> str | None:
    """Return the span that this task is in, for another process or task; None where none is recorded."""
    return None if _measuring.tracing is None else _measuring.tracing.carried()


def observe(observer: Observer) -> Callable[[], None]:
    """Tell an observer of every stretch from now on; what is returned ends that."""
    _measuring.observers += (observer,)

    def end() -> None:
        _measuring.observers = tuple(one for one in _measuring.observers if one is not observer)

    return end


def trace_to(target: str, role: str, *, share: float = 1.0) -> None:
    """Make spans of stretches from now on.

    Args:
        target: `otlp`, or the folder of the files.
        role: Of this process.
        share: Of the rollouts that begin in this process.

    Raises:
        ImportError: OpenTelemetry is not installed.
        OSError: The folder cannot be written.
    """
    from skyrl_nat.monitoring.traces import Traces

    _measuring.tracing, _measuring.target = Traces(target, role, share=share), target


def trace_as_told(role: str) -> None:
    """Make spans if the environment says so; where that is not possible, this process has none."""
    if target := os.environ.get(VARIABLE):
        with suppress(ImportError, OSError):
            trace_to(target, role)


def flush_traces() -> None:
    """Send the spans that are left."""
    if _measuring.tracing is not None:
        _measuring.tracing.flush()


def end_traces() -> None:
    """Send the spans that are left, and make no more."""
    tracing, _measuring.tracing, _measuring.target = _measuring.tracing, None, ""
    if tracing is not None:
        tracing.close()


def environment() -> dict[str, str]:
    """Return the environment variables with which a process makes spans as this one does."""
    return {VARIABLE: _measuring.target} if _measuring.target else {}


@contextmanager
def _measured(name: str, parent: str | None, attributes: Attributes) -> Iterator[Attributes]:
    tracing, started = _measuring.tracing, time.monotonic()
    try:
        if tracing is None:
            yield attributes
        else:
            with tracing.span(name, parent, attributes):
                yield attributes
    except BaseException as error:
        attributes["error"] = type(error).__name__
        raise
    finally:
        for tell in _measuring.observers:
            tell(name, time.monotonic() - started, attributes)
