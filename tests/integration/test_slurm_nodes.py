"""A Slurm job of two nodes while it trains: which GPUs it sees on each, and who answers whom on its ports."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import sleepy_family
import small_run
from letter_family import write_letter_tasks
from listening import listening_with
from marked_processes import processes_with
from ray.core.generated import gcs_service_pb2
from slurm_jobs import submit, wait_for_step
from strangers import NOT_THERE, OF_GRPC, REFUSED, Channel, grpc_answers, http_answers, is_store

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

UNAUTHORIZED = 401
NODES = "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
HEALTH = {"/api/healthz", "/api/local_raylet_healthz"}
"""Ray keeps them open: they say that the agent and its raylet live."""
SHARE = "import os; from skyrl_nat.cluster.allocation import read_share; print(read_share(os.environ).num_gpus)"


@pytest.fixture(scope="module")
def pair(slurm, folder):
    """A job that trains on both nodes with one GPU of two on each; of the first node a neighbour has the other one."""
    small = ("--parsable", "--mem=100", "--gpus-per-node=1", "--nodelist=first", f"--output={folder}/small.out")
    neighbour = slurm.ask("sbatch", *small, "--wrap", "sleep 3600")
    slurm.wait_for(neighbour, "RUNNING")
    (folder / "sleepy").mkdir()
    tasks = write_letter_tasks(folder / "sleepy", sleepy_family.NAME)
    overrides = (*small_run.LONG, "cluster.num_engines=2", "cluster.num_gpus_per_node=1", *tasks)
    both = ("--nodes=2", "--cpus-per-task=1", "--gpus-per-node=1")
    number = submit(slurm, folder, "pair", *overrides, options=both)
    wait_for_step(slurm, folder, "pair", number, 1)
    return number


@pytest.fixture(scope="module")
def head(slurm, pair) -> tuple[str, str]:
    """Address of Ray's head, and the job's word."""
    found = re.search(r"Ray's head is (\S+)", slurm.output(slurm.job(pair)))
    assert found is not None
    server = next(process for process in processes_with("SLURM_JOB_ID", pair) if process.name() == "gcs_server")
    return found[1], server.environ()["RAY_AUTH_TOKEN"]


def test_job_sees_the_gpus_that_slurm_gave_it_on_each_node_and_no_others(folder, head):
    """RY-10."""
    channel = Channel(*head)
    code, answer = channel.call(NODES)
    channel.close()
    assert code == "OK", answer
    # Not all of the generated file's names are in its stub.
    messages: Any = gcs_service_pb2
    nodes = messages.GetAllNodeInfoReply.FromString(answer).node_info_list
    assert {node.node_name: node.resources_total["GPU"] for node in nodes} == {"first": 1.0, "second": 1.0}
    topology = json.loads((folder / "runs" / "pair" / "topology.json").read_text())
    workers = [worker for role in topology["identities"].values() for worker in role]
    assert {(worker["node"], worker["gpus"]) for worker in workers} == {("first", "1"), ("second", "0")}


@pytest.mark.parametrize(("asked", "num_gpus"), [((), "0"), (("--gpus-per-node=1",), "1")])
def test_job_that_asks_for_less_than_the_shell_that_submits_it_has_sees_what_it_asked_for(
    slurm, folder, asked: tuple[str, ...], num_gpus: str
):
    options = ("--parsable", "--mem=100", "--nodelist=second", f"--chdir={Path.cwd()}", f"--output={folder}/%j.out")
    command = ("--wrap", f"{sys.executable} -c '{SHARE}'")
    shell = {**os.environ, "CUDA_VISIBLE_DEVICES": "0,1,2,3"}
    number = slurm.ask("sbatch", *options, *asked, *command, extra=shell)
    job = slurm.wait_for(number, "COMPLETED", "FAILED")
    assert slurm.output(job).strip() == num_gpus


def test_every_port_beyond_the_loopback_address_refuses_who_does_not_know_the_jobs_word(pair, head):
    """RY-10: what answers all the same is named here, with docs/security.md."""
    where = listening_with("SLURM_JOB_ID", pair)
    reachable = {address: who for address, who in where.items() if not address.startswith(("127.", "::1:"))}
    assert {"gcs_server", "raylet", "ray::DashboardAgent", "ray::RuntimeEnvAgent"} <= set(reachable.values())
    num_of: dict[str, int] = {"gRPC": 0, "HTTP": 0, "store": 0}
    for address, who in reachable.items():
        place = address.replace("::", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")
        port = f"{who} at {address}"
        if answered := grpc_answers(place):
            num_of["gRPC"] += 1
            rest = {code: names - set(OF_GRPC) for code, names in answered.items() if code not in (REFUSED, NOT_THERE)}
            assert not any(rest.values()), f"{port} answers a stranger: {rest}"
            assert REFUSED in answered, f"{port} refuses nothing"
        elif statuses := http_answers(place):
            num_of["HTTP"] += 1
            rest = {status: paths - HEALTH for status, paths in statuses.items() if status != UNAUTHORIZED}
            assert not any(rest.values()), f"{port} answers a stranger: {rest}"
        else:
            num_of["store"] += 1
            assert is_store(place), f"{port} is none of what is known"
            assert who.startswith("ray::ThreadedHost"), f"{port} has a store"
    assert num_of["gRPC"] >= 10
    assert num_of["HTTP"] == 4, "two agents on each node"
    assert num_of["store"] == 1, "where the policy's rank meets its peers"
    channel = Channel(head[0])
    assert channel.call(NODES)[0] == REFUSED, "what is answered to who knows the word"
    channel.close()
