"""`skyrl-nat submit` to a real Ray head: `ray job submit` uploads the code, and the job trains and ends clean."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
import small_run
from marked_processes import processes_with
from signs import SIGNS, signs_of
from slurm_cluster import free_ports

from skyrl_nat.config.load import config_from_file

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MARK = "SKYRL_NAT_TEST_MARK"
EMPTY_S = 15.0
NEIGHBOUR = """
import sys, time, ray
from ray.util.placement_group import placement_group
ray.init(address=sys.argv[1], log_to_driver=False)
group = placement_group([{"CPU": 0.1}])
assert group.wait(60)
print("up", flush=True)
time.sleep(600)
"""
"""Somebody else's work on the same cluster."""


@pytest.fixture(scope="module")
def folder():
    with tempfile.TemporaryDirectory(prefix="srj-") as name:
        yield Path(name)


@pytest.fixture(scope="module")
def dashboard(folder):
    """A head as an administrator starts it: it has no way to import this checkout but by the upload."""
    port, client, agent = free_ports(3)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests"), "RAY_AUTH_MODE": "disabled", MARK: str(folder)}
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--port=0", "--block"),
        *("--num-cpus=2", "--object-store-memory=500000000", "--disable-usage-stats", f"--temp-dir={folder}/ray"),
        *(f"--dashboard-port={port}", f"--ray-client-server-port={client}", f"--dashboard-agent-listen-port={agent}"),
    ]
    with (folder / "head.log").open("w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    address = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 90
    while True:
        try:
            urllib.request.urlopen(f"{address}/api/version", timeout=5).close()
            break
        except OSError:
            assert time.monotonic() < deadline, (folder / "head.log").read_text()
            time.sleep(0.2)
    yield address
    head.terminate()
    head.wait(60)


def project(folder: Path) -> Path:
    """Return a folder as a user has it: code, and things that must not travel though no .gitignore names them."""
    place = folder / "project"
    if not place.exists():
        for name in ("skyrl_nat", "conf"):
            shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("runs/old/metrics.jsonl", "data/train.parquet", "tests/test_mine.py", ".venv/marker"):
            file = place / name
            file.parent.mkdir(parents=True)
            file.write_text(name)
    return place


def submit(
    address: str, folder: Path, *overrides: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    arguments = small_run.arguments(folder, *overrides)
    return subprocess.run(
        [sys.executable, "-m", "skyrl_nat.cli", "submit", f"--address={address}", *options, *arguments],
        cwd=project(folder),
        env={**small_run.environment(), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def workers(folder: Path) -> list[str]:
    """Return the actors of the cluster that are alive."""
    names = [process.name() for process in processes_with(MARK, str(folder))]
    return [name for name in names if name.startswith(("ray::AsyncHost", "ray::ThreadedHo"))]


def trainers(folder: Path) -> list[int]:
    """Return the processes, shells around them too, that were started to train in a folder."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(f"root_dir={folder}/" in word for word in process.cmdline()):
                found.append(process.pid)
    return found


@contextlib.contextmanager
def neighbour(folder: Path):
    address = (folder / "ray" / "ray_current_cluster").read_text().strip()
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    process = subprocess.Popen(
        [sys.executable, "-c", NEIGHBOUR, address], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
    finally:
        process.kill()
        process.wait()


def num_groups(dashboard: str) -> int:
    """Return how many placement groups hold or want resources."""
    with urllib.request.urlopen(f"{dashboard}/api/v0/placement_groups", timeout=30) as answer:
        found = json.load(answer)["data"]["result"]["result"]
    return sum(group["state"] != "REMOVED" for group in found)


def wait_until(is_so, what: str, within_s: float = 150) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.mark.timeout(600)
def test_job_uploads_code_alone_trains_and_leaves_nothing_behind(dashboard, folder):
    """CF-01: through the REST service every sign of a value arrives as it is."""
    word = signs_of("tracking.wandb_project")
    found = submit(dashboard, folder, "name=job", "cluster.environment.LETTERS=8", word)
    assert found.returncode == 0, found.stdout + found.stderr
    assert config_from_file(folder / "runs" / "job" / "config.yaml").tracking.wandb_project == SIGNS
    size = float(found.stdout.split("uploading ")[1].split(" MiB packed")[0].rsplit(" ", 1)[1])
    assert 0.1 < size < 20
    assert [entry["step"] for entry in small_run.metrics(folder, "job")] == [1, 2]
    packages = [
        path for path in folder.glob("ray/session_*/runtime_resources/working_dir_files/_ray_pkg_*") if path.is_dir()
    ]
    assert packages
    assert {path.name for path in packages[0].iterdir()} == {"skyrl_nat", "conf"}
    wait_until(lambda: not workers(folder), "the workers of a finished job must be gone")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_job_that_is_stopped_takes_its_workers_along_and_nobody_elses(dashboard, folder):
    """RY-08: `ray job stop` asks the REST service, as every client does."""
    found = submit(dashboard, folder, "name=stopped", *small_run.LONG, options=("--no-wait",))
    assert found.returncode == 0, found.stdout + found.stderr
    number = next(word.strip("'") for word in found.stdout.split() if word.startswith("'raysubmit_"))
    file = folder / "runs" / "stopped" / "metrics.jsonl"
    wait_until(lambda: file.exists() and small_run.metrics(folder, "stopped"), "the job must train")
    assert workers(folder)
    stop = [sys.executable, "-m", "ray.scripts.scripts", "job", "stop", f"--address={dashboard}", number]
    with neighbour(folder) as other:
        assert num_groups(dashboard) == 2
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
        subprocess.run(stop, check=True, capture_output=True, timeout=60, env=environment)
        wait_until(
            lambda: not workers(folder) and not trainers(folder) and num_groups(dashboard) == 1,
            "workers, trainer and reservation of a stopped job must be gone, and no others",
            EMPTY_S,
        )
        assert other.poll() is None


def test_job_is_refused_before_anything_travels(folder):
    for overrides, sentence in (
        (("root_dir=runs",), "root_dir must be an absolute path"),
        (("trainer.stepps=3",), "trainer.stepps must be a declared key"),
        (("name=nowhere",), "http://127.0.0.1:9 does not answer"),
    ):
        found = submit("http://127.0.0.1:9", folder, *overrides)
        assert found.returncode == 2
        assert sentence in found.stderr
        assert "uploading" not in found.stdout
