"""A deployment's requests, latencies, fallbacks and feedback are counted, and no text of a user becomes a series."""

import asyncio
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from skyrl_nat.monitoring.deployment_metrics import MAX_VALUES, DeploymentMetrics


def read(metrics: DeploymentMetrics) -> dict[str, float]:
    text, kind = metrics.page()
    assert kind.startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(text.decode()):
        for one in family.samples:
            label = ",".join(value for name, value in one.labels.items() if name != "le")
            found[f"{one.name.removeprefix('skyrl_nat_deploy_')}({label})"] = one.value
    return found


def test_requests_count_by_outcome_with_their_seconds_also_those_that_fail_or_are_cancelled() -> None:
    metrics = DeploymentMetrics()
    with metrics.request() as note:
        assert read(metrics)["in_flight()"] == 1
        time.sleep(0.05)
        note.outcome = "trained"
    with pytest.raises(ValueError, match="gone"), metrics.request():
        raise ValueError("gone")
    with pytest.raises(asyncio.CancelledError), metrics.request():
        raise asyncio.CancelledError
    found = read(metrics)
    assert found["in_flight()"] == 0
    assert (found["requests_total(trained)"], found["requests_total(error)"]) == (1, 1)
    assert found["requests_total(cancelled)"] == 1
    assert 0.05 <= found["request_seconds_sum(trained)"] < 5


def test_fallbacks_verdicts_feedback_and_phases_are_counted() -> None:
    metrics = DeploymentMetrics()
    assert read(metrics)["feedback_total(bad)"] == 0
    metrics.fallback("fallback_timeout")
    metrics.verdict(True)
    metrics.verdict(False)
    metrics.verdict(True)
    metrics.feedback("bad")
    metrics.phase("plan", 2.0)
    found = read(metrics)
    assert found["fallbacks_total(fallback_timeout)"] == 1
    assert (found["verdicts_total(passed)"], found["verdicts_total(failed)"]) == (2, 1)
    assert found["feedback_total(bad)"] == 1
    assert found["phase_seconds_sum(plan)"] == 2.0


def test_text_and_ever_new_words_count_as_other() -> None:
    metrics = DeploymentMetrics()
    metrics.fallback("Timeout of user 1234: please help")
    for number in range(100):
        metrics.feedback(f"word_{number}")
    found = read(metrics)
    assert found["fallbacks_total(other)"] == 1
    assert found["feedback_total(other)"] == 100 - MAX_VALUES
    assert len([name for name in found if name.startswith("feedback_total")]) == MAX_VALUES + 3
