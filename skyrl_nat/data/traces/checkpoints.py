"""Checkpoint files of one run, each of which repeats the earlier ones and goes on: each execution once, newest wins."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from skyrl_nat.data.traces.chat_logs import chats_of, traces_of
from skyrl_nat.data.traces.collected import Collected, read_json_lines
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.record_json import trace_of
from skyrl_nat.errors import DataError

REPEATED = "trace that a later checkpoint holds too"
_NUMBER = re.compile(r"(\d+)")


def checkpoint_files(folder: Path, pattern: str = "*.jsonl") -> list[Path]:
    """Return a folder's checkpoints, oldest first: by the numbers in their names, so that step 10 follows step 9.

    Raises:
        DataError: There is none.
    """
    files = sorted(folder.glob(pattern), key=lambda path: [_rank(part) for part in _NUMBER.split(path.name)])
    if not files:
        raise DataError(f"{folder} must hold checkpoints named {pattern}, there is none. Check the path")
    return files


def read_checkpoints(paths: Sequence[Path]) -> Collected:
    """Return the executions of overlapping files of traces or of chat rows, in the order of their first appearance.

    Two rows are the same execution where they have one trace id, or say the same: request, steps and files, whatever
    they were worth. What is there twice in one file happened twice.

    Args:
        paths: Oldest first.

    Raises:
        DataError: A file cannot be read, or no row in any is a trace.
    """
    collected = Collected()
    newest: dict[str, Trace] = {}
    keys: dict[str, str] = {}
    for path in paths:
        counts: Counter[str] = Counter()
        taken: set[str] = set()
        for trace, place in _read_file(path, collected):
            content = content_of(trace)
            counts[content] += 1
            name = f"{content[:32]}-{counts[content]}"
            trace = trace if trace.trace_id else replace(trace, trace_id=f"checkpoint-{name}", source="checkpoint")
            key = keys.get(trace.trace_id) or keys.get(name) or name
            key = f"{name}-{trace.trace_id}" if key in taken else key
            if key in newest:
                collected.leave_out(REPEATED, place)
            newest[key] = trace
            taken.add(key)
            keys |= {trace.trace_id: key, name: key}
    if not newest:
        raise DataError(f"Checkpoints must hold traces, {', '.join(map(str, paths))} hold none. Name others")
    collected.traces = list(newest.values())
    return collected.say()


def content_of(trace: Trace) -> str:
    """Return the identity of what happened: the request, the steps and the files."""
    steps = [(step.kind, step.role, step.text, step.tool, step.arguments) for step in trace.steps]
    said = json.dumps([trace.request, steps, trace.files], sort_keys=True, default=str)
    return hashlib.sha256(said.encode()).hexdigest()


def _read_file(path: Path, collected: Collected) -> Iterator[tuple[Trace, str]]:
    """Yield traces and places; rows of chats have no trace id yet."""
    for place, row in read_json_lines(path, collected):
        if isinstance(row, dict) and "steps" in row:
            try:
                yield trace_of(row, place), place
            except DataError as error:
                collected.leave_out("row that is no trace", str(error))
        else:
            for trace in traces_of(chats_of(row, place, collected), collected):
                yield replace(trace, trace_id=""), place


def _rank(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdigit() else (-1, part)
