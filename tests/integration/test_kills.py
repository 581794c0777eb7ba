"""Death and silence of any worker during a run: it is replaced and the run goes on, or ends in one named error."""

import os
import signal
import time

import psutil
import pytest
import small_run

pytestmark = pytest.mark.slow

QUICK = ("recovery.probe_timeout_s=2", "cluster.num_engines=2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kills")


@pytest.fixture(scope="module")
def run(folder):
    """A run with two engines that all tests of this module hurt in turn."""
    process = small_run.start(folder, "name=hurt", *small_run.LONG, *QUICK)
    small_run.wait_for_step(folder, "hurt", 2, process)
    yield process
    process.kill()
    process.communicate()


def steps(folder, name: str) -> list[int]:
    return [entry["step"] for entry in small_run.metrics(folder, name)]


def goes_on(folder, process, number: int = 3) -> None:
    """Wait for some more steps, and see that none is missing or there twice."""
    reached = steps(folder, "hurt")[-1]
    small_run.wait_for_step(folder, "hurt", reached + number, process, timeout_s=120)
    found = steps(folder, "hurt")
    assert found == list(range(1, len(found) + 1))


@pytest.mark.long
def test_sigterm_to_one_rank_of_the_policy_is_left_to_the_controller(folder, run):
    """CK-11."""
    rank = small_run.pid_of(folder, "hurt", "policy")
    os.kill(rank, signal.SIGTERM)
    goes_on(folder, run)
    assert small_run.pid_of(folder, "hurt", "policy") == rank
    assert psutil.pid_exists(rank)


@pytest.mark.parametrize(
    "role", ["engine", *(pytest.param(role, marks=pytest.mark.long) for role in ("environment", "policy"))]
)
def test_a_worker_that_stands_still_is_replaced_and_the_run_goes_on(folder, run, role: str):
    """RY-07. A policy rank takes the run back to its newest checkpoint, others lose at most the rollouts in them.

    Those that are killed are cells of tests/chaos.
    """
    hurt = small_run.pid_of(folder, "hurt", role)
    os.kill(hurt, signal.SIGSTOP)
    deadline = time.monotonic() + 120
    while small_run.pid_of(folder, "hurt", role) == hurt:
        assert time.monotonic() < deadline, "topology.json must come to name the one that lives"
        time.sleep(0.1)
    goes_on(folder, run)
    assert not psutil.pid_exists(hurt)


def test_sigterm_saves_the_step_in_flight_and_a_second_one_does_not_break_it(folder, run):
    """CK-11: as Slurm does it, to every process of the run."""
    os.kill(small_run.pid_of(folder, "hurt", "policy"), signal.SIGTERM)
    run.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    run.send_signal(signal.SIGTERM)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 130, output
    assert "Traceback" not in output
    assert "engine 0 serves again, with the current weights" in output
    reached = steps(folder, "hurt")[-1]
    saved = sorted(path.name for path in (folder / "runs" / "hurt" / "checkpoints").iterdir())
    assert saved[-1] == f"step_{reached:06d}"
    small_run.run(folder, "name=hurt", *small_run.LONG, *QUICK, f"trainer.steps={reached + 1}", "resume=latest")
    assert steps(folder, "hurt") == list(range(1, reached + 2))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_usr1_in_advance_makes_two_ranks_save_one_step_once_within_the_grace(folder):
    """CK-11: before and after it, signals to the second rank alone change nothing."""
    names = ("name=advance", "cluster.num_policy_ranks=2", "recovery.grace_s=20", "checkpoint.every_steps=0")
    process = small_run.start(folder, *small_run.LONG, *names)
    small_run.wait_for_step(folder, "advance", 2, process)
    second = small_run.pid_of(folder, "advance", "policy", 1)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        os.kill(second, number)
    small_run.wait_for_step(folder, "advance", steps(folder, "advance")[-1] + 2, process)
    started = time.monotonic()
    for pid in (process.pid, second, process.pid):
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.1)
    checkpoints = folder / "runs" / "advance" / "checkpoints"
    while not (saved := list(checkpoints.glob("step_*/manifest.json"))):
        assert time.monotonic() - started < 20 + 1, "the end of the step and its save have 20 s together"
        time.sleep(0.05)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    found = steps(folder, "advance")
    assert found == list(range(1, len(found) + 1))
    assert [path.name for path in checkpoints.iterdir()] == [f"step_{found[-1]:06d}"]
    record = (folder / "runs" / "advance" / "metrics.jsonl").read_text()
    assert record.count("time/checkpoint_s") == 1, "one save"
    assert sorted(path.name for path in saved[0].parent.glob("policy/*.distcp")) == ["__0_0.distcp", "__1_0.distcp"]
    small_run.run(folder, *small_run.LONG, *names, f"trainer.steps={found[-1] + 1}", "resume=latest")
    assert steps(folder, "advance") == list(range(1, found[-1] + 2))


@pytest.mark.parametrize("role", ["policy", "engine"])
def test_what_may_not_be_replaced_ends_the_run_with_one_named_error_and_it_resumes(folder, role: str):
    limits = ("recovery.max_policy_restarts=0", "recovery.max_engine_restarts=0")
    process = small_run.start(folder, f"name={role}", *small_run.LONG, *limits)
    small_run.wait_for_step(folder, role, 2, process)
    os.kill(small_run.pid_of(folder, role, role), signal.SIGKILL)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1, output
    lines = [line for line in output.splitlines() if line.startswith("skyrl-nat: ")]
    assert len(lines) == 1, output
    assert f"{role} 0 on node" in lines[0]
    assert "for want of memory" in lines[0], "RY-07: a silent end suggests a look at the memory"
    assert "resume=latest" in lines[0]
    reached = steps(folder, role)[-1]
    small_run.run(folder, f"name={role}", *small_run.LONG, f"trainer.steps={reached + 2}", "resume=latest")
    assert steps(folder, role) == list(range(1, reached + 3)), "no step is missing and none is there twice"
