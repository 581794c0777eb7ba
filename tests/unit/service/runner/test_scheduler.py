"""The loop over jobs, step by step: each job once, no end lost, whatever comes at the worst moment."""

import itertools
import os
import random
import tempfile
from pathlib import Path

import pytest
from service_parts import WAIT, FakeBackend, make_job, settings, waiting

from skyrl_nat.service.runner.backend import BackendError, Capacity, Phase, Report
from skyrl_nat.service.runner.launch import claim_file
from skyrl_nat.service.runner.locks import lock_file, take
from skyrl_nat.service.runner.scheduler import Scheduler, submission_id
from skyrl_nat.service.service import TrainingService
from skyrl_nat.service.store import EDGES, FINAL, JobStore, State


class Parts:
    """A service without its thread: the test calls `tick`."""

    def __init__(self, folder, backend=None, **values):
        self.settings = settings(folder, **values)
        self.settings.state_dir.mkdir(parents=True, exist_ok=True)
        self.store = JobStore(self.settings.database)
        self.backend = backend or FakeBackend()
        self.scheduler = Scheduler(self.settings, self.store, self.backend, waiting)
        self.service = TrainingService(self.settings, self.store, self.scheduler)

    def add(self, **values):
        return self.store.add(make_job(**values))[0]

    def state(self, job):
        found = self.store.get(job.id)
        assert found is not None
        return found.state

    def tick(self, times=1):
        for _ in range(times):
            self.scheduler.tick()


@pytest.fixture
def parts(tmp_path):
    found = Parts(tmp_path)
    yield found
    found.store.close()


def test_cancel_of_a_pending_job_starts_nothing(parts):
    job = parts.add()
    assert parts.service.cancel(job.id).state is State.cancelled
    parts.tick(2)
    assert parts.backend.launches == []


def test_cancel_between_pending_and_running_is_kept(parts):
    """SV-05: the hook cancels after the scheduler has taken the job, while it is just being submitted."""
    job = parts.add()
    parts.backend.on_submit = lambda _: parts.service.cancel(job.id)
    parts.tick()
    assert parts.state(job) is State.stopping
    parts.tick(2)
    assert parts.state(job) is State.cancelled
    assert parts.backend.known[submission_id(job)].phase is Phase.stopped


def test_cancel_at_the_moment_of_finishing_leaves_what_had_finished(parts):
    """SV-05: Ray has the end already, the service does not know it yet."""
    job = parts.add()
    parts.tick()
    parts.backend.end(submission_id(job), 0)
    assert parts.service.cancel(job.id).state is State.stopping
    parts.tick()
    assert parts.state(job) is State.succeeded
    assert parts.service.cancel(job.id).state is State.succeeded


def test_job_that_fails_after_its_cancel_is_cancelled(parts):
    """SV-05: what the trainer says while it ends does not count, and comes once."""
    job = parts.add()
    parts.tick()
    parts.service.cancel(job.id)
    parts.backend.end(submission_id(job), 130)
    parts.tick()
    over = parts.store.get(job.id)
    assert over is not None
    assert over.state is State.cancelled
    parts.backend.known[submission_id(job)] = Report(phase=Phase.failed, exit_code=1)
    parts.tick(2)
    assert parts.store.get(job.id) == over


class Story:
    """A service to which things happen in an order that a seed draws; what each job went through is written down."""

    def __init__(self, folder, seed):
        self.folder, self.draw, self.backend = folder, random.Random(seed), FakeBackend()
        self.parts = Parts(folder, self.backend, max_running=2)
        self.jobs = [self.parts.add() for _ in range(3)]
        self.seen = {job.id: [State.pending] for job in self.jobs}
        if self.draw.random() < 0.5:
            victim = self.draw.choice(self.jobs)
            self.backend.on_submit = lambda _: self.parts.service.cancel(victim.id)

    def go(self):
        events = (self.tick, self.tick, self.tick, self.cancel, self.finish, self.restart, self.lose_answer)
        for _ in range(self.draw.randint(5, 25)):
            self.draw.choice(events)()
            self.look()
        self.backend.on_submit = lambda _: None
        self.backend.is_answer_lost = False
        for _ in range(10):
            self.tick()
            self.look()
            for name in list(self.backend.launches):
                self.backend.end(name, 0)
        self.look()

    def look(self):
        for job in self.jobs:
            if (state := self.parts.state(job)) is not self.seen[job.id][-1]:
                self.seen[job.id].append(state)

    def tick(self):
        try:
            self.parts.tick()
        except BackendError:
            self.restart()

    def restart(self):
        self.parts.store.close()
        self.parts = Parts(self.folder, self.backend, max_running=2)

    def cancel(self):
        self.parts.service.cancel(self.draw.choice(self.jobs).id)

    def finish(self):
        if self.backend.launches:
            self.backend.end(self.draw.choice(self.backend.launches), self.draw.choice((0, 1, 130)))

    def lose_answer(self):
        self.backend.is_answer_lost = True


def reachable(before):
    """Return the states that may be seen after another one: between two looks a job may go along several edges."""
    found = set(EDGES[before])
    return found.union(*(reachable(state) for state in found))


