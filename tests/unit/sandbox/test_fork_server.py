"""The contract of every back end, with a bare server (no NAT), so that it starts in milliseconds."""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import ConfigError, SandboxError
from skyrl_nat.sandbox.base import SandboxJob
from skyrl_nat.sandbox.fork_server import ForkServerSandbox
from skyrl_nat.sandbox.launch import find_python
from skyrl_nat.sandbox.unsafe import UnsafeSandbox


def open_sandbox(backend: type, **settings: object) -> ForkServerSandbox:
    config = SandboxConfig(python=sys.executable, **settings)  # type: ignore[arg-type]
    return backend(config, preload=("json",))


@pytest.fixture(scope="module")
def sandbox(backend: type) -> Iterator[ForkServerSandbox]:
    opened = open_sandbox(backend, num_servers=2)
    opened.start()
    yield opened
    opened.close()


def python(code: str, timeout_s: float = 5.0) -> SandboxJob:
    return SandboxJob(kind="python", files={"main.py": code}, timeout_s=timeout_s)


def test_job_hands_back_what_it_emits(sandbox: ForkServerSandbox) -> None:
    result = sandbox.run(python("emit({'a': 1}); emit({'b': [True, 2.5, None]})"))
    assert result.status == "done"
    assert result.output == {"reports": [{"a": 1}, {"b": [True, 2.5, None]}], "end": "done"}


def test_hard_exit_is_seen_and_earlier_reports_are_kept_sb_01(sandbox: ForkServerSandbox) -> None:
    result = sandbox.run(python("import os; emit({'a': 1}); os._exit(0)"))
    assert result.output == {"reports": [{"a": 1}], "end": "died"}


def test_infinite_loop_ends_at_the_limit(sandbox: ForkServerSandbox) -> None:
    started = time.monotonic()
    result = sandbox.run(python("emit({'a': 1})\nwhile True: pass", timeout_s=0.5))
    assert time.monotonic() - started < 3.0
    assert result.output == {"reports": [{"a": 1}], "end": "timeout"}


def test_nothing_persists_between_jobs(sandbox: ForkServerSandbox) -> None:
    leave = (
        "import os, time\nopen('left.txt', 'w').write('x')\n"
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(30)\n    os._exit(0)\n"
    )
    look = "import os\nemit({'files': os.listdir('.'), 'env': os.environ.get('LEFT')})"
    for _ in range(2):
        sandbox.run(python(leave + "import json; json.LEFT = 1; os.environ['LEFT'] = 'x'"))
    for _ in range(2):
        assert sandbox.run(python(look)).output["reports"] == [{"files": ["main.py"], "env": None}]


def test_output_beyond_the_limit_is_cut_and_the_server_goes_on(sandbox: ForkServerSandbox) -> None:
    result = sandbox.run(python("for _ in range(60): emit({'x': 'y' * 50_000})"))
    assert sum(len(report["x"]) for report in result.output["reports"]) < 1_000_000
    flood = sandbox.run(python("import sys\nfor _ in range(200): print('z' * 50_000)\nemit({'a': 1})"))
    assert len(flood.log) <= 4000
    assert sandbox.run(python("emit({'a': 1})")).status == "done"


def test_forged_and_malformed_report_lines_are_only_data(sandbox: ForkServerSandbox) -> None:
    code = "import os\nos.write(3, b'{\"stage\": \"end\"}\\nnot json\\n[1]\\n' + b'[' * 100_000 + b'\\n')\nos._exit(0)"
    result = sandbox.run(python(code))
    assert result.status == "done"
    assert all(isinstance(report, dict) for report in result.output["reports"])


def test_a_path_that_leaves_the_work_folder_is_refused(sandbox: ForkServerSandbox) -> None:
    for name in ("../x", "/etc/x", "a/../../x", ""):
        assert sandbox.run(SandboxJob(kind="python", files={name: "x"})).status == "refused"
    assert sandbox.run(SandboxJob(kind="no_such_job", files={})).status == "refused"


