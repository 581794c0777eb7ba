"""What the scheduler asks of whoever runs jobs; Ray's answer is in `service/jobs.py`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from skyrl_nat.errors import SkyRLNatError


class BackendError(SkyRLNatError):
    """The backend does not answer now; nothing is known of what it did."""


class Phase(StrEnum):
    """Where the backend has a job."""

    active = "active"
    """Its processes run, or are about to."""
    succeeded = "succeeded"
    failed = "failed"
    stopped = "stopped"
    """It was told to stop and has no process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What the backend says of a job."""

    phase: Phase
    exit_code: int | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What there is in all, free or not."""

    cpus: float
    gpus: float

    def holds(self, cpus: float, gpus: float) -> bool:
        """Say whether that much fits."""
        return cpus <= self.cpus and gpus <= self.gpus

    def __str__(self) -> str:
        return f"{self.cpus:g} CPUs and {self.gpus:g} GPUs"


class Backend(Protocol):
    """Runs commands; every method may raise `BackendError`, after which the same call may be made again."""

    def connect(self) -> None:
        """Be ready, and find again what an earlier process of the service has started."""
        ...

    def submit(self, submission_id: str, command: Sequence[str]) -> bool:
        """Start a command under an id; return False where that id is known already: it then runs, or has run, once."""
        ...

    def reports(self) -> Mapping[str, Report]:
        """Return what is known of all submissions, by id."""
        ...

    def stop(self, submission_id: str) -> None:
        """Let a job save and end; as often as one likes."""
        ...

    def capacity(self) -> Capacity:
        """Return what there is in all."""
        ...

    def close(self, *, is_idle: bool) -> None:
        """Let go; end what was started for jobs if there is none any more."""
        ...
