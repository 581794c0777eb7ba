"""What users say of created agents: lines that are on the disk before they are thanked, and training traces of them."""

import hashlib
import json
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from skyrl_nat.data.traces.collected import Collected, read_json_lines
from skyrl_nat.data.traces.labels import LabelFile, Mark
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.record_json import trace_of
from skyrl_nat.data.traces.store import TraceStore
from skyrl_nat.deploy.agent_folder import RECORD, TRACES
from skyrl_nat.errors import DataError
from skyrl_nat.json_lines import append_lines, encode_line, mend_lines, open_lines, whole_lines

AGENTS = "agents"
FEEDBACK = "feedback.jsonl"
LABELS = "labels.jsonl"
"""Where `skyrl-nat label` and `skyrl-nat traces export` look for marks, in the folder of the traces."""
MAX_COMMENT_CHARS = 4000
RATINGS = {"good": Mark.good, "bad": Mark.bad}


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """One user's word on one agent."""

    agent_id: str
    user: str
    """A mark of the user, which tells two of them apart and names none."""
    rating: str
    """A key of `RATINGS`."""
    comment: str = ""
    at: str = ""
    """UTC, ISO 8601."""


class FeedbackFile:
    """The file of a deployment, to which lines are only ever added."""

    def __init__(self, folder: Path) -> None:
        """Take the deployment's folder."""
        self._path = folder / FEEDBACK

    def add(self, agent_id: str, user_id: str, rating: str, comment: str = "") -> Feedback:
        """Write one down, on the disk when this returns.

        Raises:
            DataError: The rating is none, or the comment too long.
        """
        if rating not in RATINGS or len(comment) > MAX_COMMENT_CHARS:
            raise DataError(
                f"Feedback must rate {' or '.join(RATINGS)} and comment in at most {MAX_COMMENT_CHARS} characters, got "
                f"{rating[:20]!r} and {len(comment)} characters. Change it"
            )
        said = Feedback(
            agent_id=agent_id,
            user=mark_of(user_id),
            rating=rating,
            comment=comment,
            at=datetime.now(UTC).isoformat(),
        )
        with open_lines(self._path) as file:
            mend_lines(file, self._path)
            append_lines(file, encode_line(asdict(said)), is_synced=True)
        return said

    def read(self) -> list[Feedback]:
        """Return all of it, oldest first."""
        if not self._path.exists():
            return []
        lines = whole_lines(self._path.read_bytes(), self._path)
        return [Feedback(**json.loads(line)) for line in lines]


def mark_of(user_id: str) -> str:
    """Return what stands for a user in files that leave the deployment."""
    return f"user-{hashlib.sha256(user_id.encode('utf-8', 'replace')).hexdigest()[:12]}"


def export_feedback(folder: Path, store_folder: Path) -> dict[str, Any]:
    """Add the executions of a deployment, with what users said, to a store of traces; twice adds nothing new.

    What was delivered gets a manual label of the last word on it. The policy's own try, where something else was
    delivered, has its reward alone.

    Args:
        folder: Of the deployment.
        store_folder: Of the trace store; `skyrl-nat label` and `skyrl-nat traces export` read it.

    Raises:
        DataError: The folder holds no agents.
    """
    records = sorted((folder / AGENTS).glob(f"*/{RECORD}"))
    if not records:
        raise DataError(f"A deployment's folder must hold created agents, {folder / AGENTS} holds none. Check the path")
    said: dict[str, list[Feedback]] = defaultdict(list)
    for item in FeedbackFile(folder).read():
        said[item.agent_id].append(item)
    store, labels = TraceStore(store_folder), LabelFile(store_folder / LABELS)
    known = {each.trace_id: each for each in store.read().traces} if store_folder.is_dir() else {}
    marks = labels.marks()
    new: list[Trace] = []
    words: list[tuple[str, Feedback]] = []
    for path in records:
        feedback = said.get(path.parent.name, [])
        for trace in _traces_of(path.parent):
            is_delivered = trace.metadata.get("is_delivered") is True
            with_words = _with_words(trace, feedback if is_delivered else [])
            if _num_words(known.get(trace.trace_id)) != _num_words(with_words):
                new.append(with_words)
            if is_delivered and feedback:
                words.append((trace.trace_id, feedback[-1]))
    written = store.append(new)
    num_marks = 0
    for trace_id, word in words:
        standing = marks.get(trace_id)
        if standing is None or (standing.mark, standing.by) != (RATINGS[word.rating], word.user):
            labels.add(trace_id, RATINGS[word.rating], by=word.user)
            num_marks += 1
    return {
        "agents": len(records),
        "traces": written.num_traces,
        "not_written": written.faults,
        "secrets_taken_out": dict(written.secrets),
        "labels": num_marks,
    }


def _with_words(trace: Trace, feedback: list[Feedback]) -> Trace:
    words = [{"rating": each.rating, "comment": each.comment, "by": each.user, "at": each.at} for each in feedback]
    return replace(trace, metadata={**trace.metadata, "feedback": words})


def _num_words(trace: Trace | None) -> int:
    """Return how many users' words a trace holds, -1 where there is none."""
    return -1 if trace is None else len(trace.metadata.get("feedback", []))


def _traces_of(folder: Path) -> list[Trace]:
    lines = read_json_lines(folder / TRACES, Collected())
    return [trace_of(value, place) for place, value in lines]
