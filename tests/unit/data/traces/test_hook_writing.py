"""Writing what was recorded: never in the way of the agent, and never silently lost."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from skyrl_nat.data.traces import hook
from skyrl_nat.data.traces.hook import record, step
from skyrl_nat.data.traces.record import Trace
from skyrl_nat.data.traces.scrub import Scrubber
from skyrl_nat.data.traces.store import TraceStore

ROOT = Path(__file__).parents[4]


class Agent:
    def run(self, request: str) -> str:
        step("12", tool="area", arguments={"width": 3, "height": 4})
        return f"{request}: 12"


class SlowStore:
    def __init__(self) -> None:
        self.traces: list[Trace] = []

    def append(self, traces: list[Trace]) -> None:
        time.sleep(0.3)
        self.traces += traces


def test_a_slow_disk_delays_no_run_and_closing_waits_for_it():
    store = SlowStore()
    with record(Agent(), store) as agent:
        started = time.perf_counter()
        for _ in range(5):
            agent.run("q")
        seconds = time.perf_counter() - started
    assert seconds < 0.3
    assert len(store.traces) == 5


def test_a_full_disk_is_said_once_and_the_agent_goes_on(tmp_path: Path):
    code = (
        "import logging, resource, sys; from pathlib import Path; from test_hook_writing import *\n"
        "logging.basicConfig(format='%(message)s')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1_500, resource.RLIM_INFINITY))\n"
        "recording = record(Agent(), TraceStore(Path(sys.argv[1]), Scrubber({})))\n"
        "with recording as agent: print([agent.run(f'q{n}') for n in range(6)])\n"
        "print(recording.num_lost)"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    answers, lost = done.stdout.splitlines()
    assert answers == str([f"q{n}: 12" for n in range(6)])
    found = TraceStore(tmp_path, Scrubber({})).read()
    assert len(found.traces) == 6 - int(lost) == 1
    assert done.stderr.count("could not be recorded") == 1
    assert "File too large" in done.stderr


def test_traces_are_on_the_disk_after_the_program_ended_without_closing(tmp_path: Path):
    code = (
        "import sys; from pathlib import Path; from test_hook_writing import *\n"
        "agent = Agent(); record(agent, TraceStore(Path(sys.argv[1]), Scrubber({})))\n"
        "for n in range(20): agent.run(str(n))"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{Path(__file__).parent}"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, timeout=60, check=True)
    found = TraceStore(tmp_path, Scrubber({})).read()
    assert [trace.request for trace in found.traces] == [str(n) for n in range(20)]


def test_what_a_disk_that_stands_still_cannot_take_is_counted_and_the_rest_is_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(hook, "MAX_PENDING", 3)
    goes_on = threading.Event()

    class Stuck(SlowStore):
        def append(self, traces: list[Trace]) -> None:
            assert goes_on.wait(30)
            self.traces += traces

    store = Stuck()
    recording = record(Agent(), store)
    with recording as agent:
        assert [agent.run(str(n)) for n in range(10)] == [f"{n}: 12" for n in range(10)]
        goes_on.set()
    assert [trace.request for trace in store.traces] == ["0", "1", "2"]
    assert recording.num_lost == 7
    assert caplog.text.count("3 traces wait for the disk") == 1


def test_a_run_that_ends_after_closing_is_counted_as_lost():
    class Late:
        def stream(self, request: str) -> Iterator[str]:
            yield request
            yield "end"

    store = SlowStore()
    recording = record(Late(), store)
    with recording as agent:
        items = agent.stream("q")
        assert next(items) == "q"
    assert list(items) == ["end"]
    assert (recording.num_lost, store.traces) == (1, [])
