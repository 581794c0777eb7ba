"""The start script for real: what is sent, and how its answers are counted."""

from typing import Any

import pytest
import yaml
from mini_nat import MiniNat
from nat_tasks import answer, halves, make_task

from skyrl_nat.environments.nat_agent.cases import Cases
from skyrl_nat.environments.nat_agent.mcp_setup import check_script
from skyrl_nat.environments.nat_agent.payload import Vector
from skyrl_nat.environments.nat_agent.static_checks import check_files
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob

TASK = make_task(mcp=["scale", "shout"])
MCP = (
    Vector(tool="scale", input=1, output=2),
    Vector(tool="scale", input=3, output=6),
    Vector(tool="shout", input="a", output="A!"),
    Vector(tool="shout", input="b", output="B!"),
)
TEXTS = ["2", "6", "A!", "B!"]
CASES = Cases(calls=(), num_recorded=0, num_repeated=0, errors=(), e2e=(), e2e_errors=(), mcp=MCP, canaries=())


def check(output: Any, files: dict[str, str] | None = None) -> tuple[float, list[str], SandboxJob]:
    spec, sandbox = halves(TASK)[0], MiniNat(lambda *_: output)
    static = check_files(spec, answer(TASK) | (files or {}))
    share, findings = check_script(sandbox, spec, static, CASES)
    return share, findings, sandbox.jobs[0]


def said(*texts: Any) -> dict[str, Any]:
    return {"reports": [{"id": f"mcp/{index}", "text": text} for index, text in enumerate(texts)], "end": "done"}


def test_right_texts_are_worth_one_and_have_no_finding() -> None:
    assert check(said(*TEXTS))[:2] == (1.0, [])


@pytest.mark.parametrize(
    ("texts", "num_right"), [(["2", "6", "A!"], 3), (["2", "6.0", "A!", "b!"], 2), (["2"], 1), ([], 0), ([2, 6], 0)]
)
def test_share_is_measured_from_a_constant(texts: list[Any], num_right: int) -> None:
    share, [finding], _ = check(said(*texts))
    assert share == pytest.approx(max(0.0, (num_right / 4 - 0.25) / 0.75))
    assert finding == f"mcp script: {num_right} of 4 calls right; done"


@pytest.mark.parametrize("output", [{}, {"reports": [None, 3, {"id": []}], "end": "no server"}, {"end": "x" * 999}])
def test_scripts_that_do_not_serve_are_worth_nothing_with_the_reason(output: dict[str, Any]) -> None:
    share, [finding], _ = check(output)
    assert share == 0.0
    assert finding.startswith("mcp script: 0 of 4 calls right; ")
    assert len(finding) < 350


def test_sandbox_without_a_network_says_nothing() -> None:
    assert check({"end": "no loopback: not permitted"})[:2] == (1.0, [])


def test_job_names_the_script_and_inputs_by_argument_and_no_output() -> None:
    *_, job = check(said())
    assert (job.kind, job.arguments["script"]) == ("nat_mcp_script", "scripts/setup_mcp.sh")
    assert job.arguments["calls"][0] == {"id": "mcp/0", "tool": "scale", "input": {"x": 1}}
    assert job.arguments["calls"][3] == {"id": "mcp/3", "tool": "shout", "input": {"text": "b"}}
    assert job.timeout_s is not None
    assert job.timeout_s > job.arguments["listen_s"]


def test_every_llm_is_scripted_and_the_rest_is_left_as_it_is() -> None:
    *_, job = check(said())
    before, after = (yaml.safe_load(files["agent/config.yml"]) for files in (answer(TASK), job.files))
    assert after["llms"] == {"main": {"_type": "scripted"}}
    assert before["llms"] != after["llms"]
    assert {**before, "llms": 0} == {**after, "llms": 0}


@pytest.mark.parametrize("text", ["[1]", "llms: [a]", "x: 1", "3"])
def test_workflow_files_of_any_shape_are_passed_on(text: str) -> None:
    *_, job = check(said(), {"agent/config.yml": text})
    assert yaml.safe_load(job.files["agent/config.yml"]) == yaml.safe_load(text)


def test_workflow_file_that_cannot_be_written_again_is_worth_nothing_and_needs_no_job() -> None:
    spec, sandbox = halves(TASK)[0], MiniNat()
    config = answer(TASK)["agent/config.yml"] + f"x: 0x{'f' * 4000}\n"
    static = check_files(spec, answer(TASK) | {"agent/config.yml": config})
    assert static.yaml_share == 1.0
    share, [finding] = check_script(sandbox, spec, static, CASES)
    assert (share, sandbox.jobs) == (0.0, [])
    assert finding.startswith("mcp script: the workflow file cannot be written again: ")


def test_infrastructure_failure_passes_up() -> None:
    class Broken(MiniNat):
        def run(self, job: SandboxJob) -> Any:
            raise SandboxError("gone")

    spec = halves(TASK)[0]
    with pytest.raises(SandboxError, match="gone"):
        check_script(Broken(), spec, check_files(spec, answer(TASK)), CASES)
