"""The report on a collection of traces."""

import json
import math

import pytest

from skyrl_nat.data.traces.record import StepKind, Trace, TraceOutcome, TraceStep
from skyrl_nat.data.traces.trace_report import report_json, report_markdown, summarize, trace_report
from skyrl_nat.errors import DataError

CALL = TraceStep(kind=StepKind.tool, tool="bash", text="ok", is_error=True, num_completion_tokens=5)


def trace(name: str, **fields) -> Trace:
    return Trace(**{"trace_id": name, "source": "chat", "request": "Do it", "steps": ()} | fields)


TRACES = [
    trace("a", source="nat", steps=(CALL, CALL), outcome=TraceOutcome.success, reward=0.5, seconds=2.0),
    trace("b", labels={"label": "no", "suggested_label": True, "parts": {"syntax": 0.25}}, reward="0.7"),
    trace("c", labels={"label": True, "suggested_label": True, "parts": {"syntax": 0.75}}, reward=math.nan),
    trace("c", labels={"suggested_label": False}, request="Something else", seconds=math.nan),
]


def test_counts_by_hand() -> None:
    report = trace_report(TRACES, left_out={"broken line": 3})
    assert report["num_traces"] == 4
    assert report["by_source"] == {"chat": 3, "nat": 1}
    assert report["by_outcome"] == {"unknown": 3, "success": 1}
    assert report["by_label"] == {"none": 2, "bad": 1, "good": 1}
    assert report["by_suggested_label"] == {"good": 2, "bad": 1, "none": 1}
    assert report["agreement"] == {"both": 2, "agree": 1}
    assert report["left_out"] == {"broken line": 3}


def test_ds_14_odd_rewards_are_counted_and_never_averaged() -> None:
    report = trace_report(TRACES)
    assert report["rewards"]["reward"]["count"] == 2
    assert report["rewards"]["reward"]["mean"] == pytest.approx(0.6)
    assert report["rewards_not_used"] == {"no reward": 1, "the reward is NaN": 1}
    assert report["rewards"]["syntax"] == pytest.approx(
        {"count": 2, "min": 0.25, "mean": 0.5, "median": 0.5, "p90": 0.75, "max": 0.75}
    )


def test_lengths_count_only_what_was_recorded() -> None:
    lengths = trace_report(TRACES)["lengths"]
    assert lengths["steps"] == {"count": 4, "min": 0, "mean": 0.5, "median": 0, "p90": 2, "max": 2}
    assert lengths["tokens written"] == {"count": 1, "min": 10, "mean": 10, "median": 10, "p90": 10, "max": 10}
    assert lengths["seconds"]["count"] == 1
    assert lengths["failed tool calls"]["max"] == 2


def test_duplicates_by_id_and_by_content_are_counted_apart() -> None:
    # c comes twice (once more than it should); b and the first c have the same words under two ids
    assert trace_report(TRACES)["duplicates"] == {"repeated_ids": 1, "repeated_contents": 1}


def test_the_percentile_is_a_value_that_occurs() -> None:
    assert summarize(range(1, 11)) == {"count": 10, "min": 1, "mean": 5.5, "median": 5.5, "p90": 9, "max": 10}
    assert summarize([None, math.inf]) == {"count": 0}


def test_json_is_strict_and_markdown_names_every_number() -> None:
    report = trace_report(TRACES, left_out={"broken line": 3})
    assert json.loads(report_json(report), parse_constant=pytest.fail) == report
    text = report_markdown(report)
    for line in (
        "4 traces.",
        "| chat | 3 |",
        "Suggested and manual labels agree on 1 of 2 traces that have both.",
        "1 traces repeat an id, 1 repeat the content of another id.",
        "| syntax | 2 | 0.25 | 0.5 | 0.5 | 0.75 | 0.75 |",
        "| broken line | 3 |",
        "| the reward is NaN | 1 |",
    ):
        assert line in text.splitlines(), text


def test_no_traces_give_an_empty_report() -> None:
    report = trace_report([])
    assert (report["num_traces"], report["rewards"]["reward"]) == (0, {"count": 0})
    assert report_markdown(report).startswith("# Traces\n\n0 traces.\n")


def test_ds_13_a_label_that_is_none_is_refused_with_its_trace() -> None:
    with pytest.raises(DataError, match="Trace x, label: A label must be"):
        trace_report([trace("x", labels={"label": None})])
