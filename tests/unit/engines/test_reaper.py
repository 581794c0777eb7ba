"""Children of a process that was killed are ended, and those of one that ended in order are left alone."""

import signal
import subprocess
import sys
import time

import psutil
import pytest

PARENT = """
import subprocess, sys, psutil
from skyrl_nat.engines.reaper import Reaper
child = subprocess.Popen(["bash", "-c", "sleep 100 & wait"])
reaper = Reaper([psutil.Process(child.pid)])
if sys.argv[1] == "dismiss":
    reaper.dismiss()
print(child.pid, flush=True)
sys.stdin.read()
"""


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_processes_of_a_killed_engine_are_ended_with_their_children(number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "stay"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while not (grandchildren := child.children()):
            time.sleep(0.05)
        parent.send_signal(number)
        assert ends_within(child.pid, 20)
        assert ends_within(grandchildren[0].pid, 20)


def test_dismissed_reaper_ends_nobody() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "dismiss"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        assert not ends_within(child.pid, 1)
        for process in [*child.children(), child]:
            process.kill()
