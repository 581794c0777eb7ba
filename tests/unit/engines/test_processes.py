import subprocess
import sys

import pytest

from skyrl_nat.engines.processes import children, end_processes

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
)


def test_only_the_named_processes_are_ended_even_if_they_ignore_the_polite_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skyrl_nat.engines.processes._GRACE_S", 0.3)
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as old,
        subprocess.Popen([sys.executable, "-c", _STUBBORN], stdout=subprocess.PIPE) as stubborn,
    ):
        assert stubborn.stdout is not None
        stubborn.stdout.readline()
        mine = {process for process in children() if process.pid == stubborn.pid}
        end_processes(mine)
        end_processes(mine)  # twice is fine
        assert not any(process.is_running() for process in mine)
        assert old.poll() is None
        old.kill()
