"""A real Slurm cluster on the loopback address: munge, controller and two nodes, all ended with the block.

Each node has two GPUs, which are names of /dev/null. A job of the partition `urgent` takes the nodes of jobs of `main`.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import debian

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "squeue")
NODES = ("first", "second")
UP_S = 60.0
GRACE_S = 180
"""Of a preempted job, as docs/clusters.md asks for."""
NUM_GPUS = 2
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
FirstJobId={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={back_s}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=2
ReturnToService=2
KillWait=20
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 GraceTime={grace_s}
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2 PreemptMode=OFF
"""


def install() -> None:
    """Install Slurm where it is missing; who may not, skips."""
    if all(shutil.which(name) for name in PROGRAMS):
        return
    debian.install("Slurm", "slurm-wlm", "munge")


class SlurmCluster:
    """Calls Slurm's own commands on the cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}

    def ask(self, *command: str, extra: Mapping[str, str] | None = None) -> str:
        """Run a command and return what it printed."""
        environment = {**self.environment, **(extra or {})}
        found = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, f"{command}: {found.stdout}{found.stderr}"
        return found.stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm says of a job."""
        words = self.ask("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait_for(self, number: str, *states: str, timeout_s: float = 90) -> dict[str, str]:
        """Wait until a job is in one of the states."""
        deadline = time.monotonic() + timeout_s
        while (job := self.job(number))["JobState"] not in states:
            assert time.monotonic() < deadline, f"job {number} is {job['JobState']}, not {states}: {self.output(job)}"
            time.sleep(0.2)
        return job

    def output(self, job: Mapping[str, str]) -> str:
        """Return what a job has printed so far."""
        file = Path(job["StdOut"])
        return file.read_text() if file.exists() else "nothing yet"


@contextlib.contextmanager
def slurm_cluster(folder: Path, back_s: int = 120) -> Iterator[SlurmCluster]:
    """Start a cluster of two nodes in a folder whose path is short; a job that is put back waits so long at least."""
    install()
    _write_config(folder, back_s)
    environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf")}
    commands = [
        ["munged", "--foreground", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"],
        ["slurmctld", "-D", "-c", "-i"],
        *(["slurmd", "-D", "-c", "-N", name] for name in NODES),
    ]
    commands[0] += [f"--{name}-file={folder}/munged.{name}" for name in ("log", "pid", "seed")]
    # Who may connect to munge is told by credentials of the socket; the test's folder belongs to root.
    commands[0] += ["--force"]
    started = []
    try:
        for command in commands:
            with (folder / f"{command[0]}.out").open("a") as out:
                started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            if command[0] == "munged":
                _wait(lambda: (folder / "munge.socket").exists(), "munge's socket", folder)
        cluster = SlurmCluster(folder)
        _wait(lambda: _num_idle(cluster) == len(NODES), "idle nodes", folder)
        try:
            yield cluster
        finally:
            cluster.ask("scancel", "--quiet", "--full", "--signal=KILL", "--user=root")
            cluster.ask("scancel", "--quiet", "--user=root")
            _wait(lambda: not cluster.ask("squeue", "--noheader"), "an empty queue", folder)
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()


def _num_idle(cluster: SlurmCluster) -> int:
    found = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--partition=main", "--format=%T"],
        env=cluster.environment,
        capture_output=True,
        text=True,
    )
    return found.stdout.split().count("idle")


def _write_config(folder: Path, back_s: int) -> None:
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    (folder / "state").mkdir()
    ports = free_ports(1 + len(NODES))
    shape = "CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=8000 State=UNKNOWN"
    shape += f" Gres=gpu:{NUM_GPUS}"
    nodes = [
        f"NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} {shape}"
        for name, port in zip(NODES, ports[1:], strict=True)
    ]
    text = CONFIG.format(
        host=socket.gethostname().split(".")[0],
        controller_port=ports[0],
        folder=folder,
        nodes="\n".join(nodes),
        back_s=back_s,
        grace_s=GRACE_S,
    )
    for number in range(NUM_GPUS):
        (folder / f"gpu{number}").symlink_to("/dev/null")
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{NUM_GPUS - 1}]\n")
    (folder / "slurm.conf").write_text(text)


def free_ports(number: int) -> list[int]:
    """Return ports that are free now."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _wait(is_there, what: str, folder: Path) -> None:
    deadline = time.monotonic() + UP_S
    while not is_there():
        logs = [*folder.glob("*.log"), *folder.glob("*.out")]
        assert time.monotonic() < deadline, f"{what} must appear: {[log.read_text()[-600:] for log in logs]}"
        time.sleep(0.1)
