"""A job on a starved machine is the machine's fault; a job that starves itself is not."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob
from skyrl_nat.sandbox.unsafe import UnsafeSandbox

WORK = "import time\nwhile time.process_time() < {cpu_s}: pass\nemit({{'done': True}})"
SPIN = "import os\nfor _ in range({n}):\n    if os.fork() == 0:\n        while True: pass\nwhile True: pass"


@pytest.fixture(scope="module")
def cpu() -> int:
    return min(os.sched_getaffinity(0))


@pytest.fixture
def sandbox(cpu: int) -> Iterator[UnsafeSandbox]:
    """Give a sandbox whose servers have one CPU."""
    opened = UnsafeSandbox(SandboxConfig(python=sys.executable), preload=("json",))
    os.sched_setaffinity(opened.start()["pid"], {cpu})
    yield opened
    opened.close()


@pytest.fixture
def hogs(cpu: int) -> Iterator[None]:
    """Give the same CPU to nine others, each in a session of its own: the kernel shares it out by session."""
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(9)]
    yield
    for process in running:
        process.kill()
        process.wait()


def job(code: str, timeout_s: float) -> SandboxJob:
    return SandboxJob(kind="python", files={"main.py": code}, timeout_s=timeout_s)


def test_idle_job_does_not_wait(sandbox: UnsafeSandbox) -> None:
    result = sandbox.run(job("import time\ntime.sleep(0.4)\nemit({})", 5.0))
    assert result.cpu_wait_s < 0.3


def test_deadline_moves_by_the_time_waited(sandbox: UnsafeSandbox, hogs: None) -> None:
    result = sandbox.run(job(WORK.format(cpu_s=0.25), 1.2))
    assert result.output["reports"] == [{"done": True}]
    assert result.wall_s > 1.2
    assert result.cpu_wait_s > 0.8


def test_a_starved_job_is_an_error_of_the_machine(sandbox: UnsafeSandbox, hogs: None) -> None:
    with pytest.raises(SandboxError, match=r"waited .* s for a CPU"):
        sandbox.run(job(WORK.format(cpu_s=30), 0.7))
    assert sandbox.num_restarts == 0


def test_a_job_that_starves_itself_has_timed_out(sandbox: UnsafeSandbox) -> None:
    for others in (3, 9):
        result = sandbox.run(job(SPIN.format(n=others), 0.5))
        assert result.output["end"] == "timeout"
        assert result.wall_s < 3 * 0.5 + 1.6


def test_a_sleeper_gets_no_more_time(sandbox: UnsafeSandbox, hogs: None) -> None:
    result = sandbox.run(job("import time\ntime.sleep(60)", 0.6))
    assert result.output["end"] == "timeout"
    assert result.wall_s < 1.5
