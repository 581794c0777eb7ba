"""Jobs from their submission to their end, as clients see them."""

import concurrent.futures
import threading
import time

import pytest
from service_parts import FakeBackend, error_of, job_of, service, submit, wait_for, write_metrics

from skyrl_nat.service.runner.backend import Capacity
from skyrl_nat.strict_json import parse_json

UNKNOWN = "job-0123456789abcdef"


@pytest.fixture
def backend():
    return FakeBackend()


@pytest.fixture
def client(tmp_path, backend):
    with service(tmp_path, backend, max_running=100) as found:
        yield found


def test_job_goes_from_pending_to_its_end(client, backend):
    job = job_of(client, name="mine", seed=5, overrides=["optimizer.lr=1e-4"], experiment="jira_tiny_cpu")
    assert job["state"] == "pending"
    assert {key: job[key] for key in ("environment", "algorithm", "name", "steps", "step", "run")} == {
        "environment": "jira",
        "algorithm": "grpo",
        "name": "mine",
        "steps": 3,
        "step": None,
        "run": job["id"],
    }
    running = wait_for(client, job["id"], "running")
    assert running["started_at"] >= running["submitted_at"]
    assert running["ended_at"] is None
    wait_until_launched(backend, 1)
    backend.end(backend.launches[0], 0)
    over = wait_for(client, job["id"], "succeeded")
    assert over["ended_at"] >= over["started_at"]
    assert client.post(f"/training/{job['id']}/cancel").json() == client.get(f"/training/{job['id']}").json() | {
        "metrics": None
    }


def wait_until_launched(backend, number):
    for _ in range(500):
        if len(backend.launches) >= number:
            return
        time.sleep(0.02)
    raise AssertionError(f"{number} launches expected, {len(backend.launches)} came")


def test_failed_job_says_why(client, backend, tmp_path):
    job = job_of(client)
    wait_until_launched(backend, 1)
    folder = tmp_path / "root" / job["run"]
    folder.mkdir()
    (folder / "job.log").write_text("step 1\nskyrl-nat: model.path must be a folder, got x. Name one\n")
    backend.end(backend.launches[0], 2)
    reason = wait_for(client, job["id"], "failed")["reason"]
    assert reason == "the trainer ended with exit code 2: model.path must be a folder, got x. Name one"
    assert client.get(f"/training/{job['id']}/logs?tail=2").text.startswith("step 1\n")
    assert client.get(f"/training/{job['id']}/logs?tail=1").text.startswith("skyrl-nat: ")


def test_twenty_threads_with_one_key_get_one_job(client, backend):
    """SV-04: 20 equal requests at the same moment, then a retry, then another body under the same key."""
    gate = threading.Barrier(20)

    def once(_):
        gate.wait()
        return submit(client, key="k-1")

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        found = list(pool.map(once, range(20)))
    assert sorted(each.status_code for each in found) == [200] * 19 + [201]
    assert len({each.json()["id"] for each in found}) == 1
    assert submit(client, key="k-1").json()["id"] == found[0].json()["id"]
    assert error_of(submit(client, key="k-1", steps=4), 409)["code"] == "idempotency_key_in_use"
    assert error_of(submit(client, "task_dag", key="k-1"), 409)["code"] == "idempotency_key_in_use"
    wait_until_launched(backend, 1)
    assert len(backend.launches) == 1
    assert len(client.get("/training").json()["jobs"]) == 1


def test_fifty_concurrent_submissions_become_fifty_jobs_with_folders_of_their_own(client, backend):
    """SV-08: all in the same second with the same name."""
    backend.total = Capacity(cpus=50, gpus=0)
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        jobs = list(pool.map(lambda _: job_of(client, name="same"), range(50)))
    assert len({job["id"] for job in jobs}) == len({job["run"] for job in jobs}) == 50
    wait_until_launched(backend, 50)
    assert len(set(backend.launches)) == 50
    folders = {command[5] for command in backend.commands.values()}
    assert {folder.rpartition("/")[2] for folder in folders} == {job["run"] for job in jobs}
    listed, before = [], ""
    while before is not None:
        page = client.get(f"/training?limit=20{before and f'&before={before}'}").json()
        listed += page["jobs"]
        before = page["next"]
    assert {job["id"] for job in listed} == {job["id"] for job in jobs}
    assert len(listed) == 50


def test_folder_is_used_again_only_with_resume_and_by_one_job_at_a_time(client, backend, tmp_path):
    """SV-08: the folder of a job that runs, of a finished one, and one that another job has begun to resume."""
    first = job_of(client)
    wait_until_launched(backend, 1)
    assert error_of(submit(client, name=first["run"]), 409)["code"] == "folder_in_use"
    manifest = tmp_path / "root" / first["run"] / "checkpoints" / "step_000001" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    assert error_of(submit(client, name=first["run"], resume=True), 409)["code"] == "folder_in_use"
    backend.end(backend.launches[0], 0)
    wait_for(client, first["id"], "succeeded")
    assert error_of(submit(client, name=first["run"]), 409)["code"] == "folder_in_use"
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: submit(client, name=first["run"], resume=True), range(8)))
    assert sorted(each.status_code for each in found) == [201] + [409] * 7
    second = next(each.json() for each in found if each.status_code == 201)
    assert second["run"] == first["run"]
    wait_until_launched(backend, 2)
    assert client.get("/checkpoints").json()[0]["path"] == f"{first['run']}/checkpoints/step_000001"


