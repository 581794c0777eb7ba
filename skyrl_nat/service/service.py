"""What the routes ask: jobs submitted, seen and cancelled, apart from HTTP."""

import threading
from pathlib import Path

from skyrl_nat.service.admission import admit
from skyrl_nat.service.catalogue import find_environment
from skyrl_nat.service.progress import log_tail, newest_line
from skyrl_nat.service.routes.errors import NotFoundError, ServiceError
from skyrl_nat.service.runner.launch import LOG
from skyrl_nat.service.runner.scheduler import Scheduler
from skyrl_nat.service.schemas import JobAnswer, JobList, TrainRequest, job_answer
from skyrl_nat.service.settings import ServiceSettings
from skyrl_nat.service.store import FINAL, BusyRunError, Job, JobStore, State


class TrainingService:
    """The jobs of one root folder."""

    def __init__(self, settings: ServiceSettings, store: JobStore, scheduler: Scheduler) -> None:
        """Serve nothing by itself."""
        self.settings, self.store, self.scheduler = settings, store, scheduler
        self._admission = threading.Lock()

    @property
    def root(self) -> Path:
        """Folder of all runs."""
        return self.settings.root_dir

    def submit(self, request: TrainRequest, environment_name: str, key: str | None) -> tuple[JobAnswer, bool]:
        """Return the job of a request, and whether it is a new one.

        Raises:
            ServiceError: It is refused; nothing is written then.
        """
        environment = find_environment(environment_name)
        if environment is None:
            raise NotFoundError("environment_name")
        wanted = request.hash(environment.name)
        with self._admission:
            if key is not None and (known := self.store.by_key(key)) is not None:
                return self._same(known, wanted), False
            if self.store.count(State.pending) >= self.settings.limits.max_pending:
                raise ServiceError(429, "too_many", "the queue must have room, it is full. Wait, or cancel jobs")
            asked = admit(request, environment, self.settings, capacity=self.scheduler.capacity, idempotency_key=key)
            try:
                job, is_new = self.store.add(asked)
            except BusyRunError as error:
                raise ServiceError(409, "folder_in_use", str(error), "name") from error
        if is_new:
            self.scheduler.wake()
        return self._same(job, wanted), is_new

    def cancel(self, job_id: str) -> JobAnswer:
        """Let a job end; one that is over stays as it is."""
        while True:
            job = self.job(job_id)
            if job.state in FINAL or job.state is State.stopping:
                return self.answer(job)
            after = State.cancelled if job.state is State.pending else State.stopping
            # Where the scheduler was quicker, the job is somewhere else now.
            if self.store.change(job_id, job.state, after, reason="cancelled by a client"):
                self.scheduler.wake()

    def job(self, job_id: str) -> Job:
        """Return a job.

        Raises:
            NotFoundError: There is none of this id.
        """
        job = self.store.get(job_id)
        if job is None:
            raise NotFoundError("job_id")
        return job

    def answer(self, job: Job, *, has_metrics: bool = False) -> JobAnswer:
        """Return a job as clients see it."""
        line = newest_line(self.root, job.run)
        return job_answer(job, line and line.step, line.values if line and has_metrics else None)

    def page(self, state: State | None, before: str | None, limit: int) -> JobList:
        """Return some jobs, the newest first."""
        number = None if before is None else self.job(before).number
        found = self.store.page(state=state, before=number, limit=limit + 1)
        shown = found[:limit]
        return JobList(jobs=[self.answer(job) for job in shown], next=shown[-1].id if len(found) > limit else None)

    def logs(self, job_id: str, num_lines: int) -> str:
        """Return the last lines that a job's trainer printed."""
        return log_tail(self.root, self.job(job_id).run, LOG, num_lines) or ""

    def _same(self, job: Job, body_hash: str) -> JobAnswer:
        if job.body_hash != body_hash:
            raise ServiceError(
                409,
                "idempotency_key_in_use",
                "Idempotency-Key must come with the request that it came with first. Take another key",
                "Idempotency-Key",
            )
        return self.answer(job)
