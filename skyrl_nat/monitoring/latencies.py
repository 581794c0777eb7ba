"""Counters and histograms of the stretches that `spans` tells of."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from skyrl_nat.monitoring.prometheus_names import PREFIX
from skyrl_nat.monitoring.spans import Attributes
from skyrl_nat.types import Outcome

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000)
"""Upper bounds of the buckets of latencies."""
KINDS = ("train", "eval")
"""Of rollouts, that every run has."""


class Latencies:
    """What this process's rollouts took and how they ended; an `Observer`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register everything."""
        self._rollout_s = Histogram(
            f"{PREFIX}_rollout_seconds", "Rollout, verdict included", ["kind"], registry=registry, buckets=SECONDS
        )
        self._rollouts = Counter(f"{PREFIX}_rollouts", "Rollouts that are over", ["kind", "outcome"], registry=registry)
        self._judged = Counter(f"{PREFIX}_judged", "Rollouts with a verdict", ["kind"], registry=registry)
        self._successes = Counter(f"{PREFIX}_successes", "Rollouts that succeeded", ["kind"], registry=registry)
        self._calls = {
            "turn": _histogram(registry, "turn", "Turn: completion and reply of the environment"),
            "generate": _histogram(registry, "generate", "Request to an engine"),
            "score": _histogram(registry, "validator", "Verdict on a rollout"),
        }
        self._environment_s = Histogram(
            f"{PREFIX}_environment_seconds",
            "Call of an environment",
            ["call"],
            registry=registry,
            buckets=SECONDS,
        )
        self._failures = Counter(f"{PREFIX}_call_failures", "Calls that gave nothing", ["call"], registry=registry)
        # A rate sees nothing of the first count of a series that was not there before.
        for call in (*self._calls, "environment"):
            self._failures.labels(call)
        for kind in KINDS:
            self._judged.labels(kind)
            self._successes.labels(kind)
            for outcome in Outcome:
                self._rollouts.labels(kind, outcome)

    def __call__(self, name: str, seconds: float, attributes: Attributes) -> None:
        """Count one stretch; one that was cancelled tells nothing."""
        if attributes.get("error") == "CancelledError":
            return
        if "error" in attributes or attributes.get("is_verdict") is False:
            self._failures.labels(name).inc()
        if name == "rollout":
            self._count_rollout(seconds, attributes)
        elif name == "environment":
            self._environment_s.labels(attributes["call"]).observe(seconds)
        elif name in self._calls:
            self._calls[name].observe(seconds)

    def _count_rollout(self, seconds: float, attributes: Attributes) -> None:
        kind = str(attributes["kind"])
        self._rollout_s.labels(kind).observe(seconds)
        self._rollouts.labels(kind, attributes.get("outcome", "error")).inc()
        if "is_success" in attributes:
            self._judged.labels(kind).inc()
            self._successes.labels(kind).inc(float(attributes["is_success"]))


def _histogram(registry: CollectorRegistry, name: str, text: str) -> Histogram:
    return Histogram(f"{PREFIX}_{name}_seconds", text, registry=registry, buckets=SECONDS)
