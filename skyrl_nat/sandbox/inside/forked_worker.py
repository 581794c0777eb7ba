"""The processes that run the policy's code for a job, each read line by line and ended at its deadline.

What was reached before a hang or an early exit is still known. Everything reported is evidence only.
"""

import contextlib
import json
import os
import select
import signal
from collections.abc import Callable, Container
from pathlib import Path
from typing import NoReturn

import isolation
import job_clock
from values import describe

MAX_REPORT_BYTES = 800_000

Emit = Callable[[dict], None]


def write_files(files: dict[str, str], folder: str) -> None:
    """Write texts under a folder; refuses paths that leave it."""
    for name, text in files.items():
        path = Path(os.path.normpath(f"{folder}/{name}"))
        if Path(folder) not in path.parents:
            raise ValueError(f"path {name!r} leaves the work folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace", newline="")


def run_worker(function: Callable[[Emit], None], deadline: float) -> tuple[list[dict], str]:
    """Run a function in a fork and return what it reported and how it ended.

    Returns:
        The reports in order, and `done`, `timeout` or `died` (it ended without coming to its end).
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        _be_worker(function, write_end)
    lead_group(child)
    os.close(write_end)
    data, is_timeout = _read_reports(read_end, child, deadline)
    os.close(read_end)
    end_worker(child)
    reports = []
    for line in data.split(b"\n"):
        with contextlib.suppress(ValueError, RecursionError):
            report = json.loads(line, parse_constant=_refuse_constant)
            if isinstance(report, dict):
                reports.append(report)
    if is_timeout:
        return reports, "timeout"
    is_done = bool(reports) and reports[-1].get("stage") == "end"
    return (reports[:-1], "done") if is_done else (reports, "died")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _be_worker(function: Callable[[Emit], None], write_end: int) -> NoReturn:
    os.dup2(write_end, 3)
    os.closerange(4, 1024)

    def emit(report: dict) -> None:
        data = json.dumps(report).encode() + b"\n"
        while data:
            data = data[os.write(3, data) :]

    try:
        isolation.become_worker()
        function(emit)
        emit({"stage": "end"})
    except BaseException as error:  # noqa: BLE001 - a fork must end here whatever happens
        with contextlib.suppress(BaseException):
            emit({"stage": "crash", "error": describe(error)})
    finally:
        os._exit(0)


def _read_reports(read_end: int, child: int, deadline: float) -> tuple[bytes, bool]:
    data = bytearray()
    while True:
        if job_clock.has_passed(deadline):
            return bytes(data), True
        has_exited = reap_orphans({child})
        ready, _, _ = select.select([read_end], [], [], 0.0 if has_exited else 0.05)
        while ready:
            chunk = os.read(read_end, 1 << 16)
            data += chunk
            if not chunk or len(data) > MAX_REPORT_BYTES:
                return bytes(data[:MAX_REPORT_BYTES]), False
            ready, _, _ = select.select([read_end], [], [], 0.0)
        if has_exited:
            return bytes(data), False


def reap_orphans(own: Container[int]) -> bool:
    """Reap what the job's processes have left to this one; returns whether one of `own` has ended, not reaped."""
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return True
            os.waitpid(ended.si_pid, 0)
    return False


def lead_group(child: int) -> None:
    """Give a fork its own process group, from both sides: whoever comes first."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpgid(child, child)


def end_worker(child: int) -> None:
    """Kill and reap a worker and, from the job's first process, all else that the job has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)
    isolation.kill_workers()
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, 0)
