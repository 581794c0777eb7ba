"""The service as a user starts it: a process of its own with a real Ray head, and a model that trains in seconds."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from marked_processes import processes_with, require_none
from service_parts import TOKEN
from slurm_cluster import free_ports

from skyrl_nat.service.access import TOKEN_VARIABLE

ROOT = Path(__file__).resolve().parents[1]
MARK = "SKYRL_NAT_TEST_MARK"
TINY = (
    "trainer.tasks_per_step=2",
    "trainer.rollouts_per_task=2",
    "trainer.micro_batch_tokens=2048",
    "rollout.max_turns=1",
    "rollout.max_new_tokens=4",
    "rollout.max_total_tokens=2048",
    "evaluation.before_and_after=false",
    "evaluation.num_tasks=2",
    "cluster.num_threads=1",
    "tracking.backends=[jsonl,console]",
)
FINAL = ("succeeded", "failed", "cancelled")


class ServiceProcess:
    """One that may be killed and started again on the same folder."""

    def __init__(self, folder: Path, *, max_running: int = 2) -> None:
        """Make the model; start nothing yet."""
        self.folder, self.root = folder, folder / "root"
        (self.port,) = free_ports(1)
        self._max_running = max_running
        model = folder / "model"
        if not model.exists():
            from tiny_model import make_tiny_model

            make_tiny_model(model, hidden_size=64)
        self._overrides = (f"model.path={model}", *TINY)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, within_s: float = 120) -> None:
        """Start, and return when it answers."""
        command = [
            *(sys.executable, "-m", "skyrl_nat.cli", "serve", f"--root-dir={self.root}", f"--port={self.port}"),
            *(f"--max-running={self._max_running}", *self._overrides),
        ]
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        environment = {**os.environ, "PYTHONPATH": paths, TOKEN_VARIABLE: TOKEN, MARK: str(self.folder)}
        with (self.folder / "service.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        self.wait(lambda: self._answers(), "the service must answer", within_s)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        with contextlib.suppress(OSError):
            return self.ask("/health")["status"] == "ok"
        return False

    def kill(self) -> None:
        """End it as a crash does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self, within_s: float = 120) -> int:
        """End it in order."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within_s)

    def ask(self, path: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
        """Return the JSON of an answer; POST where there is a body."""
        sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json", **headers}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, sent)
        with urllib.request.urlopen(request, timeout=60) as found:
            return json.load(found)

    def submit(self, *, key: str = "", environment: str = "jira", **body: Any) -> dict[str, Any]:
        """Submit a job; asked again, with the same key, where the service has just been killed."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.ask(f"/train/{environment}", {"steps": 1_000_000, **body}, **headers)

    def job(self, job_id: str) -> dict[str, Any]:
        """Return a job."""
        return self.ask(f"/training/{job_id}")

    def wait_job(self, job_id: str, *states: str, within_s: float = 400) -> dict[str, Any]:
        """Wait until a job is in one of the states."""
        self.wait(lambda: self.job(job_id)["state"] in (*states, *FINAL), f"{job_id} must be {states}", within_s)
        job = self.job(job_id)
        assert job["state"] in states, (job, self.log(), self.job_log(job))
        return job

    def wait(self, is_so: Callable[[], bool], what: str, within_s: float = 400) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: {self.log()} {self.job_logs()}"
            time.sleep(0.2)

    def log(self) -> str:
        """Return what the service printed."""
        return (self.folder / "service.log").read_text(errors="replace")[-3000:]

    def job_logs(self) -> str:
        """Return the ends of what all jobs printed."""
        return "\n".join(f"{path}: {path.read_text(errors='replace')[-1500:]}" for path in self.root.glob("*/job.log"))

    def job_log(self, job: dict[str, Any]) -> str:
        """Return what a job printed."""
        path = self.root / job["run"] / "job.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""


@contextlib.contextmanager
def running_service(*, max_running: int = 2) -> Iterator[ServiceProcess]:
    """Have one with its Ray; nothing of it may be left once it has ended in order."""
    with tempfile.TemporaryDirectory(prefix="sns-") as name:
        service = ServiceProcess(Path(name), max_running=max_running)
        try:
            service.start()
            service.wait(lambda: service.ask("/health")["ray"] == "ok", "Ray must come up")
            yield service
            assert service.end() == 0
            # No job runs any more, so its Ray goes too.
            require_none(MARK, name, 60)
        finally:
            for process in processes_with(MARK, name):
                with contextlib.suppress(psutil.Error):
                    process.kill()
