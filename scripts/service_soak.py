"""Submit many jobs at once, kill the service and trainers, cancel some, and count what became of every job.

    usage: service_soak.py [--jobs 50] [--kills 20] [--steps 1] [--minutes 30] [--seed 0] [--out FILE]

Every job is a real training run of a tiny model in a Ray of the service's own. Half of the kills hit the service, which
is started again, half a trainer. All clients repeat a request with its key until it is answered. Where the minutes are
over, what still waits or runs is cancelled. Exit code 1 where a job was lost or run twice, did not end, failed though
its own trainer was left alone, or left a process.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import http.client
import json
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from marked_processes import processes_with  # noqa: E402
from service_process import FINAL, MARK, ServiceProcess  # noqa: E402

BEGINS = "starting Ray and the workers"
"""Every trainer prints it once."""
PAUSE_S = (1.0, 6.0)
"""Between two kills while jobs are submitted."""
LATER_PAUSE_S = (1.0, 30.0)
"""The same afterwards, so that they meet jobs at any point."""
CANCELLED_SHARE = 0.2
END_S = 300.0


def submit_until_answered(service: ServiceProcess, number: int, steps: int, deadline: float) -> dict[str, Any]:
    """Submit with a key of its own, again and again while the service is away."""
    while True:
        try:
            return service.submit(key=f"soak-{number}", steps=steps, name="soak", seed=number)
        except (OSError, http.client.HTTPException, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def trainers(service: ServiceProcess) -> list[tuple[str, psutil.Process]]:
    """Return the processes that train for the service, each with its run folder."""
    found = []
    for process in processes_with(MARK, str(service.folder)):
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if "train" in words and "skyrl_nat.cli" in words:
                found += [(word[6:-1], process) for word in words if word.startswith('name="')]
    return found


class Soak:
    """One soak; what was done is counted."""

    def __init__(self, service: ServiceProcess, options: argparse.Namespace) -> None:
        """Begin nothing yet."""
        self.service, self.options = service, options
        self.draw = random.Random(options.seed)
        self.deadline = time.monotonic() + 60 * options.minutes
        self.done: collections.Counter[str] = collections.Counter()
        self.hurt: set[str] = set()
        """Run folders whose trainer was killed."""

    def play(self) -> list[dict[str, Any]]:
        """Return the answers to all submissions."""
        self.service.start()
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as clients:
            asked = [
                clients.submit(submit_until_answered, self.service, number, self.options.steps, self.deadline)
                for number in range(self.options.jobs)
            ]
            self.kill(self.options.kills // 4, PAUSE_S)
            answers = [each.result() for each in asked]
        for answer in self.draw.sample(answers, int(CANCELLED_SHARE * len(answers))):
            self.cancel(answer["id"])
        self.kill(self.options.kills - self.done["service"] - self.done["trainer"], LATER_PAUSE_S)
        return answers

    def kill(self, number: int, pause_s: tuple[float, float]) -> None:
        """Kill so often, the service or a trainer."""
        for _ in range(number):
            time.sleep(self.draw.uniform(*pause_s))
            alive = trainers(self.service)
            if alive and self.draw.random() < 0.5:
                run, process = self.draw.choice(alive)
                self.hurt.add(run)
                with contextlib.suppress(psutil.Error):
                    process.kill()
                self.done["trainer"] += 1
            else:
                self.service.kill()
                self.service.start()
                self.done["service"] += 1

    def cancel(self, job_id: str) -> None:
        """Cancel a job, whatever its state is."""
        self.service.ask(f"/training/{job_id}/cancel", {})
        self.done["cancel"] += 1

    def jobs(self) -> list[dict[str, Any]]:
        """Return all jobs."""
        return self.service.ask("/training?limit=200")["jobs"]

    def wait_for_all(self) -> list[dict[str, Any]]:
        """Wait until all are over; those that are not in time are cancelled."""
        while self.active() and time.monotonic() < self.deadline:
            time.sleep(1)
        for job in self.active():
            self.cancel(job["id"])
        limit = time.monotonic() + END_S
        while self.active() and time.monotonic() < limit:
            time.sleep(1)
        return self.jobs()

    def active(self) -> list[dict[str, Any]]:
        """Return the jobs that are not over."""
        return [job for job in self.jobs() if job["state"] not in FINAL]


def judge(soak: Soak, answers: list[dict[str, Any]], jobs: list[dict[str, Any]], num_left: int) -> dict[str, Any]:
    """Return what became of the jobs."""
    root = soak.service.root
    logs = {path.parent.name: path.read_text(errors="replace") for path in root.glob("*/job.log")}
    finished = [job for job in jobs if job["state"] == "succeeded"]
    return {
        "submitted": len(answers),
        "lost": len({answer["id"] for answer in answers} - {job["id"] for job in jobs}),
        "jobs_beyond_those_submitted": len(jobs) - len({answer["id"] for answer in answers}),
        "begun": len(logs),
        "begun_twice": sum(text.count(BEGINS) > 1 for text in logs.values()),
        "not_over": sum(job["state"] not in FINAL for job in jobs),
        "succeeded_without_all_steps": sum(job["step"] != job["steps"] for job in finished),
        "failed_though_left_alone": sum(job["state"] == "failed" and job["run"] not in soak.hurt for job in jobs),
        "states": dict(collections.Counter(job["state"] for job in jobs)),
        "reasons": dict(collections.Counter(job["reason"] for job in jobs if job["reason"])),
        "kills": {name: soak.done[name] for name in ("service", "trainer")},
        "cancels": soak.done["cancel"],
        "processes_left": num_left,
    }


FAULTS = (
    "lost",
    "jobs_beyond_those_submitted",
    "begun_twice",
    "not_over",
    "succeeded_without_all_steps",
    "failed_though_left_alone",
    "processes_left",
)


def main() -> int:
    """Run the soak and write its report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sns-") as name:
        service = ServiceProcess(Path(name))
        soak = Soak(service, options)
        answers = soak.play()
        jobs = soak.wait_for_all()
        code = service.end()
        limit = time.monotonic() + 60
        while (left := processes_with(MARK, name)) and time.monotonic() < limit:
            time.sleep(0.5)
        report = judge(soak, answers, jobs, len(left)) | {"exit_code_of_the_service": code}
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
    report |= {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{os.cpu_count()} CPUs, {platform.machine()}, load {os.getloadavg()[1]:.1f} at the end",
        "seed": options.seed,
        "minutes": round((time.monotonic() - started) / 60, 1),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n")
    return 1 if any(report[name] for name in FAULTS) or code else 0


if __name__ == "__main__":
    sys.exit(main())
