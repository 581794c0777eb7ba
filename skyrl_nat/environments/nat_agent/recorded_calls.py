"""The calls of tools that a package's tests made, and tables of other answers to them."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_nat.environments.nat_agent.oracle import Answer

MAX_CALLS = 160
"""Different calls of the tests that are looked at."""
MAX_CALL_CHARS = 60_000
"""Of all of them together: what is asked must be answered."""

Report = Mapping[str, Any]
Table = dict[str, Any]
"""Key of a call -> `{"output": JSON}` or `{"raises": class, "message": text}`."""


def recorded_calls(reports: Sequence[Report]) -> dict[str, Report]:
    """Return the recorded calls by key; a call that was answered in two ways is left out."""
    found: dict[str, Report] = {}
    unsteady: set[str] = set()
    for report in reports:
        if not isinstance(report.get("call"), str) or not isinstance(report.get("options"), dict):
            continue
        key = call_key(report["call"], report["options"], report.get("input"))
        if key in found and _said(found[key]) != _said(report):
            unsteady.add(key)
        found.setdefault(key, report)
    kept: dict[str, Report] = {}
    room = MAX_CALL_CHARS
    for key, report in found.items():
        room -= len(key) + len(json.dumps(report.get("output")))
        if key not in unsteady and room >= 0 and len(kept) < MAX_CALLS:
            kept[key] = report
    return kept


def callers_of(reports: Sequence[Report]) -> dict[str, set[str]]:
    """Return the tests that made each call, without parameters."""
    found: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        if isinstance(report.get("call"), str) and isinstance(report.get("options"), dict):
            key = call_key(report["call"], report["options"], report.get("input"))
            found[key].add(str(report.get("by")).partition("[")[0])
    return found


def call_key(tool: str, options: Mapping[str, Any], value: Any) -> str:
    """Return the key of a call in a table; the same as inside the sandbox."""
    return json.dumps([tool, options, value], sort_keys=True)


def stranger_key(tool: str) -> str:
    """Return the key of all calls of a tool that have none of their own; the same as inside the sandbox."""
    return json.dumps([tool])


def _said(report: Report) -> tuple[Any, Any]:
    raised = report.get("raised")
    return report.get("output"), raised[0] if isinstance(raised, list) and raised else None


def table_of(calls: Mapping[str, Report], answers: Sequence[Answer]) -> Table:
    """Return what the tools are to answer; an exception says what the package's own said, whatever that was."""
    table: Table = {}
    for (key, call), answer in zip(calls.items(), answers, strict=True):
        if answer.raises:
            table[key] = {"raises": answer.raises, "message": str(call.get("error", "")).partition(": ")[2]}
        else:
            table[key] = {"output": json.dumps(answer.output)}
    return table


def agree(call: Report, before: Report) -> bool:
    """Return whether a call was answered as before; the words of an exception do not matter."""
    return _said(call) == _said(before)


def own_answer(call: Report) -> dict[str, str]:
    """Return what the package itself has answered, as it stands in a table."""
    output, raised = _said(call)
    if raised is None:
        return {"output": json.dumps(output)}
    return {"raises": str(raised), "message": str(call.get("error", "")).partition(": ")[2]}


def without_new_refusals(table: Table, right: Table) -> Table:
    """Return a table in which a call that only raises now is answered as it was."""
    return {key: right[key] if "raises" in entry and "output" in right[key] else entry for key, entry in table.items()}


def answers_to_strangers(calls: Mapping[str, Report]) -> Table:
    """Return, for each tool, a wrong answer to all calls that are in no table, made of what the package itself said.

    Else such a call would fail, and with it a test that has merely passed on what another call gave.
    """
    own = {stranger_key(call["call"]): own_answer(call) for call in calls.values()}
    return other_answers(own, is_larger=True)


def other_answers(table: Table, *, is_larger: bool) -> Table:
    """Return a table in which no answer is as it was, and nothing raises."""
    change = _larger if is_larger else _smaller
    return {
        key: {"output": json.dumps(change(json.loads(entry["output"])) if "output" in entry else None)}
        for key, entry in table.items()
    }


def _larger(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return abs(value) * 2 + 1
    if isinstance(value, str):
        return f"{value}{value}?"
    if isinstance(value, list):
        return [*value, _larger(value[-1]) if value else None]
    if isinstance(value, dict):
        return {key: _larger(item) for key, item in value.items()} or {"?": None}
    return "?"


def _smaller(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return -abs(value) * 2 - 1
    if isinstance(value, str):
        return "" if value else "?"
    if isinstance(value, list):
        return [] if value else [None]
    if isinstance(value, dict):
        return {key: _smaller(item) for key, item in value.items()} or {"?": None}
    return 0
