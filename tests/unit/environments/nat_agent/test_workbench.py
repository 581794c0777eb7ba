"""The workbench around a fake sandbox."""

import threading
from typing import Any

import pytest
from unit.environments.nat_agent import spec_v2

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.nat_agent import workbench as module
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.workbench import Workbench
from skyrl_nat.environments.nat_agent.workspace import BashResult
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult

SPEC = parse_spec(spec_v2.DOUBLE)


class FakeSandbox:
    """Answers every job with one result, or raises."""

    def __init__(self, answer: SandboxResult | Exception) -> None:
        self.answer = answer
        self.jobs: list[SandboxJob] = []
        self.num_closed = 0

    def run(self, job: SandboxJob) -> SandboxResult:
        self.jobs.append(job)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.num_closed += 1


def answered(status: str, output: dict[str, Any] | None = None) -> FakeSandbox:
    return FakeSandbox(SandboxResult(status=status, output=output or {}, log="why", wall_s=0.1))


def test_a_command_runs_on_the_files_and_brings_them_back() -> None:
    output = {"end": "done", "exit_code": 3, "output": "hi", "files": {"b.py": "y"}, "left_out": ["c.bin: no text"]}
    sandbox = answered("done", output)
    result = Workbench(EnvironmentConfig(), sandbox).run_bash({"a.py": "x"}, "make")
    assert result == BashResult(end="done", output="hi", exit_code=3, files={"b.py": "y"}, left_out=("c.bin: no text",))
    assert sandbox.jobs == [SandboxJob(kind="bash", files={"a.py": "x"}, arguments={"command": "make"})]


@pytest.mark.parametrize("status", ["timeout", "died"])
def test_a_command_that_did_not_end_has_no_files(status: str) -> None:
    assert Workbench(EnvironmentConfig(), answered(status)).run_bash({}, "x") == BashResult(end=status)


@pytest.mark.parametrize(
    "output",
    [{}, {"end": None}, {"files": [], "left_out": "x", "exit_code": "0", "output": 3}, {"files": {"a": 1}, "end": {}}],
)
def test_an_answer_of_any_shape_is_a_result(output: dict[str, Any]) -> None:
    """It was made beside untrusted code."""
    result = Workbench(EnvironmentConfig(), answered("done", output)).run_bash({}, "x")
    assert isinstance(result.output, str)
    assert result.exit_code is None
    assert result.files in (None, {"a": "1"})
    assert result.left_out == ()


def test_infrastructure_failures_pass_up() -> None:
    with pytest.raises(SandboxError, match="it refused one: why"):
        Workbench(EnvironmentConfig(), answered("refused")).run_bash({}, "x")
    with pytest.raises(SandboxError, match="gone"):
        Workbench(EnvironmentConfig(), FakeSandbox(SandboxError("gone"))).run_bash({}, "x")


def test_checks_and_tests_go_to_the_visible_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = answered("done")
    monkeypatch.setattr(module, "visible_report", lambda *arguments: ("report", *arguments))
    monkeypatch.setattr(module, "own_tests_report", lambda *arguments: ("tests", *arguments))
    bench = Workbench(EnvironmentConfig(), sandbox)
    assert bench.check(SPEC, {"a.py": "x"}) == ("report", SPEC, {"a.py": "x"}, sandbox)
    assert bench.run_tests(SPEC, {}, ("t.py",)) == ("tests", SPEC, {}, sandbox, ("t.py",))


def test_one_sandbox_is_made_with_the_first_job_and_closed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[FakeSandbox] = []

    def open_sandbox(config: Any) -> FakeSandbox:
        made.append(answered("died"))
        return made[-1]

    monkeypatch.setattr(module, "open_sandbox", open_sandbox)
    bench = Workbench(EnvironmentConfig())
    assert made == []
    threads = [threading.Thread(target=bench.run_bash, args=({}, "x")) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    bench.close()
    assert [sandbox.num_closed for sandbox in made] == [1]
    assert len(made[0].jobs) == 8


def test_close_before_any_job_is_fine() -> None:
    Workbench(EnvironmentConfig()).close()
