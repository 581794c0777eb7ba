"""`skyrl-nat serve` with a real Ray head: the contract of backends, a kill, a cancel, a job that goes on."""

import contextlib
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
from backend_contract import CASES, Commands
from listening import listening_with
from marked_processes import processes_with
from service_parts import TOKEN, settings
from service_process import MARK, running_service

from skyrl_nat.service.access import TOKEN_VARIABLE
from skyrl_nat.service.jobs import RayJobs
from skyrl_nat.service.runner.head import find_head

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMANDS = Commands(
    exits=lambda code: [sys.executable, "-c", f"raise SystemExit({code})"],
    waits=[sys.executable, "-c", "import time; time.sleep(600)"],
)


@pytest.fixture(scope="module")
def running():
    with running_service() as service:
        yield service


@pytest.fixture(scope="module")
def backend(running):
    """Another process's view of the same head."""
    found = RayJobs(settings(running.folder))
    found.connect()
    return found


def trainers(folder):
    """Return the processes that train in a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "train" in words and any(f'root_dir="{folder}"' in word for word in words):
                found.append(process.pid)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_contract(backend, case):
    case(backend, COMMANDS)


def test_job_survives_a_kill_of_the_service_is_cancelled_saved_and_goes_on(running):
    """SV-05, SV-08: one job from its submission over a killed service to its cancel, then on from what was saved."""
    job = running.submit(name="mine", overrides=["checkpoint.every_steps=1000000"])
    running.wait(lambda: (running.job(job["id"])["step"] or 0) >= 1, "it must train")
    pids = trainers(running.root)
    running.kill()
    running.start()
    seen = running.job(job["id"])
    assert seen["state"] == "running"
    step = seen["step"]
    running.wait(lambda: running.job(job["id"])["step"] > step, "it must go on training")
    assert trainers(running.root) == pids
    for pid in pids:
        inherited = Path(f"/proc/{pid}/environ").read_bytes()
        assert TOKEN.encode() not in inherited
        assert TOKEN_VARIABLE.encode() not in inherited

    assert running.ask(f"/training/{job['id']}/cancel", {})["state"] == "stopping"
    over = running.wait_job(job["id"], "cancelled")
    assert trainers(running.root) == []
    saved = [asset for asset in running.ask("/checkpoints") if asset["path"].startswith(f"{job['run']}/")]
    assert len(saved) == 1
    last = over["step"]
    assert saved[0]["name"] == f"step_{last:06d}"

    with pytest.raises(urllib.error.HTTPError) as refused:
        running.submit(name=job["run"], steps=last + 1)
    assert refused.value.code == 409
    more = running.submit(name=job["run"], steps=last + 1, resume=True)
    with urllib.request.urlopen(_events(running, more["id"], last), timeout=300) as stream:
        text = stream.read().decode()
    lines = [json.loads(line[6:]) for line in text.split("\n") if line.startswith("data: ")]
    assert lines[-1]["state"] == "succeeded", running.job_log(more)
    assert {line["step"] for line in lines if "state" not in line} == {last + 1}
    assert running.job(job["id"]) == over | {"step": last + 1, "metrics": running.job(job["id"])["metrics"]}


def _events(running, job_id, last):
    headers = {"Authorization": f"Bearer {TOKEN}", "Last-Event-ID": f"{last}.99"}
    return urllib.request.Request(f"http://127.0.0.1:{running.port}/training/{job_id}/events", headers=headers)


@pytest.mark.long
def test_job_whose_trainer_is_killed_has_failed_and_the_next_one_runs(running):
    job = running.submit()
    running.wait(lambda: bool(trainers(running.root)), "it must begin")
    for pid in trainers(running.root):
        psutil.Process(pid).kill()
    assert running.wait_job(job["id"], "failed")["reason"]
    assert running.submit(key="after")["id"] == running.submit(key="after")["id"]
    (waiting,) = running.ask("/training?limit=1")["jobs"]
    running.ask(f"/training/{waiting['id']}/cancel", {})
    running.wait_job(waiting["id"], "cancelled")


@pytest.mark.long
def test_everything_listens_on_the_loopback_address_and_ray_asks_for_its_word(running):
    found = listening_with(MARK, str(running.folder))
    assert found
    assert {address.rpartition(":")[0] for address in found} <= {"127.0.0.1", "::1"}, found
    head = find_head(running.root / ".service")
    assert head is not None
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{head.address}/api/jobs/", timeout=30)
    assert refused.value.code in (401, 403)
    assert processes_with(MARK, str(running.folder))
    assert head.word not in running.log()
    assert TOKEN not in running.log()


@pytest.mark.long
def test_jobs_of_a_ray_that_was_killed_have_failed_and_the_next_one_runs_in_a_new_one(running):
    jobs = [running.submit() for _ in range(3)]
    running.wait(lambda: running.job(jobs[0]["id"])["step"], "it must train")
    head = find_head(running.root / ".service")
    assert head is not None
    psutil.Process(head.pid).kill()
    for job in jobs[:2]:
        assert running.wait_job(job["id"], "failed")["reason"].startswith("Ray ended while the job ran")
    running.wait(lambda: running.job(jobs[2]["id"])["step"], "it must train")
    assert not Path(head.folder).exists()
    left = [process for process in processes_with(MARK, str(running.folder)) if head.folder in str(process.cmdline())]
    assert left == []
    running.ask(f"/training/{jobs[2]['id']}/cancel", {})
    running.wait_job(jobs[2]["id"], "cancelled")
