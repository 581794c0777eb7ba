"""A training service for tests: a backend in memory, settings in a folder, clients with the token."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from skyrl_nat.service.app import create_app
from skyrl_nat.service.runner.backend import BackendError, Capacity, Phase, Report
from skyrl_nat.service.settings import Limits, ServiceSettings
from skyrl_nat.service.store import Job, new_id
from skyrl_nat.strict_json import parse_json

TOKEN = "a-token-of-letters-0123456789"
BODY: dict[str, Any] = {"steps": 3}
WAIT, EXIT = "wait", "exit"


def make_job(**values: Any) -> Job:
    job_id = new_id()
    base = Job(
        id=job_id,
        environment="jira",
        algorithm="grpo",
        name=None,
        run=job_id,
        steps=3,
        overrides=("a=1",),
        arguments=("a=1", "b=2"),
        cpus=1,
        gpus=0,
        body_hash="h",
    )
    return replace(base, **values)


class FakeBackend:
    """Runs nothing: a command that ends with `exit CODE` is over at the next look, one that ends with `wait` never."""

    def __init__(self, capacity: Capacity | None = None) -> None:
        self.total = capacity or Capacity(cpus=8, gpus=0)
        self.launches: list[str] = []
        self.known: dict[str, Report] = {}
        self.commands: dict[str, Sequence[str]] = {}
        self.is_away = False
        self.is_answer_lost = False
        """The next submission arrives, its answer does not."""
        self.on_submit: Callable[[str], None] = lambda _: None
        self._lock = threading.Lock()

    def connect(self) -> None:
        self._ask()

    def submit(self, submission_id: str, command: Sequence[str]) -> bool:
        self._ask()
        self.on_submit(submission_id)
        with self._lock:
            if submission_id in self.known:
                return False
            self.launches.append(submission_id)
            self.known[submission_id] = Report(phase=Phase.active)
            self.commands[submission_id] = command
        if self.is_answer_lost:
            self.is_answer_lost = False
            raise BackendError("the answer is lost")
        return True

    def reports(self) -> Mapping[str, Report]:
        self._ask()
        with self._lock:
            for name, command in self.commands.items():
                if command[-2:-1] == [EXIT]:
                    self._end(name, int(command[-1]))
            return dict(self.known)

    def stop(self, submission_id: str) -> None:
        self._ask()
        with self._lock:
            if self.known[submission_id].phase is Phase.active:
                self.known[submission_id] = Report(phase=Phase.stopped)

    def end(self, submission_id: str, code: int) -> None:
        """Let a job be over."""
        with self._lock:
            self._end(submission_id, code)

    def _end(self, submission_id: str, code: int) -> None:
        if self.known[submission_id].phase is Phase.active:
            phase = Phase.failed if code else Phase.succeeded
            self.known[submission_id] = Report(phase=phase, exit_code=code)

    def capacity(self) -> Capacity:
        self._ask()
        return self.total

    def close(self, *, is_idle: bool) -> None:
        pass

    def _ask(self) -> None:
        if self.is_away:
            raise BackendError("nobody answers")


def settings(folder: Path, **values: Any) -> ServiceSettings:
    return ServiceSettings(root_dir=folder / "root", token=TOKEN, **values)


def waiting(_: Job) -> list[str]:
    return [WAIT]


@contextlib.contextmanager
def service(
    folder: Path,
    backend: FakeBackend | None = None,
    trainer: Callable[[Job], list[str]] = waiting,
    **values: Any,
) -> Iterator[TestClient]:
    """Have a client of a service that runs, with the token."""
    app = create_app(settings(folder, **values), backend or FakeBackend(), trainer)
    with client_of(app) as client:
        yield client


def client_of(app: FastAPI) -> TestClient:
    return TestClient(app, headers={"Authorization": f"Bearer {TOKEN}"}, raise_server_exceptions=False)


def submit(client: TestClient, environment: str = "jira", key: str | None = None, **body: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return client.post(f"/train/{environment}", json=BODY | body, headers=headers)


def job_of(client: TestClient, **body: Any) -> dict[str, Any]:
    """Submit and return the job."""
    found = submit(client, **body)
    assert found.status_code == 201, found.text
    return found.json()


def wait_for(client: TestClient, job_id: str, *states: str, within_s: float = 20) -> dict[str, Any]:
    deadline = time.monotonic() + within_s
    while True:
        job = client.get(f"/training/{job_id}").json()
        if job["state"] in states:
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.02)


def error_of(answer: Any, *statuses: int) -> dict[str, Any]:
    """Return the error of an answer, which has the one shape."""
    assert answer.status_code in statuses, (answer.status_code, answer.text[:300])
    body = parse_json(answer.content)
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message", "field"}
    assert "Traceback" not in answer.text
    return body["error"]


def write_metrics(folder: Path, *lines: dict[str, Any] | str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(line + "\n" if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)


SMALL = Limits(max_body_bytes=2000, header_timeout_s=0.4, body_timeout_s=0.4, send_timeout_s=1.5)