@pytest.fixture
def in_memory():
    """A folder that no disk has to confirm, where there is one: thousands of changes are written."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name)


def test_any_order_of_cancel_finish_and_restart_ends_in_one_state(in_memory):
    """SV-05 and SV-04: 200 orders; every change is an edge, no job is lost, none is launched twice."""
    ends = set()
    for seed in range(200):
        story = Story(in_memory / str(seed), seed)
        story.go()
        for states in story.seen.values():
            assert states[-1] in FINAL, seed
            assert all(after in reachable(before) for before, after in itertools.pairwise(states)), (seed, states)
            ends.add(states[-1])
        backend = story.backend
        assert len(backend.launches) == len(set(backend.launches)), seed
        assert not [name for name, report in backend.known.items() if report.phase is Phase.active], seed
        story.parts.store.close()
    assert ends == set(FINAL)


def test_submission_whose_answer_is_lost_is_recognised(parts):
    """SV-04: killed between Ray's taking the job and writing that down."""
    job = parts.add()
    parts.backend.is_answer_lost = True
    with pytest.raises(BackendError):
        parts.tick()
    assert parts.state(job) is State.running
    parts.tick(2)
    assert parts.backend.launches == [submission_id(job)]
    found = parts.store.get(job.id)
    assert found is not None
    assert found.is_launched


def test_job_that_was_never_submitted_is_submitted_by_the_next_start(parts):
    """Killed between writing down `running` and asking Ray."""
    job = parts.add()
    assert parts.store.change(job.id, State.pending, State.running)
    parts.tick()
    assert parts.backend.launches == [submission_id(job)]


def test_job_that_ray_has_forgotten_is_not_run_again(parts):
    """Ray's head has ended; whether its answer was written down or only the claim of the job's process is there."""
    noted, claimed = parts.add(), parts.add()
    parts.tick()
    parts.backend.known.clear()
    parts.backend.commands.clear()
    with parts.store._writing() as connection:
        connection.execute("UPDATE jobs SET is_launched = 0 WHERE id = ?", [claimed.id])
    claim = claim_file(parts.settings.state_dir, claimed.id)
    claim.parent.mkdir()
    claim.touch()
    parts.tick()
    for job in (noted, claimed):
        found = parts.store.get(job.id)
        assert found is not None
        assert found.state is State.failed
        assert "resume" in (found.reason or "")
    assert len(parts.backend.launches) == 2


def test_job_is_over_only_when_its_trainer_is(parts):
    """SV-05: a job that has ended for Ray stays `stopping` while a process has its folder's lock."""
    job = parts.add()
    parts.tick()
    descriptor = take(lock_file(parts.settings.state_dir, job.run), 0)
    parts.service.cancel(job.id)
    parts.tick(3)
    assert parts.state(job) is State.stopping
    assert descriptor is not None
    os.close(descriptor)
    parts.tick()
    assert parts.state(job) is State.cancelled


def test_more_gpus_than_there_are_wait_in_order(parts):
    """SV-08: over-booked jobs are queued, smaller ones do not overtake, and what fits nowhere holds up nobody."""
    parts.backend.total = Capacity(cpus=8, gpus=8)
    jobs = [parts.add(gpus=number) for number in (4, 8, 1, 16)]
    parts.tick()
    assert [parts.state(job) for job in jobs[:3]] == [State.running, State.pending, State.pending]
    parts.backend.end(submission_id(jobs[0]), 0)
    parts.tick(2)
    assert [parts.state(job) for job in jobs[:3]] == [State.succeeded, State.running, State.pending]
    parts.backend.end(submission_id(jobs[1]), 0)
    parts.tick(2)
    assert parts.state(jobs[2]) is State.running
    found = parts.store.get(jobs[3].id)
    assert found is not None
    assert found.state is State.pending
    assert found.reason == "it waits for 1 CPUs and 16 GPUs, Ray has 8 CPUs and 8 GPUs in all"
    parts.backend.total = Capacity(cpus=8, gpus=24)
    parts.tick()
    assert parts.state(jobs[3]) is State.running


def test_no_more_jobs_run_than_are_wanted(tmp_path):
    parts = Parts(tmp_path, max_running=2)
    jobs = [parts.add() for _ in range(5)]
    most = 0
    for _ in range(20):
        parts.tick()
        running = [job for job in jobs if parts.state(job) is State.running]
        most = max(most, len(running))
        if running:
            parts.backend.end(submission_id(running[0]), 0)
    assert most == 2
    assert {parts.state(job) for job in jobs} == {State.succeeded}
    assert parts.backend.launches == [submission_id(job) for job in jobs]
    parts.store.close()


def test_command_of_a_job_begins_with_its_claim(parts):
    job = parts.add()
    parts.tick()
    command = list(parts.backend.commands[submission_id(job)])
    assert command[2] == "skyrl_nat.service.runner.launch"
    assert command[4] == job.id
    assert command[-1] == WAIT


def test_folder_that_leads_out_of_the_root_is_not_trained_in(parts, tmp_path):
    """SV-02: a link that somebody has put in the job's place meanwhile."""
    job = parts.add()
    (parts.settings.root_dir / job.run).symlink_to(tmp_path)
    parts.tick()
    assert parts.state(job) is State.failed
    assert parts.backend.launches == []


def test_job_whose_tasks_cannot_be_written_fails_alone(parts):
    broken = parts.add(environment="gymnasium/CartPole-v1")
    (parts.settings.root_dir / broken.run).write_text("a file where the folder should be")
    other = parts.add()
    parts.tick()
    found = parts.store.get(broken.id)
    assert found is not None
    assert found.state is State.failed
    assert (found.reason or "").startswith("its tasks must be written")
    assert parts.backend.launches == [submission_id(other)]
