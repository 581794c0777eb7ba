"""SIGKILL of any worker during a run: recovery or one named error, soon, and `resume=latest` goes on."""

import os
import signal
import time

import pytest
import small_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kills")


@pytest.mark.parametrize("role", ["policy", "engine"])
def test_death_of_a_policy_rank_or_engine_is_one_named_error_and_the_run_resumes(folder, role: str):
    process = small_run.start(folder, f"name={role}", *small_run.LONG)
    small_run.wait_for_step(folder, role, 3, process)
    os.kill(small_run.pid_of(folder, role, role), signal.SIGKILL)
    started = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - started < 60
    assert process.returncode != 0
    lines = [line for line in output.splitlines() if line.startswith("skyrl-nat: ")]
    assert len(lines) == 1, output
    assert f"{role} 0 on node" in lines[0]
    reached = small_run.metrics(folder, role)[-1]["step"]
    small_run.run(folder, f"name={role}", *small_run.LONG, f"trainer.steps={reached + 2}", "resume=latest")
    steps = [entry["step"] for entry in small_run.metrics(folder, role)]
    assert steps == list(range(1, reached + 3)), "no step is missing and none is there twice"


def test_dead_environment_and_reward_workers_are_replaced_and_the_run_goes_on(folder):
    process = small_run.start(folder, "name=others", *small_run.LONG)
    small_run.wait_for_step(folder, "others", 3, process)
    for role in ("environment", "reward"):
        reached = small_run.metrics(folder, "others")[-1]["step"]
        os.kill(small_run.pid_of(folder, "others", role), signal.SIGKILL)
        small_run.wait_for_step(folder, "others", reached + 4, process, timeout_s=60)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "stopped. Go on with resume=latest" in output


def test_sigterm_ends_a_run_in_order(folder):
    process = small_run.start(folder, "name=term", *small_run.LONG)
    small_run.wait_for_step(folder, "term", 1, process)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
