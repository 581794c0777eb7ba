"""Signals of this process stay its own, whatever Ray does with them."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest

from skyrl_nat.cluster import session
from skyrl_nat.cluster.session import _own_signals, _shut_down

DEAF = "import os, signal; os.kill(os.getpid(), signal.SIGUSR1); print('alive')"


@pytest.fixture
def heard():
    """Signals that have come, in order."""
    found: list[int] = []
    before = {n: signal.signal(n, lambda number, _: found.append(number)) for n in (signal.SIGTERM, signal.SIGUSR1)}
    yield found
    for number, handler in before.items():
        signal.signal(number, handler)


def test_what_is_started_for_ray_is_not_ended_by_usr1_and_this_process_still_hears_it(heard: list[int]) -> None:
    """CK-11: one that comes in the block is heard after it."""
    with _own_signals():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as Ray puts a handler of its own there
        found = subprocess.run([sys.executable, "-c", DEAF], capture_output=True, text=True)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert heard == []
    assert found.stdout == "alive\n"
    assert heard == [signal.SIGUSR1]
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGUSR1, signal.SIGTERM]


def test_a_signal_while_ray_ends_is_still_heard(heard: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """CK-11: a second SIGTERM must not end a run that is ending in order."""

    def shutdown() -> None:
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # as Ray does on the way, below Python
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(session.ray, "shutdown", shutdown)
    _shut_down()
    assert heard == [signal.SIGTERM]
