"""What processes are doing is seen from outside: real processes, real signals."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from skyrl_nat.cluster.inspection import look

PROGRAM = """
import subprocess
import sys
import threading
from skyrl_nat.cluster.inspection import watch_for_stack_dumps

def stand_in_a_thread():
    is_there.set()
    threading.Event().wait()

def wait_for_the_first_line():
    print(descriptor, flush=True)
    sys.stdin.readline()

def wait_for_the_second_line():
    print("next", flush=True)
    sys.stdin.readline()

descriptor = watch_for_stack_dumps()
is_there = threading.Event()
threading.Thread(target=stand_in_a_thread, daemon=True).start()
is_there.wait()
wait_for_the_first_line()
child = subprocess.Popen(["sleep", "3600"])
wait_for_the_second_line()
child.kill()
child.wait()
"""


class Watched:
    """A process that can be asked for its stacks, and waits for a line in a function of its own."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.stacks = int(self.line())

    @property
    def place(self) -> tuple[int, int]:
        return self.process.pid, self.stacks

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def start() -> Iterator[Callable[[], Watched]]:
    """Return what starts one; all are ended."""
    started: list[Watched] = []

    def one() -> Watched:
        started.append(Watched())
        return started[-1]

    yield one
    for watched in started:
        watched.process.send_signal(signal.SIGCONT)
        # Its end of input lets it end its child.
        watched.process.communicate(timeout=60)


def test_the_stacks_of_all_threads_name_the_functions_that_a_process_stands_in(start):
    watched = start()
    [text] = look([watched.place])
    assert re.match(rf"process {watched.process.pid} is \w+; children: none\n", text)
    assert "in wait_for_the_first_line" in text
    assert "in stand_in_a_thread" in text


def test_a_second_look_sees_what_is_being_done_then_and_nothing_of_the_first(start):
    watched = start()
    look([watched.place])
    watched.go_on()
    assert watched.line() == "next\n"
    [text] = look([watched.place])
    first, stacks = text.split("\n", 1)
    assert re.search(r"children: \d+ sleep \w+$", first)
    assert "in wait_for_the_second_line" in stacks
    assert "in wait_for_the_first_line" not in stacks
    assert "\0" not in stacks
    assert stacks.count("in stand_in_a_thread") == 1


def test_a_process_that_was_stopped_is_said_to_be_and_is_not_asked(start):
    watched = start()
    watched.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, watched.process.pid, os.WSTOPPED)
    assert look([watched.place]) == [f"process {watched.process.pid} is stopped; children: none\n"]


def test_one_that_is_gone_or_a_zombie_hides_nobody_else(start):
    gone, zombie, alive = start(), start(), start()
    gone.process.kill()
    gone.process.wait()
    zombie.process.kill()
    os.waitid(os.P_PID, zombie.process.pid, os.WEXITED | os.WNOWAIT)
    texts = look([gone.place, zombie.place, alive.place])
    assert texts[0] == f"process {gone.process.pid} is gone\n"
    assert texts[1] == f"process {zombie.process.pid} is zombie; children: none\n"
    assert "in wait_for_the_first_line" in texts[2]


def test_a_process_without_a_place_for_stacks_is_left_in_peace():
    """The signal would end one that has no handler for it."""
    process = subprocess.Popen(["sleep", "3600"])
    try:
        [text] = look([(process.pid, -1)])
        assert re.fullmatch(rf"process {process.pid} is \w+; children: none\n", text)
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_a_place_that_cannot_be_read_is_said(start):
    watched = start()
    [text] = look([(watched.process.pid, 999)])
    assert "its stacks cannot be read: " in text
