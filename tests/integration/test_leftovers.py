"""However a run ends, nothing of it stays: no worker, no raylet, none of their children."""

import os
import signal
import uuid

import pytest
import small_run
from marked_processes import processes_with, require_none

pytestmark = pytest.mark.slow

MARK = "SKYRL_NAT_TEST_RUN"
EMPTY_S = 15.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_run(tmp_path, monkeypatch, number: signal.Signals):
    """RY-08. SIGTERM is Slurm's: tests/integration/test_slurm.py."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    process = small_run.start(tmp_path, "name=run", *small_run.LONG, "cluster.num_engines=2")
    small_run.wait_for_step(tmp_path, "run", 1, process)
    names = {process.name() for process in processes_with(MARK, value)}
    assert {"raylet", "gcs_server"} <= names
    assert sum(name.startswith(("ray::AsyncHost", "ray::ThreadedHo")) for name in names), names
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number is signal.SIGINT else -number)
    require_none(MARK, value, EMPTY_S)
