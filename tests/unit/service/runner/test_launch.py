"""A job's own first words: once, alone, and with everything that it prints in its folder."""

import os
import subprocess
import sys
import time

import pytest

from skyrl_nat.service.runner.launch import EXIT_TWICE, LOG, claim_file, launch_command
from skyrl_nat.service.runner.locks import is_held, kill_holder, lock_file, take

JOB = "job-0123456789abcdef"


def start(folder, job=JOB, run="run", code="print('trained', flush=True)"):
    command = launch_command(folder / "state", job, folder / "root" / run, [sys.executable, "-c", code])
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_job_runs_once_and_prints_into_its_folder(tmp_path):
    """SV-04: the second start finds the claim of the first, whatever became of that."""
    first = start(tmp_path)
    assert first.communicate(timeout=60) == ("", "")
    assert first.returncode == 0
    assert claim_file(tmp_path / "state", JOB).exists()
    second = start(tmp_path, code="raise SystemExit('must not run')")
    assert "was begun before" in second.communicate(timeout=60)[1]
    assert second.returncode == EXIT_TWICE
    assert (tmp_path / "root" / "run" / LOG).read_text() == "trained\n"


def test_folder_has_one_trainer_at_a_time(tmp_path, monkeypatch):
    """SV-08: the lock is the trainer's own, and goes with it when it is killed."""
    lock = lock_file(tmp_path / "state", "run")
    first = start(tmp_path, code="import time; print('up', flush=True); time.sleep(600)")
    log = tmp_path / "root" / "run" / LOG
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert is_held(lock)
    assert take(lock, 0.2) is None
    kill_holder(lock)
    assert first.wait(20) == -9
    assert not is_held(lock)
    descriptor = take(lock, 0)
    assert descriptor is not None
    os.close(descriptor)


def test_lock_of_a_process_that_is_gone_kills_nobody(tmp_path):
    """Its number may be somebody else's by now."""
    lock = tmp_path / "x.lock"
    lock.write_text(f"{os.getpid()} 1.0")
    kill_holder(lock)
    lock.write_text("nonsense")
    kill_holder(lock)
    kill_holder(tmp_path / "missing")


@pytest.mark.parametrize("target", ["outside", "missing"])
def test_log_behind_a_link_is_not_written(tmp_path, target):
    """SV-02."""
    (tmp_path / "outside").write_text("canary")
    run = tmp_path / "root" / "run"
    run.mkdir(parents=True)
    (run / LOG).symlink_to(tmp_path / target)
    process = start(tmp_path)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert (tmp_path / "outside").read_text() == "canary"
    assert not (tmp_path / "missing").exists()
