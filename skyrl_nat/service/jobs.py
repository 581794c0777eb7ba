"""Jobs in Ray: the one file of the service that imports it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ray.job_submission import JobDetails, JobStatus, JobSubmissionClient

from skyrl_nat.service.runner.backend import BackendError, Capacity, Phase, Report
from skyrl_nat.service.runner.head import NOTE, OUTPUT, ask, end_head, find_head, start_head, wait_until_up
from skyrl_nat.service.settings import ServiceSettings

PHASES = {
    JobStatus.PENDING: Phase.active,
    JobStatus.RUNNING: Phase.active,
    JobStatus.SUCCEEDED: Phase.succeeded,
    JobStatus.FAILED: Phase.failed,
    JobStatus.STOPPED: Phase.stopped,
}
PREFIX = "skyrl-nat-"
"""Of submission ids; other jobs of the cluster are nobody's business here."""
FIND_AGAIN_S = 20.0
"""For a head that lives to answer."""


class RayJobs:
    """Runs commands as jobs of a cluster, or of a head of this machine that is started when it is needed."""

    def __init__(self, settings: ServiceSettings) -> None:
        """Connect to nothing yet."""
        self._state_dir: Path = settings.state_dir
        self._address = settings.ray_address
        self._word = ""
        self._client: JobSubmissionClient | None = None

    def connect(self) -> None:
        """Find the cluster, or the head that was started before; else start one."""
        if self._client is not None and (self._address_is_given or find_head(self._state_dir) is not None):
            return
        if not self._address_is_given:
            self._find_or_start()
        headers = {"Authorization": f"Bearer {self._word}"} if self._word else None
        try:
            self._client = JobSubmissionClient(self._url, headers=headers)
        except (ConnectionError, OSError, RuntimeError, ValueError) as error:
            raise BackendError(f"Ray must answer at {self._url}, but: {error}. Start it there") from error

    def submit(self, submission_id: str, command: Sequence[str]) -> bool:
        """Start a command under an id; return False where Ray has had that id before."""
        try:
            self._ready().submit_job(entrypoint=f"exec {shlex.join(command)}", submission_id=submission_id)
        except (OSError, RuntimeError) as error:
            if self._is_known(submission_id):
                return False
            raise self._lost(error) from error
        return True

    def reports(self) -> Mapping[str, Report]:
        """Return what Ray knows of all submissions of a service."""
        try:
            found: list[JobDetails] = self._ready().list_jobs()
        except (OSError, RuntimeError, ValueError) as error:
            raise self._lost(error) from error
        return {
            each.submission_id: _report(each)
            for each in found
            if each.submission_id is not None and each.submission_id.startswith(PREFIX)
        }

    def stop(self, submission_id: str) -> None:
        """Send SIGTERM to a job; one that is over stays as it is."""
        try:
            self._ready().stop_job(submission_id)
        except (OSError, RuntimeError) as error:
            raise self._lost(error) from error

    def capacity(self) -> Capacity:
        """Return the resources of all nodes that are alive."""
        try:
            answer = cast("dict[str, Any]", ask(self._url, "/api/v0/nodes?detail=1", self._word))
            nodes: list[dict[str, Any]] = answer["data"]["result"]["result"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._lost(error) from error
        alive = [node["resources_total"] or {} for node in nodes if node["state"] == "ALIVE"]
        if not alive:
            # A dashboard answers before the first node is there.
            raise BackendError("Ray must have a node, it has none yet. It is asked again")
        return Capacity(
            cpus=sum(each.get("CPU", 0.0) for each in alive), gpus=sum(each.get("GPU", 0.0) for each in alive)
        )

    def close(self, *, is_idle: bool) -> None:
        """End the head of this machine if no job needs it any more."""
        head = None if self._address_is_given else find_head(self._state_dir)
        if head is not None and is_idle:
            end_head(head, self._state_dir)

    @property
    def _address_is_given(self) -> bool:
        return bool(self._address)

    @property
    def _url(self) -> str:
        return self._address or json.loads((self._state_dir / NOTE).read_text(encoding="utf-8"))["address"]

    def _find_or_start(self) -> None:
        head = find_head(self._state_dir)
        if head is None:
            head = start_head(self._state_dir)
            wait_until_up(head, self._state_dir / OUTPUT)
        else:
            wait_until_up(head, self._state_dir / OUTPUT, FIND_AGAIN_S)
        self._word = head.word

    def _ready(self) -> JobSubmissionClient:
        if self._client is None:
            raise BackendError("Ray must be connected, it is not. Call connect first")
        return self._client

    def _is_known(self, submission_id: str) -> bool:
        try:
            return self._ready().get_job_info(submission_id) is not None
        except (OSError, RuntimeError):
            return False

    def _lost(self, error: Exception) -> BackendError:
        self._client = None
        return BackendError(f"Ray must answer, but: {error}. It is asked again")


def _report(details: JobDetails) -> Report:
    return Report(
        phase=PHASES[details.status], exit_code=details.driver_exit_code, message=(details.message or "").strip()
    )
