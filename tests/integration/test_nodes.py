"""Several Ray nodes: workers are spread, a lost node is replaced or done without, and what cannot be is said."""

import asyncio
import json
import re
import subprocess
import sys
import time

import pytest
import ray
import sleepy_family
import small_run
from letter_family import write_letter_tasks
from ray_nodes import QUICK, ray_nodes

from skyrl_nat.cluster.placement import PlacementPlan
from skyrl_nat.cluster.session import reserved
from skyrl_nat.errors import WorkerError

pytestmark = pytest.mark.long

TWO_NODES = (
    "cluster.num_nodes=2",
    "cluster.num_engines=2",
    "cluster.num_environment_workers=2",
    "cluster.num_reward_workers=2",
    "cluster.num_threads=1",
    "recovery.probe_timeout_s=2",
    "recovery.node_timeout_s=20",
)
HOLDER = """
import sys, time, ray
from ray.util.placement_group import placement_group
ray.init(address=sys.argv[1], log_to_driver=False)
group = placement_group([{"CPU": 2}], lifetime="detached")
assert group.wait(60)
print("held", flush=True)
time.sleep(600)
"""
"""A job whose resources outlive it."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("nodes")


@pytest.fixture(scope="module")
def nodes(folder):
    with ray_nodes() as cluster, pytest.MonkeyPatch.context() as patch:
        cluster.start("head", 0)
        for name in "bc":
            cluster.start(name, 1)
        for key, value in {**QUICK, "RAY_ADDRESS": cluster.address}.items():
            patch.setenv(key, value)
        yield cluster


def topology(folder) -> dict:
    return json.loads((folder / "runs" / "spread" / "topology.json").read_text())


def hosts(folder, role: str) -> list[str]:
    return [identity["node"] for identity in topology(folder)["identities"][role]]


def wait_until(is_so, process, timeout_s: float = 180) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_so():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline, "the topology must come to say so"
        time.sleep(0.2)


def goes_on(folder, process) -> None:
    reached = small_run.metrics(folder, "spread")[-1]["step"]
    small_run.wait_for_step(folder, "spread", reached + 3, process)
    found = [entry["step"] for entry in small_run.metrics(folder, "spread")]
    assert found == list(range(1, len(found) + 1)), "no step may be missing or there twice"


@pytest.mark.timeout(600)
def test_lost_node_is_replaced_by_another_then_done_without_and_the_policys_ends_the_run(nodes, folder):
    (folder / "sleepy").mkdir()
    tasks = write_letter_tasks(folder / "sleepy", sleepy_family.NAME)
    process = small_run.start(folder, "name=spread", *small_run.LONG, *TWO_NODES, *tasks)
    small_run.wait_for_step(folder, "spread", 2, process)
    assert all(sorted(hosts(folder, role)) == ["b", "c"] for role in ("engine", "environment", "reward"))
    home = hosts(folder, "policy")[0]
    away = "c" if home == "b" else "b"
    far = hosts(folder, "engine").index(away)

    nodes.start("d", 1)
    nodes.cut(away)
    wait_until(lambda: hosts(folder, "engine")[far] == "d" and away not in hosts(folder, "reward"), process)
    assert topology(folder)["lost_nodes"] == [away]
    goes_on(folder, process)

    nodes.kill("d")
    wait_until(lambda: topology(folder)["lost_engines"] == [far], process)
    goes_on(folder, process)
    assert hosts(folder, "environment") == hosts(folder, "reward") == [home, home]

    nodes.kill(home)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    assert len(re.findall("is lost, with", output)) >= 2, output
    assert f"node d is lost, with engine {far}" in output
    said = [line for line in output.splitlines() if line.startswith("skyrl-nat: ")]
    assert len(said) == 1, output
    assert "policy 0 must have a node" in said[0]
    assert "Start another node, then go on with resume=latest" in said[0]
    assert "Traceback" not in output
    reached = small_run.metrics(folder, "spread")[-1]["step"]
    saved = sorted(path.name for path in (folder / "runs" / "spread" / "checkpoints").iterdir())
    assert f"step_{reached:06d}" in saved or f"step_{reached - 1:06d}" in saved

    short = small_run.start(folder, "name=short", "cluster.num_nodes=2", "cluster.start_timeout_s=3")
    output, _ = short.communicate(timeout=120)
    assert short.returncode == 2, output
    assert "cluster.num_nodes must find 2 nodes with 0 GPUs each, Ray sees head: 0 GPUs, 0 CPUs" in output


def test_resources_that_another_job_holds_are_waited_for_and_then_named_and_given_back(monkeypatch):
    """RY-01."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    plan = PlacementPlan(slots=(), bundles=({"CPU": 1.0},), num_threads=1)
    asked = r"\(1\) must find as many nodes with 1 CPUs and 0 GPUs free within 1 s, found \S+: 0 CPUs and 0 GPUs"

    async def scenario() -> None:
        async with reserved(plan, 30):
            with pytest.raises(WorkerError, match=asked):
                async with reserved(plan, 1):
                    pytest.fail("another job holds them")
        async with reserved(plan, 30):
            assert ray.available_resources().get("CPU", 0) == 0

    try:
        asyncio.run(scenario())
    finally:
        ray.shutdown()


@pytest.mark.timeout(300)
def test_what_a_dead_job_still_holds_is_named_within_the_limit_and_nothing_more_is_held_afterwards(folder, monkeypatch):
    """RY-01, its second half."""
    with ray_nodes() as cluster:
        cluster.start("head", 2)
        for key, value in {**QUICK, "RAY_ADDRESS": cluster.address}.items():
            monkeypatch.setenv(key, value)
        command = [sys.executable, "-c", HOLDER, cluster.address]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            holder.kill()
        waiting = small_run.start(folder, "name=waiting", "cluster.start_timeout_s=5")
        output, _ = waiting.communicate(timeout=60)
        assert waiting.returncode == 1, output
        [said] = [line for line in output.splitlines() if line.startswith("skyrl-nat: ")]
        assert "free within 5 s, found head: 0 CPUs and 0 GPUs. Stop other jobs" in said
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            groups = ray.util.placement_group_table().values()
            assert sorted(group["state"] for group in groups) == ["CREATED", "REMOVED"]
        finally:
            ray.shutdown()
