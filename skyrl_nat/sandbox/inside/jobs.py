"""The jobs that the fork server knows.

`run` is executed by the first process of a job. That process never imports what the policy wrote: it
forks one worker per phase (`forked_worker`). The verdict is computed outside the sandbox.
"""

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bash_job
import probe
from forked_worker import Emit, run_worker, write_files

Job = Callable[[dict, str, float], dict]
"""Takes arguments, the work folder and a deadline; returns plain JSON."""


def preload(modules: list[str]) -> list[str]:
    """Import what every job needs, once."""
    for name in modules:
        importlib.import_module(name)
    if "nat.runtime.loader" in modules:
        importlib.import_module("nat_jobs").register_plugins()
    return modules


def find(kind: str) -> Job | None:
    """Return the job of a kind: of this file, else one of NAT's where NAT is preloaded."""
    nat_jobs = sys.modules.get("nat_jobs")
    return JOBS.get(kind) or (nat_jobs.JOBS.get(kind) if nat_jobs is not None else None)


def run(job: dict, folder: str) -> dict:
    """Write the job's files and run it; returns its JSON answer."""
    deadline = time.monotonic() + job["timeout_s"]
    write_files(job["files"], folder)
    return find(job["kind"])(job["arguments"], folder, deadline)


def _python(arguments: dict, folder: str, deadline: float) -> dict:
    """Run `main.py` of the job's files; whatever it gives to `emit` comes back."""

    def work(emit: Emit) -> None:
        path = Path(folder) / "main.py"
        code = compile(path.read_text(encoding="utf-8"), str(path), "exec")
        sys.path.insert(0, folder)
        exec(code, {"__name__": "__main__", "emit": emit, "arguments": arguments})

    reports, end = run_worker(work, deadline)
    return {"reports": reports, "end": end}


def _probe(arguments: dict, folder: str, deadline: float) -> dict:
    """Report what a job can see and do, for the check at the start."""
    reports, end = run_worker(lambda emit: probe.report(emit, arguments, folder), deadline)
    return {"report": reports[0] if reports else {}, "end": end}


JOBS: dict[str, Job] = {"probe": _probe, "python": _python, "bash": bash_job.run_bash}
