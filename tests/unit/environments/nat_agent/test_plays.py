"""Plays before their turn: only on spare servers, with the same verdict, and nothing is left running."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from mini_nat import MiniNat, OracleSandbox
from nat_tasks import answer, make_task
from own_tests_bench import GOOD, Bench, Output, has_mistakes

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.environments.nat_agent import plays as module
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.plays import Play, Plays, SpareServers
from skyrl_nat.environments.nat_agent.recorded_calls import Report, Table
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult

REFUSES = "async def test_refuses():\n    with pytest.raises(ValueError):\n        await call('scale', -3)\n"
BLIND = 'async def test_blind():\n    await call("scale", 7)\n'
INSIDE = 'async def test_inside():\n    assert "* config.factor" in open("agent/register.py").read()\n' + BLIND
SERIES: list[Play] = [({"number": str(number)}, None) for number in range(6)]


class Stage:
    """Counts plays, and how many of them there are at once; they wait for each other until there were `together`."""

    def __init__(self, change: Callable[[int], None] = lambda number: None, together: int = 1) -> None:
        self.change, self.together = change, together
        self.begun: list[int] = []
        self.num_now = self.most = 0
        self._lock = threading.Lock()

    def play(self, files: dict[str, str], table: Table | None) -> list[Report]:
        number = int(files["number"])
        with self._lock:
            self.begun.append(number)
            self.num_now += 1
            self.most = max(self.most, self.num_now)
        try:
            patient_until = time.monotonic() + 5.0
            while self.most < self.together and time.monotonic() < patient_until:
                time.sleep(0.001)
            time.sleep(0.01)
            self.change(number)
            return [{"number": number}]
        finally:
            with self._lock:
                self.num_now -= 1


def threads_ahead() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("play-ahead")]


def claimed(num_servers: int) -> SpareServers:
    """With one validation under way."""
    spares = SpareServers(num_servers)
    assert spares.take()
    return spares


@pytest.mark.parametrize("num_servers", [1, 2, 4, 16])
def test_as_many_at_once_as_there_are_servers_and_always_in_order(num_servers: int) -> None:
    stage = Stage(together=min(num_servers, 6))
    with Plays(stage.play, claimed(num_servers)) as plays:
        assert list(plays.each(SERIES)) == [[{"number": number}] for number in range(6)]
    assert stage.most == min(num_servers, 6)
    assert sorted(stage.begun) == list(range(6))


def test_with_one_server_nothing_is_played_before_it_is_asked_for() -> None:
    stage = Stage()
    with Plays(stage.play, claimed(1)) as plays:
        for number, _ in enumerate(plays.each(SERIES)):
            assert stage.begun == list(range(number + 1))
            assert threads_ahead() == []


def test_servers_of_other_validations_are_left_alone() -> None:
    stage, spares = Stage(), claimed(3)
    with Plays(stage.play, spares) as plays:
        with spares.claimed(), spares.claimed(), spares.claimed():
            list(plays.each(SERIES))
            assert stage.most == 1
        stage.together = 2
        with spares.claimed():
            list(plays.each(SERIES))
            assert stage.most == 2
        stage.together = 3
        list(plays.each(SERIES))
        assert stage.most == 3


def test_what_nobody_asks_for_is_one_play_a_spare_server_at_most_and_has_ended() -> None:
    may_end = threading.Event()

    def last(number: int) -> None:
        if number:
            may_end.wait(5.0)
            time.sleep(0.1)

    stage = Stage(last)
    with Plays(stage.play, claimed(4)) as plays:
        assert next(iter(plays.each(SERIES))) == [{"number": 0}]
        may_end.set()
    assert (sorted(stage.begun), stage.num_now, threads_ahead()) == ([0, 1, 2, 3], 0, [])


def test_exception_is_raised_where_its_turn_is_and_its_server_given_back() -> None:
    def fail(number: int) -> None:
        if number in (2, 3):
            raise SandboxError(f"gone {number}")

    stage, spares, seen = Stage(fail), claimed(4), list[list[Report]]()
    with pytest.raises(SandboxError, match="gone 2"), Plays(stage.play, spares) as plays:
        for reports in plays.each(SERIES):
            seen.append(reports)
    assert len(seen) == 2
    assert [spares.take() for _ in range(4)] == [True, True, True, False]


def test_exception_in_what_nobody_asks_for_is_nobodys() -> None:
    def fail(number: int) -> None:
        if number:
            raise SandboxError("gone")

    with Plays(Stage(fail).play, claimed(4)) as plays:
        assert next(iter(plays.each(SERIES))) == [{"number": 0}]


def test_seconds_are_over_for_plays_before_their_turn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])

    def pass_time(number: int) -> None:
        now[0] = 100.0

    stage = Stage(pass_time, together=2)
    with Plays(stage.play, claimed(2)) as plays:
        played = plays.each(SERIES)
        assert [next(played), next(played)] == [[{"number": 0}], [{"number": 1}]]
        with pytest.raises(ValueError, match="more than 30 s"):
            next(played)
    assert sorted(stage.begun) == [0, 1]


@pytest.mark.parametrize("tests", [GOOD, GOOD + REFUSES, GOOD + BLIND, GOOD + INSIDE, GOOD.replace("14", "15"), BLIND])
@pytest.mark.parametrize("seed", range(3))
def test_worth_is_the_same_on_any_number_of_servers(tests: str, seed: int) -> None:
    def slow(job: SandboxJob, output: Output) -> Output:
        time.sleep(0.002 * (len(job.files["agent/register.py"]) % 3))  # they end in another order
        return output

    one, four = Bench(tests, slow), Bench(tests, slow)
    four.num_servers = 4
    assert one.judge(seed) == four.judge(seed)
    needed = [_text(job) for job in one.sandbox.jobs]
    played = [_text(job) for job in four.sandbox.jobs]
    assert all(played.count(text) >= needed.count(text) for text in needed)


def _text(job: SandboxJob) -> str:
    return repr((job.files, job.arguments))


def test_sandbox_that_fails_before_its_turn_is_an_infrastructure_error() -> None:
    def broken(job: SandboxJob, output: Output) -> Output | SandboxResult:
        if has_mistakes(job) and job.arguments["table"] is not None:
            raise SandboxError("gone")
        return output

    bench = Bench(change=broken)
    bench.num_servers = 4
    with pytest.raises(SandboxError, match="gone"):
        bench.judge()


@pytest.mark.parametrize(("num_others", "most"), [(0, 4), (2, 2), (3, 1), (5, 1)])
def test_a_validation_leaves_the_others_a_server_each(num_others: int, most: int) -> None:
    stage, task = Stage(together=most), make_task(num_tests=2)
    task.hidden["mutants"] *= 3

    def watch(job: SandboxJob, output: Output) -> Output:
        if job.arguments.get("table") is not None:
            stage.play({"number": "0"}, None)
        return output

    config = EnvironmentConfig(sandbox=SandboxConfig(num_servers=4))
    validator = NatAgentValidator(config, MiniNat(watch), ReferenceOracle(OracleSandbox()))
    with ExitStack() as others:
        for _ in range(num_others):
            others.enter_context(validator._spares.claimed())
        assert validator.validate(task, {"files": answer(task)}).total == 1.0
    assert stage.most == most
    assert [validator._spares.take() for _ in range(5)] == [True] * 4 + [False]


def test_a_validation_that_fails_gives_its_server_back() -> None:
    def broken(job: SandboxJob, output: Output) -> Output:
        raise SandboxError("gone")

    task = make_task(num_tests=2)
    validator = NatAgentValidator(EnvironmentConfig(), MiniNat(broken), ReferenceOracle(OracleSandbox()))
    with pytest.raises(SandboxError, match="gone"):
        validator.validate(task, {"files": answer(task)})
    assert validator._spares.take()
