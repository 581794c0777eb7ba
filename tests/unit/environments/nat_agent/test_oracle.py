"""Right answers from references, in a sandbox that never holds anything else."""

from typing import Any

import pytest
from mini_nat import OracleSandbox
from nat_tasks import halves, make_task

from skyrl_nat.environments.nat_agent.oracle import Answer, Call, ReferenceOracle, UnansweredError
from skyrl_nat.environments.nat_agent.payload import HiddenSpec
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult


class FixedSandbox(OracleSandbox):
    def __init__(self, output: dict[str, Any], status: str = "done") -> None:
        super().__init__()
        self.result = SandboxResult(status=status, output=output, log="said at the end", wall_s=0.0)

    def run(self, job: SandboxJob) -> SandboxResult:
        return self.result


@pytest.fixture
def hidden() -> HiddenSpec:
    return halves(make_task())[1]


def test_answers_come_in_the_order_of_calls_and_variants(hidden: HiddenSpec) -> None:
    calls = [Call(chain=("scale",), input=3), Call(chain=("shout",), input="a"), Call(chain=("scale",), input=-1)]
    wrong = {"scale": "async def run(x):\n    return x + 100\n"}
    right, other = ReferenceOracle(OracleSandbox()).answers(hidden, calls, [{}, wrong])
    refused = Answer(raises="ValueError", message="negative")
    assert right == [Answer(output=6), Answer(output="A!"), refused]
    assert other == [Answer(output=103), Answer(output="A!"), Answer(output=99)]


def test_chains_hand_on_and_options_replace_those_of_the_task(hidden: HiddenSpec) -> None:
    chain = Call(chain=("scale", "scale"), input=3)
    tripled = Call(chain=("scale",), input=3, options={"factor": 30})
    [[twice, thirty]] = ReferenceOracle(OracleSandbox()).answers(hidden, [chain, tripled])
    assert (twice.output, thirty.output) == (12, 90)


def test_job_holds_references_and_inputs_and_no_expected_output(hidden: HiddenSpec) -> None:
    sandbox = OracleSandbox()
    ReferenceOracle(sandbox).answers(hidden, [Call(chain=("scale",), input=3)])
    (job,) = sandbox.jobs
    assert (job.kind, list(job.files)) == ("python", ["main.py"])
    assert job.arguments["calls"] == [{"chain": ["scale"], "input": 3, "options": {}}]
    assert "vectors" not in job.arguments


def test_nothing_asked_needs_no_job(hidden: HiddenSpec) -> None:
    sandbox = OracleSandbox()
    assert ReferenceOracle(sandbox).answers(hidden, [], [{}, {}]) == [[], []]
    assert ReferenceOracle(sandbox).answers(hidden, [Call(chain=("scale",), input=3)], []) == []
    assert sandbox.jobs == []


@pytest.mark.parametrize(
    ("output", "status", "message"),
    [
        ({}, "timeout", r"0 of 1 answers \(timeout\): said at the end"),
        ({}, "died", r"0 of 1 answers \(died\): said at the end"),
        ({"reports": [], "end": "timeout"}, "done", r"0 of 1 answers \(timeout\)"),
        ({"reports": [], "end": "done"}, "done", "0 of 1 answers"),
        ({"reports": [{"variant": 0, "output": 6}], "end": "died"}, "done", r"1 of 1 answers \(died\)"),
        ({"reports": [{}, {}], "end": "done"}, "done", "2 of 1 answers"),
    ],
)
def test_references_that_do_not_answer_are_told_from_a_sandbox_that_fails(
    hidden: HiddenSpec, output: dict[str, Any], status: str, message: str
) -> None:
    """Both are infrastructure errors, but for calls that a package's own tests have chosen."""
    with pytest.raises(UnansweredError, match=message):
        ReferenceOracle(FixedSandbox(output, status)).answers(hidden, [Call(chain=("scale",), input=3)])
    assert issubclass(UnansweredError, SandboxError)


def test_sandbox_that_fails_has_left_nothing_unanswered(hidden: HiddenSpec) -> None:
    class Broken(OracleSandbox):
        def run(self, job: SandboxJob) -> SandboxResult:
            raise SandboxError("gone")

    with pytest.raises(SandboxError, match="gone") as caught:
        ReferenceOracle(Broken()).answers(hidden, [Call(chain=("scale",), input=3)])
    assert type(caught.value) is SandboxError


def test_close_ends_the_sandbox() -> None:
    sandbox = OracleSandbox()
    ReferenceOracle(sandbox).close()
    assert sandbox.is_closed
