"""What the policy may ask for in an episode: visible stages, examples, its own tests; nothing hidden."""

import json
from typing import Any

import pytest
from mini_nat import MiniNat
from nat_tasks import answer, halves, make_task

from skyrl_nat.environments.nat_agent.visible import MAX_TEXT_CHARS, own_tests_report, visible_report
from skyrl_nat.sandbox.base import SandboxResult

own_tests_report.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]
TASK = make_task(mcp=["scale"], num_tests=2, is_installable=True)
SPEC = halves(TASK)[0]


def look(files: dict[str, str], change: Any = None) -> tuple[list[str], MiniNat]:
    sandbox = MiniNat(change)
    return visible_report(SPEC, files, sandbox).split("\n"), sandbox


def test_honest_answer_is_ok_in_every_line() -> None:
    lines, _ = look(answer(TASK))
    assert lines == [*(f"{stage}: ok" for stage in ("register", "schema", "options", "build", "mcp")), "scale(4): ok"]


def test_wrong_example_is_shown_beside_the_documented_one() -> None:
    lines, _ = look(answer(TASK, scale="return x + config.factor"))
    assert lines[-1] == "scale(4): expected 8, got 6"
    lines, _ = look(answer(TASK, scale="raise ValueError('not yet')"))
    assert lines[-1] == "scale(4): ValueError: not yet"


def test_only_visible_inputs_are_asked_and_nothing_is_run_end_to_end() -> None:
    _, sandbox = look(answer(TASK))
    [job] = sandbox.jobs
    assert job.arguments["calls"] == [{"id": "0", "tool": "scale", "input": 4}]
    assert (job.arguments["e2e"], job.arguments["mcp"]) == ([], [])
    hidden = [case["input"] for case in TASK.hidden["vectors"]]
    assert not [value for value in hidden if json.dumps(value) in json.dumps(job.arguments)]


def test_files_that_cannot_run_are_told_without_a_job() -> None:
    lines, sandbox = look({"agent/register.py": "def f(:\n"})
    assert "agent/config.yml is missing" in lines
    assert any(line.startswith("agent/register.py:1:") for line in lines)
    assert sandbox.jobs == []


def test_stage_that_fails_shows_its_error_cut_short() -> None:
    def change(job: object, output: dict[str, Any]) -> dict[str, Any]:
        output["stages"] = [{"stage": "register", "ok": False, "error": "E" * 999}]
        return output

    lines, _ = look(answer(TASK), change)
    assert lines == [f"register: {'E' * MAX_TEXT_CHARS}", "scale(4): not called"]


@pytest.mark.parametrize(
    "result", [SandboxResult(status="timeout", output={}, log="", wall_s=1.0), {"stages": [], "end": "died"}]
)
def test_run_that_does_not_end_is_told(result: Any) -> None:
    lines, _ = look(answer(TASK), lambda *_: result)
    assert lines[-1].startswith("no complete result (")


def test_own_tests_are_counted_and_failures_explained() -> None:
    assert own_tests_report(SPEC, answer(TASK), MiniNat()) == "3 of 3 tests pass"
    text = own_tests_report(SPEC, answer(TASK, shout="return text"), MiniNat())
    assert text.startswith("2 of 3 tests pass\ntests/test_tools.py::test_shout: AssertionError")


def test_only_the_files_asked_for_are_counted() -> None:
    files = answer(TASK) | {"tests/test_more.py": "def test_a():\n    assert True\n"}
    assert own_tests_report(SPEC, files, MiniNat()) == "4 of 4 tests pass"
    assert own_tests_report(SPEC, files, MiniNat(), ["tests/test_more.py"]) == "1 of 1 tests pass"
    assert own_tests_report(SPEC, files, MiniNat(), ["tests/nothing.py"]).startswith("no tests found")


def test_tests_run_with_explanations_and_without_a_table() -> None:
    sandbox = MiniNat()
    own_tests_report(SPEC, answer(TASK), sandbox)
    [job] = sandbox.jobs
    assert (job.arguments["is_verbose"], job.arguments["table"]) == (True, None)


def test_missing_package_is_told_before_its_tests_run() -> None:
    files = {path: text for path, text in answer(TASK).items() if path.startswith("tests/")}
    sandbox = MiniNat()
    assert "agent/register.py is missing" in own_tests_report(SPEC, files, sandbox)
    assert sandbox.jobs == []


def test_paths_that_are_not_normal_are_no_files() -> None:
    files = {f"agent/../{path}": text for path, text in answer(TASK).items()}
    lines, sandbox = look(files)
    assert "agent/register.py is missing" in lines
    assert sandbox.jobs == []
