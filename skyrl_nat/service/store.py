"""All jobs in one SQLite file: what was asked, in which state it is, and no state but along a legal edge."""

import json
import secrets
import sqlite3
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from skyrl_nat.errors import SkyRLNatError


class State(StrEnum):
    """Where a job is."""

    pending = "pending"
    running = "running"
    """Ray was told to run it, or is just about to be."""
    stopping = "stopping"
    """Its trainer was told to save and end."""
    succeeded = "succeeded"
    failed = "failed"
    cancelled = "cancelled"


EDGES: dict[State, frozenset[State]] = {
    State.pending: frozenset({State.running, State.failed, State.cancelled}),
    State.running: frozenset({State.stopping, State.succeeded, State.failed, State.cancelled}),
    State.stopping: frozenset({State.succeeded, State.cancelled}),
    State.succeeded: frozenset(),
    State.failed: frozenset(),
    State.cancelled: frozenset(),
}
"""State -> what may follow. A job that was told to stop is cancelled, whatever its end looks like, or had succeeded."""
ACTIVE = (State.pending, State.running, State.stopping)
FINAL = tuple(state for state, next_states in EDGES.items() if not next_states)

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  environment TEXT NOT NULL,
  algorithm TEXT NOT NULL,
  name TEXT,
  run TEXT NOT NULL,
  steps INTEGER NOT NULL,
  overrides TEXT NOT NULL,
  arguments TEXT NOT NULL,
  cpus REAL NOT NULL,
  gpus REAL NOT NULL,
  state TEXT NOT NULL,
  reason TEXT,
  is_launched INTEGER NOT NULL DEFAULT 0,
  submitted_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  idempotency_key TEXT UNIQUE,
  body_hash TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS one_active_job_per_run ON jobs(run) WHERE state IN ('pending', 'running', 'stopping');
CREATE INDEX IF NOT EXISTS by_state ON jobs(state, number);
"""
BUSY_MS = 10_000


class BusyRunError(SkyRLNatError):
    """Another job that is not over has the run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row."""

    id: str
    environment: str
    algorithm: str
    name: str | None
    """What the client calls it."""
    run: str
    """Folder below the root."""
    steps: int
    overrides: tuple[str, ...]
    """As the client wrote them."""
    arguments: tuple[str, ...]
    """All overrides of the trainer."""
    cpus: float
    """What the trainer reserves in Ray."""
    gpus: float
    body_hash: str
    idempotency_key: str | None = None
    number: int = 0
    """Counts up; given by the store."""
    state: State = State.pending
    reason: str | None = None
    """Why it is where it is; None where there is nothing to say."""
    is_launched: bool = False
    """Ray has confirmed that it has it."""
    submitted_at: str = ""
    started_at: str | None = None
    ended_at: str | None = None


COLUMNS = tuple(field.name for field in fields(Job))
WRITTEN_AS_JSON = ("overrides", "arguments")


def new_id() -> str:
    """Return an id that no other job has."""
    return f"job-{secrets.token_hex(8)}"


def now() -> str:
    """Return the time as it is written in records."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JobStore:
    """The jobs of a service; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it; the folder must exist."""
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.row_factory = sqlite3.Row
        self._connection.execute(f"PRAGMA busy_timeout={BUSY_MS}")
        self._connection.execute("PRAGMA journal_mode=WAL")
        # A job that was confirmed to its client must be there after a power cut too.
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.executescript(SCHEMA)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def add(self, job: Job) -> tuple[Job, bool]:
        """Add a job in state pending, or find the one with its idempotency key; return it, and whether it is new.

        Raises:
            BusyRunError: Another job that is not over has its run folder.
        """
        values = {name: getattr(job, name) for name in COLUMNS if name != "number"}
        values |= {name: json.dumps(values[name]) for name in WRITTEN_AS_JSON}
        values["submitted_at"] = now()
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        with self._writing() as connection:
            if job.idempotency_key is not None and (found := self._find("idempotency_key", job.idempotency_key)):
                return found, False
            try:
                connection.execute(f"INSERT INTO jobs ({names}) VALUES ({marks})", values)
            except sqlite3.IntegrityError as error:
                raise BusyRunError(
                    f"a run folder must have one job at a time, {job.run} has another one that is not over. Cancel "
                    "that, or wait for its end"
                ) from error
            added = self._find("id", job.id)
        assert added is not None
        return added, True

    def get(self, job_id: str) -> Job | None:
        """Return a job, None where there is none of this id."""
        with self._lock:
            return self._find("id", job_id)

    def by_key(self, key: str) -> Job | None:
        """Return the job that was submitted with an idempotency key."""
        with self._lock:
            return self._find("idempotency_key", key)

    def in_states(self, states: Collection[State]) -> list[Job]:
        """Return all jobs in one of the states, the oldest first."""
        marks = ", ".join("?" for _ in states)
        return self._select(f"WHERE state IN ({marks}) ORDER BY number", list(states))

    def page(self, *, state: State | None, before: int | None, limit: int) -> list[Job]:
        """Return the newest jobs, the newest first.

        Args:
            state: Only in this one.
            before: Only with smaller numbers.
            limit: How many at most.
        """
        return self._select(
            "WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR number < ?2) ORDER BY number DESC LIMIT ?3",
            [state, before, limit],
        )

    def count(self, state: State) -> int:
        """Return how many jobs are in a state."""
        with self._lock:
            return int(self._connection.execute("SELECT count(*) FROM jobs WHERE state = ?", [state]).fetchone()[0])

    def change(self, job_id: str, before: State, after: State, *, reason: str | None = None) -> bool:
        """Move a job along an edge if it is still where the caller saw it; return whether it was.

        Raises:
            ValueError: There is no such edge.
        """
        if after not in EDGES[before]:
            raise ValueError(f"a job must go along an edge of EDGES, not from {before} to {after}")
        stamp = now()
        values = {
            "id": job_id,
            "before": before,
            "after": after,
            "reason": reason,
            "started": stamp if after is State.running else None,
            "ended": stamp if after in FINAL else None,
        }
        with self._writing() as connection:
            done = connection.execute(
                "UPDATE jobs SET state = :after, reason = :reason, started_at = coalesce(:started, started_at), "
                "ended_at = :ended WHERE id = :id AND state = :before",
                values,
            )
            return done.rowcount == 1

    def explain(self, job_id: str, reason: str) -> None:
        """Say why a job still waits."""
        with self._writing() as connection:
            connection.execute("UPDATE jobs SET reason = ? WHERE id = ? AND state = ?", [reason, job_id, State.pending])

    def mark_launched(self, job_id: str) -> None:
        """Note that Ray has the job."""
        with self._writing() as connection:
            connection.execute("UPDATE jobs SET is_launched = 1 WHERE id = ?", [job_id])

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def _find(self, column: str, value: str) -> Job | None:
        row = self._connection.execute(f"SELECT * FROM jobs WHERE {column} = ?", [value]).fetchone()
        return None if row is None else _job(row)

    def _select(self, clause: str, values: Sequence[Any]) -> list[Job]:
        with self._lock:
            return [_job(row) for row in self._connection.execute(f"SELECT * FROM jobs {clause}", values)]


def _job(row: sqlite3.Row) -> Job:
    values = {name: row[name] for name in COLUMNS}
    values |= {name: tuple(json.loads(values[name])) for name in WRITTEN_AS_JSON}
    return Job(**values | {"state": State(values["state"]), "is_launched": bool(values["is_launched"])})