@pytest.mark.parametrize("path", ["", "/logs", "/events", "/files", "/files/metrics.jsonl", "/cancel"])
def test_unknown_job_is_not_found_everywhere(client, path):
    """SV-07: ids that are none have another answer than ids of nothing, and neither repeats what was asked."""
    method = "POST" if path == "/cancel" else "GET"
    error = error_of(client.request(method, f"/training/{UNKNOWN}{path}"), 404)
    assert error["code"] == "not_found"
    assert UNKNOWN not in error["message"]
    for name in ("nope", "x" * 5000, "job-0123456789ABCDEF", "job-0123456789abcdef%0a", "%00", "'--", "1e9"):
        assert error_of(client.request(method, f"/training/{name}{path}"), 422)["field"] == "job_id"
    error_of(client.request(method, f"/training/{path}"), 404, 405, 422)


def test_answers_with_numbers_that_are_not_finite_are_json(client, tmp_path):
    """LG-05: with NaN written as our own trainer does, and as others do."""
    job = job_of(client)
    folder = tmp_path / "root" / job["run"]
    write_metrics(folder, {"step": 1, "loss/policy": 0.5})
    for text, word in (("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf")):
        write_metrics(folder, f'{{"step": 2, "loss/policy": {text}}}')
        found = client.get(f"/training/{job['id']}")
        assert found.status_code == 200
        metrics = parse_json(found.content)["metrics"]
        assert metrics["loss/policy"] is None
        assert metrics["not_finite"] == {"loss/policy": word}
    write_metrics(folder, {"step": 3, "loss/policy": None, "not_finite": {"loss/policy": "nan"}})
    assert parse_json(client.get(f"/training/{job['id']}").content)["metrics"]["not_finite"] == {"loss/policy": "nan"}
    assert client.get(f"/training/{job['id']}").json()["step"] == 3
    client.post(f"/training/{job['id']}/cancel")
    wait_for(client, job["id"], "cancelled")
    lines = [line[6:] for line in client.get(f"/training/{job['id']}/events").text.split("\n") if line[:6] == "data: "]
    assert len([parse_json(line) for line in lines]) == 6


def test_environments_are_listed_with_what_fits_them(client):
    listed = {each["name"]: each for each in client.get("/environments").json()}
    assert {"nat_agent", "task_dag", "jira"} <= set(listed)
    assert listed["jira"]["kind"] == "family"
    assert "jira_tiny_cpu" in listed["jira"]["experiments"]
    assert "grpo" in listed["jira"]["algorithms"]
    own = [name for name, each in listed.items() if each["kind"] == "gymnasium" and "skyrl_nat/" in name]
    assert len(own) == 3
    for name in ("task_dag", own[0]):
        job_of(client, environment=name)


@pytest.mark.parametrize(
    "name", ["JiraIssueResolution-v0", "skyrl_nat/JiraIssueResolution-v0", "gymnasium/CartPole-v1"]
)
def test_gymnasium_environment_gets_tasks_of_its_own(client, backend, tmp_path, name):
    from skyrl_nat.data.specs import load_tasks

    job = job_of(client, environment=name)
    assert job["environment"].startswith("gymnasium/")
    wait_until_launched(backend, 1)
    tasks = tmp_path / "root" / job["run"] / "tasks"
    train, held_out = (load_tasks([str(tasks / f"{split}.parquet")]) for split in ("train", "validation"))
    assert {task.family for task in train + held_out} == {job["environment"]}
    assert not {task.payload["seed"] for task in train} & {task.payload["seed"] for task in held_out}


def test_mock_data_and_assets_are_listed(client, tmp_path):
    data = client.get("/jira-mock-data").json()
    assert set(data) == {"workflows", "issues"}
    root = tmp_path / "root"
    for folder, file in (("models/m", "config.json"), ("exports/e", "config.json"), ("exports/e", "model.safetensors")):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / file).write_text("{}")
    (root / "run" / "comparison-a-b").mkdir(parents=True)
    (root / "exports" / "evil").symlink_to("/etc")
    for kind, path in (("models", "models/m"), ("exports", "exports/e"), ("comparisons", "run/comparison-a-b")):
        (found,) = client.get(f"/{kind}").json()
        assert found["path"] == path
        assert found["created_at"].endswith("Z")
    assert client.get("/exports").json()[0]["size_bytes"] == 4
