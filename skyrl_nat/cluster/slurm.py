"""A Slurm job from its first to its last process: Ray on all nodes, the trainer, the end, and back into the queue.

`slurm/train.sbatch` becomes this process. It imports neither Ray nor torch: it starts who does.

    usage: python -m skyrl_nat.cluster.slurm [hydra overrides]
"""

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from skyrl_nat.cluster.allocation import Allocation, read_allocation
from skyrl_nat.cluster.node_starter import END_S, START_S
from skyrl_nat.cluster.ray_settings import RAY_SETTINGS
from skyrl_nat.config.load import load_config
from skyrl_nat.config.recovery import STOP_SIGNALS
from skyrl_nat.errors import ConfigError, SkyRLNatError, WorkerError

STARTER = "skyrl_nat.cluster.node_starter"
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
LOOK_S = 0.2


def complete_overrides(arguments: Sequence[str], job: Allocation) -> list[str]:
    """Return the trainer's overrides: a name of the job's own, all of its nodes, and `resume=latest` when it is back.

    What the user gave stays, except that a job that was put back into the queue goes on from its own checkpoint.
    """
    given = {argument.lstrip("+").split("=")[0] for argument in arguments}
    overrides = list(arguments)
    if "name" not in given:
        # Every start of this job finds the same folder, and no other job does.
        overrides.append(f"name=slurm-{job.job_id}")
    if "cluster.num_nodes" not in given and job.num_nodes > 1:
        overrides.append(f"cluster.num_nodes={job.num_nodes}")
    config = load_config(overrides)
    begun_elsewhere = config.resume not in ("never", "latest") and not _has_checkpoint(config.run_dir)
    if job.num_restarts and not begun_elsewhere:
        overrides = [text for text in overrides if not text.lstrip("+").startswith("resume=")]
        overrides.append("resume=latest")
    return overrides


def _has_checkpoint(run_dir: Path) -> bool:
    return any(run_dir.glob("checkpoints/step_*/manifest.json"))


class Job:
    """The processes of this start of the job."""

    def __init__(self, job: Allocation, overrides: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start nothing yet.

        Args:
            job: The allocation.
            overrides: Of the trainer.
            environment: Of this process.
        """
        self._job = job
        self._overrides = overrides
        # Nobody without this word joins the cluster, nor do our nodes join that of another job.
        self._environment = {
            **RAY_SETTINGS,
            **environment,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            # Ray on one node listens on the loopback address alone, Ray on several on all addresses.
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": str(int(job.num_nodes > 1)),
            # Its metrics would be read by everyone without the word. The last two servers, whose ports are fixed ones,
            # are told one that does not exist: they do not start, and nobody misses them.
            "RAY_enable_metrics_collection": "0",
            "AUTOSCALER_METRIC_PORT": "-1",
            "DASHBOARD_METRIC_PORT": "-1",
        }
        self._nodes: list[subprocess.Popen[str]] = []
        self._trainer: subprocess.Popen[bytes] | None = None
        self._is_stopping = False

    def run(self) -> int:
        """Start Ray, train, end Ray; return the trainer's exit code.

        Raises:
            WorkerError: Ray does not come up.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)
        try:
            address = self._start_head()
            if self._job.num_nodes > 1:
                self._start_others(address)
            code = self._train(address)
        finally:
            self._end_nodes()
        if self._is_stopping and code == EXIT_INTERRUPTED:
            self._requeue()
        return code

    def _stop(self, *_: object) -> None:
        """Let the trainer save; more signals change nothing, since that takes its time."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._trainer is not None:
            _say("the job is to end: the trainer is told to save")
            self._trainer.terminate()

    def _start_head(self) -> str:
        head = self._start([sys.executable, "-m", STARTER])
        assert head.stdout is not None
        select.select([head.stdout], [], [], START_S + END_S)
        address = head.stdout.readline().strip()
        if not address:
            raise WorkerError("Ray's head must come up on the first node, it did not: see the line above")
        _say(f"Ray's head is {address}")
        return address

    def _start_others(self, address: str) -> None:
        num_others = self._job.num_nodes - 1
        step = ["srun", f"--nodes={num_others}", f"--ntasks={num_others}", "--ntasks-per-node=1", "--relative=1"]
        # One node that is lost does not end the others, and no task is bound to one core.
        step += ["--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--cpu-bind=none", "--export=ALL"]
        self._start([*step, sys.executable, "-m", STARTER, address])

    def _start(self, command: Sequence[str]) -> "subprocess.Popen[str]":
        """Start what ends when its input does, so even if this process is killed."""
        node = subprocess.Popen(
            command, env=self._environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._nodes.append(node)
        return node

    def _train(self, address: str) -> int:
        if self._is_stopping:
            return EXIT_INTERRUPTED
        self._trainer = subprocess.Popen(
            [sys.executable, "-m", "skyrl_nat.cli", "train", *self._overrides],
            env={**self._environment, "RAY_ADDRESS": address},
        )
        if self._is_stopping:
            self._trainer.terminate()
        ended: set[int] = set()
        while (code := self._trainer.poll()) is None:
            for node in self._nodes:
                if node.poll() is not None and node.pid not in ended:
                    ended.add(node.pid)
                    _say(f"a step of Ray's nodes ended early, with exit code {node.returncode}")
            time.sleep(LOOK_S)
        return code if code >= 0 else 128 - code

    def _end_nodes(self) -> None:
        """End Ray on all nodes; the head last, since the others say good-bye to it."""
        for node in reversed(self._nodes):
            assert node.stdin is not None
            with suppress(OSError):
                node.stdin.close()
            _wait_or_kill(node, 2 * END_S)

    def _requeue(self) -> None:
        """Put the job back into the queue, unless somebody has ended it or Slurm does so already."""
        number = self._job.job_id
        state = _ask(["squeue", "--noheader", f"--jobs={number}", "--format=%T"])
        if state != "RUNNING":
            _say(f"the job is not put back into the queue: Slurm says that it is {state or 'gone'}")
            return
        _say("the job goes back into the queue, and on with resume=latest")
        refusal = _ask(["scontrol", "requeue", number])
        if refusal:
            _say(
                f"Slurm must take the job back, found: {refusal}. Submit it again with the same name and resume=latest"
            )


def _wait_or_kill(process: "subprocess.Popen[str]", timeout_s: float) -> None:
    try:
        process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()


def _ask(command: Iterable[str]) -> str:
    try:
        found = subprocess.run(list(command), capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (found.stdout + found.stderr).strip()


def _say(text: str) -> None:
    print(f"skyrl-nat: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> int:
    """Run the job and return the exit code of its trainer."""
    try:
        job = read_allocation(os.environ)
        return Job(job, complete_overrides(arguments, job), os.environ).run()
    except ConfigError as error:
        _say(str(error))
        return EXIT_BAD_INPUT
    except SkyRLNatError as error:
        _say(str(error))
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
