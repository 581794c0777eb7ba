"""Complete runs of the trainer on a tiny model, as a user would start them."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from letter_family import write_letter_tasks

TINY = [
    "trainer.steps=2",
    "trainer.tasks_per_step=2",
    "trainer.rollouts_per_task=4",
    "trainer.micro_batch_tokens=256",
    "rollout.max_turns=2",
    "rollout.max_new_tokens=12",
    "rollout.max_total_tokens=128",
    "optimizer.lr=1e-3",
    "tracking.backends=[jsonl,console]",
]
LONG = (
    "trainer.steps=1000000",
    "checkpoint.every_steps=1",
    "checkpoint.keep_last=2",
    "evaluation.before_and_after=false",
)
"""A run that lasts until it is ended."""


def arguments(folder: Path, *overrides: str) -> list[str]:
    """Return the overrides of a tiny run; model and tasks are made in the folder once."""
    model = folder / "model"
    if not model.exists():
        from tiny_model import make_tiny_model  # torch: not for those who only want the rest of this file

        make_tiny_model(model, hidden_size=64)
    return [f"model.path={model}", f"root_dir={folder / 'runs'}", *write_letter_tasks(folder), *TINY, *overrides]


def environment() -> dict[str, str]:
    """Return the environment of a child process that can import what lies in tests/."""
    here = str(Path(__file__).parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])}


class Running(subprocess.Popen[str]):
    """A process whose output goes to a file: a pipe that nobody reads would hold it up once it is full."""

    def __init__(self, command: list[str]) -> None:
        self.output = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - read at the end
        super().__init__(command, env=environment(), stdout=self.output, stderr=subprocess.STDOUT, text=True)

    def communicate(self, input: str | None = None, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end and return all output."""
        self.wait(timeout)
        self.output.seek(0)
        return self.output.read(), ""


def start(
    folder: Path, *overrides: str, command: str = "train", program: tuple[str, ...] = ("-m", "skyrl_nat.cli")
) -> Running:
    """Start `skyrl-nat` in a process of its own."""
    return Running([sys.executable, *program, command, *arguments(folder, *overrides)])


def run(folder: Path, *overrides: str, timeout_s: float = 240) -> str:
    """Train to the end and return what was printed; a failed run is an assertion error with its output."""
    process = start(folder, *overrides)
    output, _ = process.communicate(timeout=timeout_s)
    assert process.returncode == 0, output
    return output


def metrics(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the metrics lines of training steps."""
    lines = (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()
    return [entry for entry in map(json.loads, lines) if "loss/policy" in entry]


def wait_for_step(folder: Path, name: str, step: int, process: subprocess.Popen[str], timeout_s: float = 180) -> None:
    """Wait until a run has trained a step."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        if (folder / "runs" / name / "metrics.jsonl").exists():
            steps = metrics(folder, name)
            if steps and steps[-1]["step"] >= step:
                return
        time.sleep(0.1)
    raise AssertionError(f"step {step} was not reached")


def pid_of(folder: Path, name: str, role: str, rank: int = 0) -> int:
    """Return the process id of a worker."""
    topology = json.loads((folder / "runs" / name / "topology.json").read_text())
    return topology["identities"][role][rank]["pid"]
