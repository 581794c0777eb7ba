"""The validator around a fake sandbox."""

import json
from typing import Any

import pytest

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.errors import ConfigError, DataError, SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult
from skyrl_nat.types import Task


class FakeSandbox:
    """Answers every job with one result, or raises."""

    def __init__(self, answer: SandboxResult | Exception) -> None:
        self.answer = answer
        self.jobs: list[SandboxJob] = []
        self.is_closed = False

    def run(self, job: SandboxJob) -> SandboxResult:
        self.jobs.append(job)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def close(self) -> None:
        self.is_closed = True


def result(status: str, output: dict[str, Any] | None = None) -> SandboxResult:
    return SandboxResult(status=status, output=output or {}, log="", wall_s=0.1)


@pytest.fixture(scope="module")
def task() -> Task:
    return next(t for t in load_tasks(["builtin:nat_agent/train"]) if t.payload["name"] == "celsius_to_fahrenheit")


def test_job_holds_inputs_and_no_expected_output(task: Task) -> None:
    sandbox = FakeSandbox(result("done", {"stages": [], "end": "done", "tests": [], "tests_end": "none"}))
    NatAgentValidator(EnvironmentConfig(), sandbox).validate(task, {"files": task.hidden["reference"]["files"]})
    (job,) = sandbox.jobs
    assert set(job.arguments["calls"][0]) == {"id", "tool", "input"}
    assert set(job.arguments["e2e"][0]) == {"id", "input"}
    assert len(job.arguments["calls"]) == len(task.hidden["vectors"]) + len(task.hidden["errors"])
    assert "output" not in json.dumps([job.arguments["calls"], job.arguments["e2e"]])
    assert "raises" not in json.dumps(job.arguments["calls"])


def test_infrastructure_failure_is_raised_and_never_a_reward(task: Task) -> None:
    validator = NatAgentValidator(EnvironmentConfig(), FakeSandbox(SandboxError("gone")))
    with pytest.raises(SandboxError, match="gone"):
        validator.validate(task, {"files": task.hidden["reference"]["files"]})


def test_dead_job_earns_nothing_and_a_late_one_its_form(task: Task) -> None:
    files = {"files": task.hidden["reference"]["files"]}
    died = NatAgentValidator(EnvironmentConfig(), FakeSandbox(result("died"))).validate(task, files)
    assert (died.total, died.findings) == (0.0, ["no complete result: the job died"])
    late = NatAgentValidator(EnvironmentConfig(), FakeSandbox(result("timeout"))).validate(task, files)
    assert late.total == pytest.approx(0.02 + 0.03 + 0.04 + 0.04)


@pytest.mark.parametrize(
    "artifact", [{}, {"files": None}, {"files": []}, {"files": {1: "x", "a.py": 2}}, {"files": {}}]
)
def test_artifact_of_any_shape_earns_zero_without_a_job(task: Task, artifact: dict[str, Any]) -> None:
    sandbox = FakeSandbox(result("done"))
    assert NatAgentValidator(EnvironmentConfig(), sandbox).validate(task, artifact).total == 0.0
    assert sandbox.jobs == []


def test_lone_surrogate_is_replaced_ds_10(task: Task) -> None:
    sandbox = FakeSandbox(result("died"))
    files = {"agent/register.py": "x = '\ud800'\n"}
    NatAgentValidator(EnvironmentConfig(), sandbox).validate(task, {"files": files})
    assert sandbox.jobs[0].files == {"agent/register.py": "x = '?'\n"}


def test_task_without_its_hidden_part_is_refused(task: Task) -> None:
    with pytest.raises(DataError, match="hidden part"):
        NatAgentValidator(EnvironmentConfig(), FakeSandbox(result("done"))).validate(task.visible(), {"files": {}})


def test_weights_of_the_config_are_used_and_checked(task: Task) -> None:
    config = EnvironmentConfig(reward_weights=dict.fromkeys(("vectors", "errors", "tests", "e2e"), 0.0))
    late = NatAgentValidator(config, FakeSandbox(result("timeout"))).validate(
        task, {"files": task.hidden["reference"]["files"]}
    )
    assert late.total == pytest.approx(0.13 / 0.25)
    with pytest.raises(ConfigError, match="typo"):
        NatAgentValidator(EnvironmentConfig(reward_weights={"typo": 1.0}), FakeSandbox(result("done")))


def test_close_ends_the_sandbox() -> None:
    sandbox = FakeSandbox(result("done"))
    NatAgentValidator(EnvironmentConfig(), sandbox).close()
    assert sandbox.is_closed
