"""The file of jobs: states along edges, one winner of every race, and what is confirmed stays."""

import concurrent.futures
import itertools
import threading

import pytest
from service_parts import make_job

from skyrl_nat.service.store import ACTIVE, EDGES, FINAL, BusyRunError, JobStore, State


@pytest.fixture
def store(tmp_path):
    found = JobStore(tmp_path / "jobs.sqlite3")
    yield found
    found.close()


def test_job_is_read_as_it_was_written_also_by_another_process_of_the_service(store, tmp_path):
    job, is_new = store.add(make_job(idempotency_key="k"))
    assert is_new
    again = JobStore(tmp_path / "jobs.sqlite3")
    assert again.get(job.id) == job == again.by_key("k")
    assert job.state is State.pending
    assert job.arguments == ("a=1", "b=2")
    again.close()


def test_states_change_along_edges_only(store):
    """SV-05: a final state has no edge, and the table names every state."""
    assert set(EDGES) == set(State) == {*ACTIVE, *FINAL}
    for before, after in itertools.product(State, State):
        job, _ = store.add(make_job())
        if after not in EDGES[before]:
            with pytest.raises(ValueError, match="along an edge"):
                store.change(job.id, before, after)
            assert store.get(job.id) == job


def test_change_happens_only_from_where_the_caller_saw_the_job(store):
    """SV-05: a result that comes after the cancel changes nothing."""
    job, _ = store.add(make_job())
    assert store.change(job.id, State.pending, State.running)
    assert not store.change(job.id, State.pending, State.cancelled)
    assert store.change(job.id, State.running, State.stopping, reason="asked")
    assert not store.change(job.id, State.running, State.failed)
    assert store.change(job.id, State.stopping, State.cancelled)
    over = store.get(job.id)
    assert not store.change(job.id, State.stopping, State.succeeded)
    assert store.get(job.id) == over


def test_one_of_many_threads_wins_a_change(store):
    """SV-05."""
    for _ in range(20):
        job, _ = store.add(make_job())
        gate = threading.Barrier(8)

        def attempt(number, job=job, gate=gate):
            gate.wait()
            return store.change(job.id, State.pending, (State.running, State.cancelled)[number % 2])

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(attempt, range(8))) == 1


def test_one_key_is_one_job_for_all_threads(store):
    """SV-04."""
    gate = threading.Barrier(20)

    def attempt(_):
        gate.wait()
        return store.add(make_job(idempotency_key="k"))

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        found = list(pool.map(attempt, range(20)))
    assert sum(is_new for _, is_new in found) == 1
    assert len({job.id for job, _ in found}) == 1
    assert len(store.in_states(tuple(State))) == 1


def test_run_folder_has_one_job_that_is_not_over(store):
    """SV-08."""
    first, _ = store.add(make_job(run="r"))
    for state in (State.pending, State.running, State.stopping):
        with pytest.raises(BusyRunError, match="one job at a time"):
            store.add(make_job(run="r"))
        after = {State.pending: State.running, State.running: State.stopping, State.stopping: State.cancelled}[state]
        assert store.change(first.id, state, after)
    store.add(make_job(run="r"))


def test_pages_are_the_newest_first_without_gaps(store):
    jobs = [store.add(make_job())[0] for _ in range(5)]
    store.change(jobs[1].id, State.pending, State.failed)
    pending = [job.id for job in reversed(jobs) if job.id != jobs[1].id]
    first = store.page(state=State.pending, before=None, limit=2)
    second = store.page(state=State.pending, before=first[-1].number, limit=2)
    assert [job.id for job in first + second] == pending
