"""Jobs of the product's own script under a real Slurm: submitted, waited for, looked at when they end."""

import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import small_run
from marked_processes import require_none
from slurm_cluster import SlurmCluster

ROOT = Path(__file__).resolve().parents[1]
EMPTY_S = 30.0
STEP_S = 240.0


def submit(slurm: SlurmCluster, folder: Path, name: str, *overrides: str, options: tuple[str, ...] = ()) -> str:
    """Submit the product's own script and return the job's number."""
    options = ("--parsable", "--mem=3000", f"--chdir={ROOT}", f"--output={folder}/{name}.out", *options)
    arguments = small_run.arguments(folder, f"name={name}", *overrides)
    script = str(ROOT / "slurm" / "train.sbatch")
    return slurm.ask("sbatch", *options, script, *arguments, extra=small_run.environment())


def steps(folder: Path, name: str) -> list[int]:
    """Return the steps that a run has trained so far, in the order in which they were written down."""
    file = folder / "runs" / name / "metrics.jsonl"
    return [entry["step"] for entry in small_run.metrics(folder, name)] if file.exists() else []


def wait_for_step(slurm: SlurmCluster, folder: Path, name: str, number: str, step: int) -> None:
    """Wait until a job has trained a step."""
    deadline = time.monotonic() + STEP_S
    while not (found := steps(folder, name)) or found[-1] < step:
        job = slurm.job(number)
        assert job["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), slurm.output(job)
        assert time.monotonic() < deadline, f"step {step} must be trained: {slurm.output(job)}"
        time.sleep(0.2)


@contextlib.contextmanager
def nothing_starts(slurm: SlurmCluster) -> Iterator[None]:
    """Keep a job that is put back in the queue, so that what it left can be looked at; it goes on afterwards."""
    nodes = ("scontrol", "update", "NodeName=first,second")
    slurm.ask(*nodes, "State=DRAIN", "Reason=test")
    try:
        yield
    finally:
        slurm.ask(*nodes, "State=RESUME")


def is_put_back(slurm: SlurmCluster, number: str) -> None:
    """Wait until a job waits in the queue and its life is over; Slurm itself would let it wait for two minutes."""
    require_empty(number)
    slurm.wait_for(number, "PENDING")
    slurm.ask("scontrol", "update", f"jobid={number}", "StartTime=now")


def saves_and_is_put_back(slurm: SlurmCluster, folder: Path, name: str, number: str) -> list[str]:
    """Wait until a job that was told to end waits in the queue; return the names of its checkpoints."""
    is_put_back(slurm, number)
    return require_saved(slurm, folder, name, number)


def require_saved(slurm: SlurmCluster, folder: Path, name: str, number: str) -> list[str]:
    """Require that a job has saved its last step and put itself back; return the names of its checkpoints."""
    output = slurm.output(slurm.job(number))
    assert "the job goes back into the queue" in output
    assert "Traceback" not in output
    saved = sorted(path.name for path in (folder / "runs" / name / "checkpoints").iterdir())
    assert saved[-1] == f"step_{steps(folder, name)[-1]:06d}", "the step in flight must be saved before the end"
    return saved


def require_empty(number: str) -> None:
    """Wait until a job has left nothing behind."""
    require_none("SLURM_JOB_ID", number, EMPTY_S)
    assert not list(Path(tempfile.gettempdir()).glob(f"skyrl-nat-{number}-*")), "Ray's folder must be gone"
