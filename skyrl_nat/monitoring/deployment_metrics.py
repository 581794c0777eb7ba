"""What a deployment tells Prometheus of its requests; whoever serves them calls it and hands `page` out as /metrics."""

import asyncio
import re
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from skyrl_nat.monitoring.latencies import SECONDS
from skyrl_nat.monitoring.prometheus_names import PREFIX

OTHER = "other"
MAX_VALUES = 20
"""Of a label; what comes after them counts as `other`, so that no text of a user becomes a series."""
_WORD = re.compile("[a-z][a-z0-9_]{0,39}")


@dataclass(slots=True)
class RequestNote:
    """What becomes of one request, said before its block ends."""

    outcome: str = "answered"


class DeploymentMetrics:
    """Counts requests, how long they take, who answers them in the policy's place, and what users say."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Register everything, in a registry of its own unless one is given."""
        self.registry = CollectorRegistry() if registry is None else registry
        self._known: dict[str, set[str]] = defaultdict(set)
        self._requests = self._counter("requests", "Requests that are over", "outcome")
        self._fallbacks = self._counter("fallbacks", "Requests that the baseline answered", "reason")
        self._feedback = self._counter("feedback", "Words of users", "rating")
        self._verdicts = self._counter("verdicts", "Verdicts of the validator on what was answered", "verdict")
        for counter, values in ((self._feedback, ("good", "bad")), (self._verdicts, ("passed", "failed"))):
            for value in values:
                counter.labels(value)
        self._in_flight = Gauge(f"{PREFIX}_deploy_in_flight", "Requests under way", registry=self.registry)
        self._request_s = Histogram(
            f"{PREFIX}_deploy_request_seconds",
            "A whole request",
            ["outcome"],
            registry=self.registry,
            buckets=SECONDS,
        )
        self._phase_s = Histogram(
            f"{PREFIX}_deploy_phase_seconds",
            "One phase of a request",
            ["phase"],
            registry=self.registry,
            buckets=SECONDS,
        )
        ProcessCollector(namespace=f"{PREFIX}_deploy", registry=self.registry)

    @contextmanager
    def request(self) -> Iterator[RequestNote]:
        """Count a request while the block runs; its outcome is what the note says, or how the block failed."""
        note, started = RequestNote(), time.monotonic()
        self._in_flight.inc()
        try:
            yield note
        except asyncio.CancelledError:
            note.outcome = "cancelled"
            raise
        except BaseException:
            note.outcome = "error"
            raise
        finally:
            self._in_flight.dec()
            outcome = self._word("outcome", note.outcome)
            self._requests.labels(outcome).inc()
            self._request_s.labels(outcome).observe(time.monotonic() - started)

    def phase(self, name: str, seconds: float) -> None:
        """Note how long one phase of a request took."""
        self._phase_s.labels(self._word("phase", name)).observe(seconds)

    def fallback(self, reason: str) -> None:
        """Count a request that the baseline answered."""
        self._fallbacks.labels(self._word("reason", reason)).inc()

    def verdict(self, is_success: bool) -> None:
        """Count a verdict on what was answered."""
        self._verdicts.labels("passed" if is_success else "failed").inc()

    def feedback(self, rating: str) -> None:
        """Count a word of a user."""
        self._feedback.labels(self._word("rating", rating)).inc()

    def page(self) -> tuple[bytes, str]:
        """Return the body of /metrics and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_PLAIN_0_0_4

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"{PREFIX}_deploy_{name}", text, [label], registry=self.registry)

    def _word(self, label: str, value: str) -> str:
        known = self._known[label]
        if value not in known and len(known) < MAX_VALUES and _WORD.fullmatch(value):
            known.add(value)
        return value if value in known else OTHER
