"""`skyrl-nat submit` to a real Ray head: `ray job submit` uploads the code, and the job trains and ends clean."""

import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import pytest
import small_run
from marked_processes import processes_with
from slurm_cluster import free_ports

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MARK = "SKYRL_NAT_TEST_MARK"


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


def submit(
    address: str, folder: Path, *overrides: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    arguments = small_run.arguments(folder, *overrides)
    return subprocess.run(
        [sys.executable, "-m", "skyrl_nat.cli", "submit", f"--address={address}", *options, *arguments],
        cwd=ROOT,
        env={**small_run.environment(), "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def workers(folder: Path) -> list[str]:
    """Return the actors of the cluster that are alive."""
    names = [process.name() for process in processes_with(MARK, str(folder))]
    return [name for name in names if name.startswith(("ray::AsyncHost", "ray::ThreadedHo"))]


def wait_until(is_so, what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.mark.timeout(600)
def test_job_uploads_code_alone_trains_and_leaves_nothing_behind(dashboard, folder):
    found = submit(dashboard, folder, "name=job", "cluster.environment.LETTERS=8")
    assert found.returncode == 0, found.stdout + found.stderr
    size = float(found.stdout.split("uploading ")[1].split(" MiB packed")[0].rsplit(" ", 1)[1])
    assert 0.1 < size < 20
    assert [entry["step"] for entry in small_run.metrics(folder, "job")] == [1, 2]
    packages = [
        path for path in folder.glob("ray/session_*/runtime_resources/working_dir_files/_ray_pkg_*") if path.is_dir()
    ]
    assert packages
    names = {path.name for path in packages[0].iterdir()}
    assert {"skyrl_nat", "conf"} <= names
    assert not names & {"runs", "data", "tests", ".git", ".venv"}
    wait_until(lambda: not workers(folder), "the workers of a finished job must be gone")


@pytest.mark.timeout(600)
def test_job_that_is_stopped_takes_its_workers_along(dashboard, folder):
    """RY-08."""
    found = submit(dashboard, folder, "name=stopped", *small_run.LONG, options=("--no-wait",))
    assert found.returncode == 0, found.stdout + found.stderr
    number = next(word.strip("'") for word in found.stdout.split() if word.startswith("'raysubmit_"))
    file = folder / "runs" / "stopped" / "metrics.jsonl"
    wait_until(lambda: file.exists() and small_run.metrics(folder, "stopped"), "the job must train")
    assert workers(folder)
    stop = [sys.executable, "-m", "ray.scripts.scripts", "job", "stop", f"--address={dashboard}", number]
    subprocess.run(stop, check=True, capture_output=True, timeout=60, env={**os.environ, "RAY_AUTH_MODE": "disabled"})
    wait_until(lambda: not workers(folder), "the workers of a stopped job must be gone")


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
