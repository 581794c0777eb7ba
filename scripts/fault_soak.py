"""Train for hours while workers are killed and stopped at random, and watch that nothing grows and nothing is left.

    usage: fault_soak.py [--minutes 120] [--warm-minutes 10] [--seed 0] [--out FILE]

One run with staleness 2, a tiny model and a reference. Every 30 s a worker gets SIGKILL or SIGSTOP. Every 15 s memory,
threads and open files of every process of the run are counted, and what lies in its shared memory. Judged is:

* all processes together, after the first 10 minutes;
* each process by its age, once it is 10 minutes old. The controller, Ray's own processes and the last engine,
  environment and reward worker are never hurt; ranks of policy and reference only in every other half hour.

Ctrl-C or SIGTERM ends it early with its report. Exit code 1 where something grew, was left, or did not recover.
"""

import argparse
import contextlib
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fault_soak_report import report, steps_of
from fault_soak_samples import CONTROLLER, SHARED, WHOLE, Sampler, Topology, orphans, private_shared_memory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

import small_run  # noqa: E402

NAME = "soak"
FAULT_EVERY_S = 30.0
SAMPLE_EVERY_S = 15.0
WHOLE_GROUPS = ("policy", "reference")
"""Roles of which all ranks start anew when one is hurt."""
SPARED_S = 1800.0
"""They are hurt in every other stretch of this length."""
END_S = 180.0
"""To end the run in order."""
LEAVE_S = 15.0
"""To its last processes, after that."""
LAST_CHARS = 6000
"""Of the run's output, kept where it ended otherwise than it was told to."""
LOOK_EVERY_S = 0.5
PR_SET_CHILD_SUBREAPER = 36
NO_LIMIT = 1_000_000
FEW_DEAD = {
    "RAY_maximum_gcs_destroyed_actor_cached_count": "20",
    "RAY_maximum_gcs_dead_worker_cached_count": "20",
}
"""Ray remembers so many, and not 100 (`ray_settings`), so that its memory of them is full before counting begins."""
OVERRIDES = (
    f"name={NAME}",
    *small_run.LONG,
    "trainer.staleness=2",
    f"trainer.max_dropped_groups={NO_LIMIT}",
    "algorithm.kl_coefficient=0.01",
    "cluster.num_engines=2",
    "cluster.num_environment_workers=2",
    "cluster.num_reward_workers=2",
    "recovery.probe_timeout_s=5",
    *(f"recovery.max_{role}_restarts={NO_LIMIT}" for role in ("engine", "policy", "worker")),
)


