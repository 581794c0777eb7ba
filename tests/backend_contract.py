"""What every backend of the service keeps to; each case is a function of a backend and of commands that it can run."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from skyrl_nat.service.runner.backend import Backend, Phase, Report


@dataclass(frozen=True)
class Commands:
    """Commands that end with a code, and one that waits for its end."""

    exits: Callable[[int], Sequence[str]]
    waits: Sequence[str]


def new_submission() -> str:
    return f"skyrl-nat-job-{uuid4().hex[:16]}"


def report_when(backend: Backend, name: str, *phases: Phase, within_s: float = 60) -> Report:
    """Wait until a job is in one of the phases."""
    deadline = time.monotonic() + within_s
    while (report := backend.reports()[name]).phase not in phases:
        assert time.monotonic() < deadline, report
        time.sleep(0.1)
    return report


def end_is_reported_with_its_code(backend: Backend, commands: Commands) -> None:
    names = {code: new_submission() for code in (0, 3)}
    for code, name in names.items():
        assert backend.submit(name, commands.exits(code)) is True
    assert report_when(backend, names[0], Phase.succeeded, Phase.failed).phase is Phase.succeeded
    failed = report_when(backend, names[3], Phase.succeeded, Phase.failed)
    assert failed.phase is Phase.failed
    assert failed.exit_code == 3


def second_submission_of_an_id_is_refused(backend: Backend, commands: Commands) -> None:
    name = new_submission()
    assert backend.submit(name, commands.exits(0)) is True
    assert backend.submit(name, commands.exits(3)) is False
    assert report_when(backend, name, Phase.succeeded, Phase.failed).phase is Phase.succeeded
    assert backend.submit(name, commands.exits(3)) is False
    assert backend.reports()[name].phase is Phase.succeeded


def job_that_is_stopped_is_stopped_however_often(backend: Backend, commands: Commands) -> None:
    name = new_submission()
    backend.submit(name, commands.waits)
    report_when(backend, name, Phase.active)
    backend.stop(name)
    backend.stop(name)
    report_when(backend, name, Phase.stopped)
    backend.stop(name)
    assert backend.reports()[name].phase is Phase.stopped


def stop_of_what_is_over_changes_nothing(backend: Backend, commands: Commands) -> None:
    name = new_submission()
    backend.submit(name, commands.exits(0))
    report_when(backend, name, Phase.succeeded)
    backend.stop(name)
    assert backend.reports()[name].phase is Phase.succeeded


def what_nobody_submitted_is_not_reported(backend: Backend, commands: Commands) -> None:
    backend.connect()
    assert new_submission() not in backend.reports()
    assert backend.capacity().cpus >= 1


CASES = (
    end_is_reported_with_its_code,
    second_submission_of_an_id_is_refused,
    job_that_is_stopped_is_stopped_however_often,
    stop_of_what_is_over_changes_nothing,
    what_nobody_submitted_is_not_reported,
)
