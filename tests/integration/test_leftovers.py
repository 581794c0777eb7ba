"""However a run ends, nothing of it stays: no worker, no raylet, none of their children, no port; others are let be."""

import os
import signal
import subprocess
import uuid

import psutil
import pytest
import small_run
from marked_processes import processes_with, require_none

pytestmark = pytest.mark.long

MARK = "SKYRL_NAT_TEST_RUN"
EMPTY_S = 15.0


@pytest.fixture
def stranger():
    """A process with a name like one of Ray's, which somebody else has started."""
    process = subprocess.Popen(["bash", "-c", "exec -a raylet sleep 600"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def listeners() -> set[tuple[int, int | None]]:
    """Return the ports on which anybody on this machine listens, with the process."""
    found = psutil.net_connections("tcp")
    return {(one.laddr.port, one.pid) for one in found if one.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_its_run(tmp_path, monkeypatch, stranger, number: signal.Signals):
    """RY-08. Under Slurm: tests/integration/test_slurm.py."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(MARK, value)
    process = small_run.start(tmp_path, "name=run", *small_run.LONG, "cluster.num_engines=3")
    small_run.wait_for_step(tmp_path, "run", 1, process)
    marked = processes_with(MARK, value)
    names = {process.name() for process in marked}
    assert {"raylet", "gcs_server"} <= names
    assert sum(name.startswith(("ray::AsyncHost", "ray::ThreadedHo")) for name in names), names
    pids = {process.pid for process in marked}
    held = {(port, pid) for port, pid in listeners() if pid in pids}
    assert held, "Ray listens on some"
    os.kill(process.pid, number)
    process.communicate(timeout=60)
    assert process.returncode == (-number if number is signal.SIGKILL else 130)
    require_none(MARK, value, EMPTY_S)
    assert not held & listeners()
    assert stranger.poll() is None
