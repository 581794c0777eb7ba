"""Signals of this process stay its own, whatever Ray does with them."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from skyrl_nat.cluster import session
from skyrl_nat.cluster.placement import PlacementPlan
from skyrl_nat.cluster.session import MODE, WORD, _own_signals, ray_session, reserved
from skyrl_nat.config.cluster import ClusterConfig

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
        # Not to the process: a thread of some library may take it there, at once.
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        assert heard == []
    assert found.stdout == "alive\n"
    assert heard == [signal.SIGUSR1]
    os.kill(os.getpid(), signal.SIGTERM)
    assert heard == [signal.SIGUSR1, signal.SIGTERM]


def test_ray_that_does_not_end_is_named_and_left_behind_and_its_processes_are_killed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """RY-08."""
    free, started = threading.Event(), []

    def init(*_: Any) -> None:
        started.append(subprocess.Popen(["sleep", "600"]))

    monkeypatch.setattr(session, "_init", init)
    monkeypatch.setattr(session, "END_S", 0.2)
    monkeypatch.setattr(session.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(session.ray, "shutdown", free.wait)
    try:
        with ray_session(ClusterConfig()):
            assert started[0].poll() is None
        assert started[0].wait(20) == -signal.SIGKILL
    finally:
        free.set()
    [record] = caplog.records
    assert record.getMessage().startswith("skyrl-nat: Ray must end within 0.2 s, it stands in `wait` (")


def test_ray_that_is_started_here_asks_for_a_new_word_each_time_and_the_environment_is_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words: list[tuple[str | None, ...]] = []
    monkeypatch.setattr(session, "_init", lambda *_: words.append(tuple(map(os.environ.get, (MODE, WORD)))))
    monkeypatch.setattr(session.ray, "is_initialized", lambda: False)
    monkeypatch.setattr(session.ray, "shutdown", lambda: None)
    for name in (MODE, WORD, "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    for _ in range(2):
        with ray_session(ClusterConfig()):
            pass
    assert [mode for mode, _ in words] == ["token", "token"]
    assert all(word is not None and len(word) == 64 for _, word in words)
    assert len({word for _, word in words}) == 2
    assert MODE not in os.environ and WORD not in os.environ
    monkeypatch.setenv(MODE, "disabled")
    with ray_session(ClusterConfig()):
        pass
    assert words[-1] == ("disabled", None)
    monkeypatch.delenv(MODE)
    with ray_session(ClusterConfig(ray_address="127.0.0.1:1")):
        pass
    assert words[-1] == ("disabled", None)
    monkeypatch.delenv(MODE)


def test_a_wait_for_resources_is_left_at_the_first_word_and_they_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RY-01: others hold them, for longer than anybody waits."""

    class Held:
        num_looks = 0

        def wait(self, seconds: int) -> bool:
            self.num_looks += 1
            assert self.num_looks < 9
            assert seconds <= 1
            if self.num_looks == 3:
                stop()
            return False

    async def scenario() -> None:
        nonlocal stop
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        stop = lambda: loop.call_soon_threadsafe(task.cancel)  # noqa: E731 - as the handler of a signal does
        plan = PlacementPlan(slots=(), bundles=({"CPU": 1.0},), num_threads=1)
        async with reserved(plan, 300):
            pytest.fail("nobody gives them")

    stop: Any = None
    held, given_back = Held(), []
    monkeypatch.setattr(session, "placement_group", lambda *_, **__: held)
    monkeypatch.setattr(session, "remove_placement_group", given_back.append)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(scenario())
    assert given_back == [held]
    assert held.num_looks <= 4
