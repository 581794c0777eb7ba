"""The sandbox protocol: files and a job in, a result out; nothing persists between jobs."""

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxJob:
    """One thing to run on one set of files."""

    kind: str
    """Name of the job inside the sandbox's own program, for instance `nat_validate`."""
    files: dict[str, str]
    """Relative POSIX path -> text; the whole work folder of the job."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """JSON data for the job. Expected values must never be among them: the code under test can read it."""
    timeout_s: float | None = None
    """Wall-clock limit; None takes the sandbox's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxResult:
    """What came back. Everything in `output` was produced beside untrusted code: evidence, never a verdict."""

    status: str
    """`done` (an answer came), `timeout`, `died` (killed, exited early, memory), `refused` (bad job)."""
    output: dict[str, Any]
    """The job's JSON answer; empty unless `done`."""
    log: str
    """End of stdout and stderr, cut."""
    wall_s: float
    cpu_wait_s: float = 0.0
    """How long the job waited for a CPU; its deadline moved by as much, to at most 3 times the limit."""


class Sandbox(Protocol):
    """Runs jobs one at a time per server; thread-safe."""

    def run(self, job: SandboxJob) -> SandboxResult:
        """Run a job; raises SandboxError only where the sandbox or its machine failed."""
        ...

    def close(self) -> None:
        """End all processes; safe to call twice."""
        ...
