"""Spans for OpenTelemetry: one rollout is one trace, whose spans come from all processes that worked on it."""

import logging
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from skyrl_nat.monitoring.spans import Attributes

SEND_S = 1.0
"""Between two parcels of spans."""
END_S = 3.0
"""For a parcel to be taken."""
_LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""Who tells of a collector that does not answer."""
_propagator = TraceContextTextMapPropagator()


class Traces:
    """Makes and sends the spans of this process; a `spans.Tracing`."""

    def __init__(self, target: str, role: str, *, share: float = 1.0) -> None:
        """Open the way out.

        Args:
            target: `otlp`, or the folder of the files.
            role: Of this process.
            share: Of the traces that begin here.

        Raises:
            OSError: The folder cannot be written.
        """
        resource = Resource.create({"service.name": "skyrl-nat", "skyrl_nat.role": role, "process.pid": os.getpid()})
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(share)),
            resource=resource,
            id_generator=_OwnIds(),
            shutdown_on_exit=False,
        )
        exporter = _otlp() if target == "otlp" else _file(Path(target), role)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000 * SEND_S))
        self._tracer = self._provider.get_tracer("skyrl_nat")

    @contextmanager
    def span(self, name: str, parent: str | None, attributes: Attributes) -> Iterator[None]:
        """Have a span while the block runs; see `spans.Tracing`."""
        context = None
        if parent is not None and not trace.get_current_span().get_span_context().is_valid:
            context = _propagator.extract({"traceparent": parent})
        with self._tracer.start_as_current_span(name, context) as span:
            try:
                yield
            finally:
                span.set_attributes(attributes)

    def carried(self) -> str | None:
        """Return the current span as a `traceparent`; None where it is not recorded."""
        if not trace.get_current_span().is_recording():
            return None
        carrier: dict[str, str] = {}
        _propagator.inject(carrier)
        return carrier["traceparent"]

    def flush(self) -> None:
        """Send what is left."""
        self._provider.force_flush(int(1000 * END_S))

    def close(self) -> None:
        """Send what is left and end."""
        self._provider.shutdown()


class _OwnIds(IdGenerator):
    """Ids from the system: OpenTelemetry's own would draw from `random`, whose numbers runs are repeated with."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def generate_span_id(self) -> int:
        return self._random.randrange(1, 2**64)

    def generate_trace_id(self) -> int:
        return self._random.randrange(1, 2**128)


class _Once(logging.Filter):
    """Lets one record through: a collector that is away would be told of with every parcel."""

    def __init__(self) -> None:
        super().__init__()
        self._is_said = False

    def filter(self, record: logging.LogRecord) -> bool:
        was_said, self._is_said = self._is_said, True
        return not was_said


def _otlp() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_Once())
    return OTLPSpanExporter(timeout=END_S)


def _file(folder: Path, role: str) -> SpanExporter:
    folder.mkdir(parents=True, exist_ok=True)
    out = (folder / f"{role}-{os.getpid()}.jsonl").open("a", encoding="utf-8")
    return ConsoleSpanExporter(out=out, formatter=_line)


def _line(span: ReadableSpan) -> str:
    return span.to_json(indent=None) + "\n"
