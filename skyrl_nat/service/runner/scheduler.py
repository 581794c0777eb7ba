"""The loop that brings jobs to Ray and their ends back: each is submitted once, and every end is written down once.

A job is `running` from just before it is submitted. Its submission id follows from its own, so that whoever was killed
in between finds out whether Ray has it: Ray refuses an id that it knows.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from skyrl_nat.data.specs import write_tasks
from skyrl_nat.environments.registry import GYMNASIUM_PREFIX
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.service.admission import task_files
from skyrl_nat.service.paths import inside
from skyrl_nat.service.progress import log_tail
from skyrl_nat.service.runner.backend import Backend, BackendError, Capacity, Phase, Report
from skyrl_nat.service.runner.launch import LOG, claim_file, launch_command
from skyrl_nat.service.runner.locks import is_held, kill_holder, lock_file
from skyrl_nat.service.settings import ServiceSettings
from skyrl_nat.service.store import Job, JobStore, State

logger = logging.getLogger(__name__)
TICK_S = 0.5
RETRY_S = 2.0
"""After a backend that did not answer."""
STOP_AGAIN_S = 5.0
LEFT_OVER_S = 15.0
"""For the processes of a job that Ray says is over."""
NUM_TRAIN_TASKS = 256
NUM_HELD_OUT_TASKS = 32
FIRST_HELD_OUT_SEED = 1_000_000


class Scheduler:
    """Runs in a thread of its own, and alone: nobody else submits."""

    def __init__(
        self,
        settings: ServiceSettings,
        store: JobStore,
        backend: Backend,
        trainer: Callable[[Job], list[str]],
    ) -> None:
        """Begin nothing yet.

        Args:
            settings: Of the service.
            store: Of its jobs.
            backend: Who runs them.
            trainer: Gives a job's command.
        """
        self._settings, self._store, self._backend, self._trainer = settings, store, backend, trainer
        self._is_over = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._told: dict[str, float] = {}
        self._over_since: dict[str, float] = {}
        self.capacity: Capacity | None = None
        """What Ray has in all; None until it has answered."""
        self.is_connected: bool | None = None
        """None before the first answer."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the loop, not the jobs."""
        self._is_over.set()
        self._wake.set()
        self._thread.join()
        is_idle = not self._store.in_states((State.running, State.stopping))
        self._backend.close(is_idle=is_idle)

    def wake(self) -> None:
        """Look at once."""
        self._wake.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            pause_s = TICK_S
            try:
                self._backend.connect()
                self.tick()
                self.is_connected = True
            except BackendError as error:
                if self.is_connected is not False:
                    logger.warning("%s", error)
                self.is_connected, pause_s = False, RETRY_S
            except Exception:
                # Whatever it was, all other jobs still need this loop.
                logger.exception("the scheduler goes on after a fault")
                pause_s = RETRY_S
            self._wake.wait(pause_s)
            self._wake.clear()

    def tick(self) -> None:
        """Look once at all jobs that are not over.

        Raises:
            BackendError: The backend did not answer; the next call goes on where this one stopped.
        """
        self.capacity = self._backend.capacity()
        reports = self._backend.reports()
        for job in self._store.in_states((State.running, State.stopping)):
            self._follow(job, reports)
        self._begin_pending()

    def _follow(self, job: Job, reports: Mapping[str, Report]) -> None:
        report = reports.get(submission_id(job))
        if report is None:
            self._follow_unknown(job)
            return
        if not job.is_launched:
            self._store.mark_launched(job.id)
        if report.phase is Phase.active:
            if job.state is State.stopping:
                self._tell_to_stop(job)
            return
        if self._has_left_over(job):
            return
        self._finish(job, report)

    def _follow_unknown(self, job: Job) -> None:
        """Treat a job that Ray does not know: it was never submitted, or Ray has begun anew since."""
        if job.is_launched or claim_file(self._settings.state_dir, job.id).exists():
            if self._has_left_over(job):
                return
            lost = "Ray ended while the job ran; go on with resume from its newest checkpoint"
            self._finish(job, Report(phase=Phase.failed, message=lost))
        elif job.state is State.stopping:
            self._move(job, State.cancelled, "cancelled before it began")
        else:
            self._submit(job)

    def _tell_to_stop(self, job: Job) -> None:
        now = time.monotonic()
        if now - self._told.get(job.id, -STOP_AGAIN_S) >= STOP_AGAIN_S:
            self._backend.stop(submission_id(job))
            self._told[job.id] = now

    def _has_left_over(self, job: Job) -> bool:
        """Say whether a process of a job that is over still lives; one that does so for long is killed."""
        lock = lock_file(self._settings.state_dir, job.run)
        if not is_held(lock):
            self._over_since.pop(job.id, None)
            return False
        since = self._over_since.setdefault(job.id, time.monotonic())
        if time.monotonic() - since > LEFT_OVER_S:
            logger.warning("%s: Ray has ended it, its trainer lives on and is killed", job.id)
            kill_holder(lock)
        return True

    def _finish(self, job: Job, report: Report) -> None:
        if report.phase is Phase.succeeded:
            self._move(job, State.succeeded, None)
        elif job.state is State.stopping:
            self._move(job, State.cancelled, "cancelled")
        elif report.phase is Phase.stopped:
            self._move(job, State.cancelled, "stopped through Ray, not through the service")
        else:
            self._move(job, State.failed, self._why(job, report))

    def _why(self, job: Job, report: Report) -> str:
        said = f"{report.message}\n{log_tail(self._settings.root_dir, job.run, LOG, 200) or ''}"
        own = [line.strip() for line in said.splitlines() if line.startswith("skyrl-nat: ")]
        if report.exit_code is None and not own:
            return (report.message.splitlines() or ["its end is not known"])[0][:500]
        code = "" if report.exit_code is None else f"the trainer ended with exit code {report.exit_code}"
        return ": ".join(filter(None, [code, own[-1].removeprefix("skyrl-nat: ") if own else ""]))[:500]

    def _move(self, job: Job, after: State, reason: str | None) -> None:
        """Move a job from where it was seen; where a client was quicker, the next look sees it anew."""
        if self._store.change(job.id, job.state, after, reason=reason):
            logger.info("%s: %s -> %s", job.id, job.state, after)
            self._told.pop(job.id, None)

    def _begin_pending(self) -> None:
        running = self._store.in_states((State.running, State.stopping))
        assert self.capacity is not None
        cpus = self.capacity.cpus - sum(job.cpus for job in running)
        gpus = self.capacity.gpus - sum(job.gpus for job in running)
        num_free = self._settings.max_running - len(running)
        for job in self._store.in_states((State.pending,)):
            if not self.capacity.holds(job.cpus, job.gpus):
                # Nodes come and go: it waits for them, and nobody waits for it.
                waits = f"it waits for {job.cpus:g} CPUs and {job.gpus:g} GPUs, Ray has {self.capacity} in all"
                if job.reason != waits:
                    self._store.explain(job.id, waits)
                continue
            # In order: a large job would wait for ever if smaller ones overtook it.
            if num_free < 1 or job.cpus > cpus or job.gpus > gpus:
                return
            if self._store.change(job.id, State.pending, State.running):
                num_free, cpus, gpus = num_free - 1, cpus - job.cpus, gpus - job.gpus
                begun = self._store.get(job.id)
                if begun is not None and begun.state is State.running:
                    self._submit(begun)

    def _submit(self, job: Job) -> None:
        """Hand a job to Ray, once: it refuses a second submission of the same id."""
        state_dir, folder = self._settings.state_dir, inside(self._settings.root_dir, job.run)
        if folder is None:
            self._move(job, State.failed, f"{job.run} must be a folder below the root, its link leads out")
            return
        try:
            if job.environment.startswith(GYMNASIUM_PREFIX):
                make_tasks_of(job, folder)
        except (OSError, ConfigError, DataError) as error:
            self._move(job, State.failed, f"its tasks must be written, but: {error}")
            return
        self._backend.submit(submission_id(job), launch_command(state_dir, job.id, folder, self._trainer(job)))
        self._store.mark_launched(job.id)


def submission_id(job: Job) -> str:
    """Return Ray's id of a job."""
    return f"skyrl-nat-{job.id}"


def make_tasks_of(job: Job, folder: Path) -> None:
    """Write the tasks of a Gymnasium environment, one a seed; the same bytes whenever it is called."""
    from skyrl_nat.environments.gymnasium_text import make_tasks  # needs an optional package

    name = job.environment.removeprefix(GYMNASIUM_PREFIX)
    for (_, file), (number, first) in zip(
        task_files(folder).items(), ((NUM_TRAIN_TASKS, 0), (NUM_HELD_OUT_TASKS, FIRST_HELD_OUT_SEED)), strict=True
    ):
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_tasks(make_tasks(name, number, first_seed=first), file)
