"""Ray's nodes of Slurm jobs by themselves: who may join, who waits for how long, and who can reach them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import small_run
from listening import listening_with
from slurm_cluster import free_ports

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from skyrl_nat.cluster import node_starter
node_starter.START_S = float(sys.argv[1])
sys.exit(node_starter.main(sys.argv[2:]))
"""


def number_of(job: int) -> str:
    return str(10**9 + 10 * os.getpid() % 10**8 + job)


@contextlib.contextmanager
def node(job: int, name: str, word: str, *address: str, limit_s: float = 60) -> Iterator["subprocess.Popen[str]"]:
    """Start a node of a job whose number no Slurm has given out."""
    environment = {
        **os.environ,
        "SLURM_JOB_ID": number_of(job),
        "SLURMD_NODENAME": name,
        "SLURM_CPUS_ON_NODE": "1",
        "SLURM_MEM_PER_NODE": "1000",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": word * 64,
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(limit_s), *address],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate(timeout=60)


def says(process: "subprocess.Popen[str]") -> str:
    """Return the line that a node prints once it is up; empty where it ends before."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.timeout(300)
def test_node_joins_the_head_of_its_own_job_alone_and_waits_for_none_for_ever():
    """RY-10: two jobs on one machine; the end of one leaves the other."""
    with node(1, "first", "a") as head:
        address = says(head)
        assert address
        with node(2, "first", "b", address) as stranger:
            assert says(stranger) == ""
            assert stranger.wait(60) == 1
            assert "AuthenticationError" in stranger.stderr.read()
        with node(2, "first", "b") as other:
            assert says(other) not in ("", address)
        with node(1, "second", "a", address) as member:
            assert says(member) == address
        assert head.poll() is None
    assert head.returncode == 0
    with node(3, "first", "c", f"127.0.0.1:{free_ports(1)[0]}", limit_s=8) as early:
        assert says(early) == ""
        assert early.wait(60) == 1
        assert "Ray must come up within 8 s on node first" in early.stderr.read()


@pytest.mark.timeout(300)
def test_job_of_one_node_trains_where_no_other_machine_can_reach_it(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", number_of(4))
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "2")
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "3000")
    overrides = small_run.arguments(tmp_path, "name=alone", *small_run.LONG)
    process = small_run.Running([sys.executable, "-m", "skyrl_nat.cluster.slurm", *overrides])
    try:
        small_run.wait_for_step(tmp_path, "alone", 1, process)
        where = listening_with("SLURM_JOB_ID", number_of(4))
    finally:
        process.terminate()
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert {"gcs_server", "raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent"} <= set(where.values())
    assert len(where) > 10, "the tables were read"
    assert {address: who for address, who in where.items() if not address.startswith(("127.", "::1:"))} == {}
