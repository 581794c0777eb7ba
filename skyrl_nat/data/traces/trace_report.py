"""What a collection of traces holds, counted: as a dict, as JSON and as Markdown."""

import hashlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from skyrl_nat.data.traces.record import StepKind, Trace
from skyrl_nat.data.traces.verdicts import LABEL, PARTS, SUGGESTED, label_of, parse_reward

NO_VALUE = "none"
_LENGTHS: dict[str, Callable[[Trace], float | None]] = {
    "steps": lambda trace: len(trace.steps),
    "tool calls": lambda trace: sum(step.kind is StepKind.tool for step in trace.steps),
    "failed tool calls": lambda trace: sum(step.is_error for step in trace.steps),
    "request characters": lambda trace: len(trace.request),
    "characters of all steps": lambda trace: sum(len(step.text) for step in trace.steps),
    "files left behind": lambda trace: len(trace.files),
    "tokens written": lambda trace: _total(step.num_completion_tokens for step in trace.steps),
    "seconds": lambda trace: trace.seconds,
}


def trace_report(traces: Sequence[Trace], *, left_out: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Return the counts as JSON values; where nothing was recorded the count is 0 and there are no other numbers.

    Args:
        traces: All of them.
        left_out: Reason -> count of what did not become a trace or an example, as collectors and data sets give it.

    Raises:
        DataError: A label is no label.
    """
    rewards = [parse_reward(trace.reward) for trace in traces]
    parts: dict[str, list[float | None]] = {}
    for trace in traces:
        for name, value in (trace.labels.get(PARTS) or {}).items():
            parts.setdefault(name, []).append(parse_reward(value)[0])
    return {
        "num_traces": len(traces),
        "by_source": _count(trace.source for trace in traces),
        "by_outcome": _count(trace.outcome for trace in traces),
        "by_label": _count(_word(trace, LABEL) for trace in traces),
        "by_suggested_label": _count(_word(trace, SUGGESTED) for trace in traces),
        "agreement": _agreement(traces),
        "rewards": {
            "reward": summarize(reward for reward, _ in rewards),
            **{name: summarize(values) for name, values in sorted(parts.items())},
        },
        "rewards_not_used": _count(fault for _, fault in rewards if fault),
        "lengths": {name: summarize(map(length, traces)) for name, length in _LENGTHS.items()},
        "duplicates": _duplicates(traces),
        "left_out": dict(left_out or {}),
    }


def summarize(values: Iterable[float | None]) -> dict[str, float]:
    """Return count, min, mean, median, the 90th percentile and max of the values that are finite numbers.

    The percentile is the smallest value that at least 90 % of the values do not exceed.
    """
    known = sorted(float(value) for value in values if value is not None and math.isfinite(value))
    if not known:
        return {"count": 0}
    return {
        "count": len(known),
        "min": known[0],
        "mean": statistics.fmean(known),
        "median": statistics.median(known),
        "p90": known[math.ceil(0.9 * len(known)) - 1],
        "max": known[-1],
    }


def report_json(report: Mapping[str, Any]) -> str:
    """Return a report as JSON text."""
    return json.dumps(report, indent=1, allow_nan=False) + "\n"


def report_markdown(report: Mapping[str, Any]) -> str:
    """Return a report as Markdown."""
    agreement, duplicates = report["agreement"], report["duplicates"]
    lines = ["# Traces", "", f"{report['num_traces']} traces.", ""]
    for title in ("by_source", "by_outcome", "by_label", "by_suggested_label"):
        lines += _count_table(title.replace("_", " ").capitalize(), report[title])
    lines += [
        f"Suggested and manual labels agree on {agreement['agree']} of {agreement['both']} traces that have both.",
        "",
        f"{duplicates['repeated_ids']} traces repeat an id, {duplicates['repeated_contents']} repeat the content of "
        "another id.",
        "",
        *_summary_table("Rewards", report["rewards"]),
        *_count_table("Rewards not used", report["rewards_not_used"]),
        *_summary_table("Lengths", report["lengths"]),
        *_count_table("Left out", report["left_out"]),
    ]
    return "\n".join(lines).rstrip() + "\n"


def content_key(trace: Trace) -> str:
    """Return a digest of what was asked, said and done; the same for two recordings of the same words."""
    steps = [[step.kind, step.role, step.text, step.tool, step.arguments] for step in trace.steps]
    text = json.dumps([trace.request, steps], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _duplicates(traces: Sequence[Trace]) -> dict[str, int]:
    """Return how many traces come again by id, and how many of the others by content."""
    unique = {trace.trace_id: trace for trace in reversed(traces)}
    contents = {content_key(trace) for trace in unique.values()}
    return {"repeated_ids": len(traces) - len(unique), "repeated_contents": len(unique) - len(contents)}


def _agreement(traces: Sequence[Trace]) -> dict[str, int]:
    pairs = [(label_of(trace), label_of(trace, SUGGESTED)) for trace in traces]
    both = [manual == suggested for manual, suggested in pairs if manual is not None and suggested is not None]
    return {"both": len(both), "agree": sum(both)}


def _word(trace: Trace, key: str) -> str:
    label = label_of(trace, key)
    return NO_VALUE if label is None else "good" if label else "bad"


def _count(words: Iterable[str]) -> dict[str, int]:
    """Return counts, the largest first."""
    return {str(word): count for word, count in sorted(Counter(words).items(), key=lambda item: (-item[1], item[0]))}


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _count_table(title: str, counts: Mapping[str, int]) -> list[str]:
    if not counts:
        return []
    return [f"## {title}", "", "| | count |", "|---|---|", *(f"| {name} | {n} |" for name, n in counts.items()), ""]


def _summary_table(title: str, summaries: Mapping[str, Mapping[str, float]]) -> list[str]:
    columns = ("count", "min", "mean", "median", "p90", "max")
    rows = [
        f"| {name} | " + " | ".join(f"{found[column]:.4g}" if column in found else "" for column in columns) + " |"
        for name, found in summaries.items()
    ]
    return [f"## {title}", "", f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|", *rows, ""]
