"""The jobs that the fork server knows.

`run` is executed by the first process of a job. That process never imports what the policy wrote: it
forks one worker per phase (`forked_worker`). The verdict is computed outside the sandbox.
"""

import contextlib
import importlib
import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from forked_worker import Emit, run_worker, write_files


def preload(modules: list[str]) -> list[str]:
    """Import what every job needs, once."""
    for name in modules:
        importlib.import_module(name)
    if "nat.runtime.loader" in modules:
        importlib.import_module("nat_jobs").register_plugins()
    return modules


def run(job: dict, folder: str) -> dict:
    """Write the job's files and run it; returns its JSON answer."""
    write_files(job["files"], folder)
    deadline = time.monotonic() + job["timeout_s"]
    return JOBS[job["kind"]](job["arguments"], folder, deadline)


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
    """Report what a job can see and do, for the start-up check."""
    del arguments, deadline
    pids = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    lines = Path("/proc/self/status").read_text().splitlines() if pids else []
    capabilities = [line.split()[1] for line in lines if line.startswith("CapEff")]
    has_network = False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))  # sends nothing; only asks for a route
        has_network = True
    return {
        "pid": os.getpid(),
        "uid": os.getuid(),
        "num_processes": len(pids),
        "capabilities": capabilities[0] if capabilities else "0",
        "has_network": has_network,
        "environment": sorted(os.environ),
        "is_home_visible": any(Path(path).exists() for path in ("/root/.ssh", "/etc/passwd", "/etc/hostname")),
        "is_work_writable": os.access(folder, os.W_OK),
    }


def _nat_validate(arguments: dict, folder: str, deadline: float) -> dict:
    return importlib.import_module("nat_jobs").validate(arguments, folder, deadline)


JOBS: dict[str, Callable[[dict, str, float], dict]] = {
    "probe": _probe,
    "python": _python,
    "nat_validate": _nat_validate,
}
