"""A first signal ends the work in order, whoever has changed its handler; a second one nothing, a third one at once."""

import signal
import subprocess
import sys

import pytest

BLOCKED = """
import asyncio, sys, time
from skyrl_nat.controller import stop_signals

async def work():
    print("ready", flush=True)
    while True:
        time.sleep(0.01)

stop_signals.ENDING_S = 0.2
stop_signals.run_until_stopped(work(), float(sys.argv[1]))
"""
"""A program whose loop does not come to heed a signal."""


@pytest.mark.parametrize(
    ("grace_s", "signals", "said"),
    [
        ("600", (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT), "the third signal ends it where it is"),
        ("0.1", (signal.SIGTERM,), "told to stop must end within 0.3 s, it stands where the stacks above say"),
    ],
)
def test_even_a_program_that_stands_still_is_ended_by_a_third_signal_or_after_the_grace(
    grace_s: str, signals: tuple[signal.Signals, ...], said: str
):
    with started(BLOCKED, grace_s) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in signals:
            process.send_signal(number)
        try:
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said in error
    assert ("in work" in error) == (len(signals) == 1), "where it stands"


RESET = """
import asyncio, ctypes, os, signal, subprocess, sys, threading
from skyrl_nat.controller.stop_signals import leave, run_until_stopped

def sleeper(**how):
    return subprocess.Popen(["sleep", "60"], **how)

def look():
    masks = [line for task in os.listdir("/proc/self/task") for line in open(f"/proc/self/task/{task}/status")]
    return [int(line.split()[1], 16) >> signal.SIGTERM - 1 & 1 for line in masks if line.startswith("SigBlk")]

async def work():
    # As Ray does it on the way out, below Python.
    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)
    blocked = look()
    for _ in range(1000):
        # Until the one that waits for it has begun to wait.
        if 0 in blocked:
            break
        await asyncio.sleep(0.01)
        blocked = look()
    print(blocked.count(0), len(blocked) == threading.active_count(), flush=True)
    with sleeper(preexec_fn=os.getpid) as process:
        process.terminate()
    try:
        await asyncio.sleep(60)
    finally:
        print("ends in order", flush=True)
        sys.stdin.readline()

try:
    run_until_stopped(work(), 60)
except asyncio.CancelledError:
    with sleeper() as process:
        process.terminate()
    print("has ended in order", flush=True)
    sys.stdin.readline()
    leave(3)
"""
"""A program that ends slowly; `sleep` is ended by SIGTERM both times, or it lasts a minute."""


def started(program: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_sigterm_is_heard_whatever_has_become_of_its_handler():
    """CK-11."""
    with started(RESET) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "1 True\n", "only the one that waits for it may take it"
        process.terminate()
        assert process.stdout.readline() == "ends in order\n"
        process.terminate()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "has ended in order\n"
        process.terminate()
        try:
            _, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert "the third signal ends it where it is" in error
    assert process.returncode == 130


LATE = """
import os, signal, sys
from skyrl_nat.controller.stop_signals import leave

class Late:
    def __del__(self):
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT) * 2:
            os.kill(os.getpid(), number)
        os.write(1, b"signals came late\\n")

late = Late()
leave(3)
"""
"""Signals while the interpreter ends; by then Python has no handlers any more."""


def test_signals_after_the_last_line_leave_the_exit_code_as_it_is():
    with started(LATE) as process:
        output, error = process.communicate(timeout=30)
    assert (output, error, process.returncode) == ("signals came late\n", "", 3)