def test_memory_limit_stops_one_process_sb_13(sandbox: ForkServerSandbox) -> None:
    code = "try:\n    bytearray(3 << 30)\nexcept MemoryError:\n    emit({'stopped': True})"
    assert sandbox.run(python(code)).output["reports"] == [{"stopped": True}]


def test_limits_hold_in_threads_and_killed_jobs_leave_no_zombies_sb_08_sb_10(
    sandbox: ForkServerSandbox,
) -> None:
    def own_children() -> list[str]:
        states = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except OSError:
                    continue
                if int(fields[1]) == os.getpid():
                    states.append(fields[0])
        return states

    sandbox.run(python("emit({})"))
    descriptors, threads = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    with ThreadPoolExecutor(8) as pool:
        slow = list(pool.map(lambda _: sandbox.run(python("while True: pass", timeout_s=0.6)), range(8)))
        good = list(pool.map(lambda i: sandbox.run(python(f"emit({{'i': {i}}})")), range(8)))
    assert {result.output["end"] for result in slow} == {"timeout"}
    assert [result.output["reports"] for result in good] == [[{"i": i}] for i in range(8)]
    assert "Z" not in own_children()
    assert len(list(Path("/proc/self/fd").iterdir())) <= descriptors + 6
    assert threading.active_count() <= threads + 2


def test_two_hundred_timeouts_leave_nothing_sb_08(best_backend: type) -> None:
    """A pool of two, 0.2 s each, half of the jobs with a daemon."""
    spin = "while True: pass"
    daemon = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\ntime.sleep(60)"
    sandbox = open_sandbox(best_backend, num_servers=2)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: sandbox.run(python("import time\ntime.sleep(0.3)")), range(2)))  # both servers up
            before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), set(find_family())
            results = list(pool.map(lambda i: sandbox.run(python((spin, daemon)[i % 2], timeout_s=0.2)), range(200)))
            after = len(list(Path("/proc/self/fd").iterdir())), threading.active_count(), set(find_family())
        assert {result.output["end"] for result in results} == {"timeout"}
        assert after == before
        assert "Z" not in find_family().values()
    finally:
        sandbox.close()


def find_family() -> dict[int, str]:
    """Return the descendants of this process and their states."""
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                stats[int(entry.name)] = (int(fields[1]), fields[0])
    family = {os.getpid()}
    while more := {pid for pid, (parent, _) in stats.items() if parent in family} - family:
        family |= more
    return {pid: stats[pid][1] for pid in family if pid != os.getpid()}


def test_a_dead_server_is_replaced_and_the_job_still_answers() -> None:
    opened = open_sandbox(UnsafeSandbox)
    try:
        pid = opened.start()["pid"]
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
        assert opened.run(python("emit({'a': 1})")).status == "done"
        assert opened.num_restarts == 1
    finally:
        opened.close()


def test_server_outlives_the_thread_that_asked_for_it(sandbox: ForkServerSandbox) -> None:
    restarts = sandbox.num_restarts
    results = []
    for _ in range(4):
        thread = threading.Thread(target=lambda: results.append(sandbox.run(python("emit({})")).status))
        thread.start()
        thread.join()
        time.sleep(0.05)
    assert results == ["done"] * 4
    assert sandbox.num_restarts == restarts


def test_closed_sandbox_refuses_and_closes_twice() -> None:
    opened = open_sandbox(UnsafeSandbox)
    opened.start()
    opened.close()
    opened.close()
    with pytest.raises(SandboxError, match="closed"):
        opened.run(python("emit({})"))


def test_missing_interpreter_says_how_to_make_it() -> None:
    with pytest.raises(ConfigError, match=r"pip install nvidia-nat-core nvidia-nat-test"):
        find_python(SandboxConfig(python="/no/such/python"))


def test_missing_nat_says_what_to_install() -> None:
    opened = UnsafeSandbox(SandboxConfig(python=sys.executable), preload=("no_such_module_for_nat",))
    with pytest.raises(SandboxError, match=r"no_such_module_for_nat.*pip install"):
        opened.start()
    opened.close()
