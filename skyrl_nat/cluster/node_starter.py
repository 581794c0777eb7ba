"""One Ray node of a Slurm job: started on this node's share of the allocation, ended with this process's input.

Whoever starts it holds its input open. When that closes, however that happens, or SIGTERM comes, Ray is ended here.

    usage: python -m skyrl_nat.cluster.node_starter [ADDRESS]      (without an address: a new cluster's head)
"""

import hashlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from skyrl_nat.cluster.allocation import Share, read_allocation, read_share
from skyrl_nat.cluster.folders import ray_folder
from skyrl_nat.errors import SkyRLNatError, WorkerError

START_S = 120.0
END_S = 10.0
"""Time for Ray to end by itself; Slurm kills everything 30 s (its KillWait) after the first signal."""
REMOVE_S = 5.0
LOOK_S = 0.1
ADDRESS_FILE = "ray_current_cluster"
"""Ray writes the cluster's address there once the node is up."""


def node_name(environment: Mapping[str, str]) -> str:
    """Return Slurm's name of this node."""
    return environment.get("SLURMD_NODENAME") or socket.gethostname()


def own_folders(environment: Mapping[str, str]) -> list[Path]:
    """Return Ray's folder of every start of this job on this node, this one's last: nobody else has the same."""
    job = read_allocation(environment)
    node = hashlib.sha256(node_name(environment).encode()).hexdigest()[:4]
    starts = range(job.num_restarts + 1)
    return [ray_folder(f"skyrl-nat-{job.job_id}-{start}-{node}", environment) for start in starts]


def start_command(share: Share, folder: Path, name: str, address: str) -> list[str]:
    """Return the command that runs a Ray node in the foreground.

    No port is a fixed one: other jobs may share the node.
    """
    common = [
        f"--temp-dir={folder}",
        f"--node-name={name}",
        f"--num-cpus={share.num_cpus}",
        f"--num-gpus={share.num_gpus}",
        f"--memory={share.memory_bytes}",
        f"--object-store-memory={share.object_store_bytes}",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--dashboard-agent-listen-port=0",
        "--disable-usage-stats",
        "--block",
    ]
    head = ["--head", "--port=0", f"--ray-client-server-port={_free_port()}", "--include-dashboard=false"]
    return [
        *(sys.executable, "-m", "ray.scripts.scripts", "start"),
        *([f"--address={address}"] if address else head),
        *common,
    ]


def run_node(address: str, environment: Mapping[str, str]) -> None:
    """Run a Ray node until the input ends.

    Raises:
        WorkerError: Ray did not come up, or ended by itself.
    """
    share, folders, name = read_share(environment), own_folders(environment), node_name(environment)
    folder = folders[-1]
    for note in share.notes:
        print(f"skyrl-nat: node {name}: {note}", file=sys.stderr)
    # A start that was killed has left its own.
    for each in folders:
        _remove(each)
    folder.mkdir(mode=0o700)
    output = folder / "start.log"
    with output.open("w") as log:
        # In a session of its own: a signal for the job is answered by the trainer, which still needs Ray to save.
        ray = subprocess.Popen(
            start_command(share, folder, name, address),
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        found = _wait_until_up(ray, folder)
        print(found, flush=True)
        while not _is_input_over(LOOK_S):
            if ray.poll() is not None:
                raise WorkerError(f"Ray must run on node {name} until the job ends, it ended with {ray.returncode}")
    finally:
        _end(ray)
        _remove(folder)


def _wait_until_up(ray: "subprocess.Popen[bytes]", folder: Path) -> str:
    deadline = time.monotonic() + START_S
    while ray.poll() is None and time.monotonic() < deadline:
        with suppress(OSError):
            if text := (folder / ADDRESS_FILE).read_text().strip():
                return text
        if _is_input_over(LOOK_S):
            break
    lines = (folder / "start.log").read_text(errors="replace").split("\n")
    last = " / ".join(line.strip() for line in lines if line.strip())[-600:]
    raise WorkerError(f"Ray must come up within {START_S:g} s on node {node_name(os.environ)}, it did not: {last}")


def _is_input_over(timeout_s: float) -> bool:
    readable, _, _ = select.select([0], [], [], timeout_s)
    return bool(readable) and not os.read(0, 4096)


def _end(ray: "subprocess.Popen[bytes]") -> None:
    """End Ray on this node, and only this one; processes that do not end by themselves are killed."""
    with suppress(psutil.NoSuchProcess):
        family = [*psutil.Process(ray.pid).children(recursive=True), psutil.Process(ray.pid)]
        ray.terminate()
        _, alive = psutil.wait_procs(family, END_S)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, END_S)


def _remove(folder: Path) -> None:
    """Remove a folder into which a process that is just ending may still write."""
    deadline = time.monotonic() + REMOVE_S
    while folder.exists() and time.monotonic() < deadline:
        shutil.rmtree(folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def main(arguments: Sequence[str]) -> int:
    """Run this node of the job."""

    def stop(number: int, _: object) -> None:
        """End in order, once: another signal must not cut that short."""
        signal.signal(number, lambda *_: None)
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    # It is for the trainer alone; Ray and all that it starts inherit this.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        run_node(arguments[0] if arguments else "", os.environ)
    except SkyRLNatError as error:
        print(f"skyrl-nat: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