class Faults:
    """Hurts workers, and sees whether others come in their place."""

    def __init__(self, topology: Topology, seed: int) -> None:
        """Hurt nobody yet."""
        self.done: list[dict[str, Any]] = []
        self._topology = topology
        self._random = random.Random(seed)

    def hurt(self, now_s: float) -> None:
        """Send a signal to one that may be hurt; one that is gone already is not."""
        members = self._topology.members()
        spared = WHOLE_GROUPS if int(now_s // SPARED_S) % 2 else ()
        names = sorted(name for name in set(members) - self._topology.spared(members) if not name.startswith(spared))
        name, number = self._random.choice(names), self._random.choice([signal.SIGKILL, signal.SIGSTOP])
        fault = {"s": round(now_s, 1), "worker": name, "signal": number.name, "pid": members[name]}
        self.done.append({**fault, "recovered_s": None, "was_gone": not _send(members[name], number)})

    def look(self, now_s: float, step: int) -> None:
        """Take note of those that recovered: another process is there, and a step was trained since it came."""
        members = self._topology.members()
        for fault in self.done:
            if fault["recovered_s"] is None and members.get(fault["worker"], fault["pid"]) != fault["pid"]:
                fault.setdefault("step", step)
                if step > fault["step"]:
                    fault["recovered_s"] = round(now_s - fault["s"], 1)


class Soak:
    """One run, hurt until the time is over."""

    def __init__(self, folder: Path, seed: int) -> None:
        """Start the run in a folder."""
        self.metrics = folder / "runs" / NAME / "metrics.jsonl"
        self.output = folder / "output.txt"
        command = [sys.executable, "-m", "skyrl_nat.cli", "train", *small_run.arguments(folder, *OVERRIDES)]
        with self.output.open("w") as output:
            self.process = subprocess.Popen(
                [*private_shared_memory(), *command],
                env={**small_run.environment(), **FEW_DEAD},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this script: it ends the run in order
            )
        topology = Topology(folder / "runs" / NAME / "topology.json")
        self.faults = Faults(topology, seed)
        self._topology = topology
        self.samples: list[dict[str, Any]] = []
        self.shared_files: Callable[[], list[str]] = list
        self.longest_wait_s = 0.0
        self.step = 0

    def watch(self, seconds: float) -> None:
        """Hurt and count for a time; ends early when the run does."""
        sampler = Sampler(self.process.pid, self._topology)
        self.shared_files = sampler.shared_files
        started = moved = time.monotonic()
        next_fault, next_sample = FAULT_EVERY_S, 0.0
        while (now := time.monotonic() - started) < seconds and self.process.poll() is None:
            step = last_step(self.metrics)
            if step > self.step:
                self.step, moved = step, time.monotonic()
            self.longest_wait_s = max(self.longest_wait_s, time.monotonic() - moved)
            self.faults.look(now, step)
            if now >= next_sample:
                next_sample += SAMPLE_EVERY_S
                self.samples.append({"s": now, "step": step, **sampler.sample()})
                self._show()
            if now >= next_fault:
                next_fault += FAULT_EVERY_S
                self.faults.hurt(now)
            time.sleep(LOOK_EVERY_S)

    def end(self) -> dict[str, Any]:
        """End the run as a user would, and return what is left of it."""
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        deadline = time.monotonic() + LEAVE_S
        while (left := orphans(self.process.pid)) and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        names = [" ".join(process.cmdline())[:120] or process.name() for process in left]
        for process in left:
            process.kill()
        return {"exit_code": self.process.returncode, "processes": names, "shared_files": self.shared_files()}

    def wait_for_first_step(self) -> None:
        """Wait until there is something to hurt."""
        deadline = time.monotonic() + 300
        while not last_step(self.metrics):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"The run must train a first step, it did not:\n{self.output.read_text()}")
            time.sleep(0.5)

    def _show(self) -> None:
        sample, faults = self.samples[-1], self.faults.done
        whole = sample[WHOLE]
        print(
            f"{sample['s'] / 60:6.1f} min  step {self.step}  "
            f"{sum(fault['recovered_s'] is not None for fault in faults)} of {len(faults)} faults recovered  "
            f"memory {whole['proportional_mib']:.0f} MiB, controller {sample[CONTROLLER]['own_mib']:.1f} MiB  "
            f"processes {whole['processes']:.0f}  files {whole['files']:.0f}  "
            f"shared {sample[SHARED]['mib']:.1f} MiB in {sample[SHARED]['files']} files",
            flush=True,
        )


def last_step(metrics: Path) -> int:
    """Return the step of the last whole line, 0 before the first."""
    with contextlib.suppress(OSError), metrics.open("rb") as file:
        file.seek(max(0, metrics.stat().st_size - 65_536))
        for line in reversed(file.read().split(b"\n")[:-1]):
            with contextlib.suppress(ValueError):
                return int(json.loads(line)["step"])
    return 0


def _send(pid: int, number: signal.Signals) -> bool:
    """Return whether the process was there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    """Read the options, soak, report; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--warm-minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the report there, as JSON")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    for number in (signal.SIGINT, signal.SIGTERM):  # in the background a shell has them ignored
        signal.signal(number, signal.default_int_handler)
    # Orphans of the run become children of this process, so that they are found.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        os.environ["TMPDIR"] = os.environ["RAY_TMPDIR"] = folder
        soak = Soak(Path(folder), options.seed)
        soak.wait_for_first_step()
        with contextlib.suppress(KeyboardInterrupt):
            soak.watch(60 * options.minutes)
        left, steps = soak.end(), steps_of(soak.metrics)
        last_words = soak.output.read_text(errors="replace")[-LAST_CHARS:]
    found = report(soak.samples, soak.faults.done, left, steps=steps, warm_s=60 * options.warm_minutes)
    found = {"seed": options.seed, "longest_wait_s": round(soak.longest_wait_s, 1), **found}
    if "exit_code" in found["wrong"]:
        found["last_words"] = last_words
    text = json.dumps(found, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
