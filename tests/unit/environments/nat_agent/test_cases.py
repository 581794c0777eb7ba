"""Hidden calls by seed: what is drawn, what the right answers are, what an LLM's script is."""

import copy
from typing import Any

import pytest
from mini_nat import OracleSandbox, open_oracle
from nat_tasks import halves, make_task

from skyrl_nat.environments.nat_agent import cases as module
from skyrl_nat.environments.nat_agent.cases import FINALS, FINALS_OF_TWO, NUM_FRESH, NUM_MCP, CaseDrawer, Cases
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.errors import SandboxError
from skyrl_nat.types import Task


def draw(task: Task, seed: int = 0) -> Cases:
    return CaseDrawer(open_oracle()).draw(task.task_id, *halves(task), seed)


def right(tool: str, value: Any) -> Any:
    """Worked out without the reference."""
    return 2 * value if tool == "scale" else value.upper() + "!"


def test_same_seed_gives_the_same_cases_and_another_seed_or_task_others() -> None:
    task = make_task(mcp=["scale"])
    assert draw(task, 5) == draw(task, 5)
    assert draw(task, 5).calls != draw(task, 6).calls
    other = Task(task_id="other", family="nat_agent", payload=task.payload, hidden=task.hidden)
    assert draw(task, 5).calls != draw(other, 5).calls


def test_calls_are_recorded_and_fresh_ones_with_right_outputs() -> None:
    task = make_task()
    drawn = draw(task)
    _, hidden = halves(task)
    assert drawn.calls[:5] == hidden.vectors
    assert all(case.output == right(case.tool, case.input) for case in drawn.calls)
    fresh = [case.input for case in drawn.calls[5:-2] if case.tool == "shout"]
    assert len(fresh) == NUM_FRESH
    assert all(3 <= len(text) <= 8 for text in fresh)


def test_the_first_call_of_every_function_comes_again_at_the_end() -> None:
    drawn = draw(make_task())
    assert {(case.tool, case.input) for case in drawn.calls[-2:]} == {("scale", 1000), ("shout", "left")}
    assert drawn.num_repeated == 2
    assert draw(make_task("single", tools="scale")).num_repeated == 1


def test_refused_inputs_are_sorted_out_by_the_documented_exception() -> None:
    task = make_task()
    task.hidden["generators"]["scale"]["x"] = {"kind": "integer", "low": -90, "high": -10}
    drawn = draw(task)
    assert len(drawn.errors) == 1 + NUM_FRESH
    assert drawn.errors[0].input == -5
    assert all(case.input < 0 and case.raises == "ValueError" for case in drawn.errors)
    assert [case.input for case in drawn.calls if case.tool == "scale"] == [1000, 1001, 1002, 1000]
    for undocumented in ([], [{"when": "x is negative", "raises": "TypeError"}]):
        other = copy.deepcopy(task)
        other.payload["tools"][0]["errors"] = undocumented
        assert [case.input for case in draw(other).errors] == [-5]


def test_a_single_tool_is_its_own_workflow_and_must_refuse_there_too() -> None:
    drawn = draw(make_task("single", tools="scale"))
    assert drawn.e2e[0].output == 5000
    assert all((run.output, run.script) == (2 * run.input, ()) for run in drawn.e2e)
    assert [run.input for run in drawn.e2e_errors] == [case.input for case in drawn.errors]
    assert {run.output for run in drawn.e2e_errors} == {"ValueError"}
    assert draw(make_task()).e2e_errors == ()


def test_a_sequence_hands_on_what_the_first_tool_gives() -> None:
    task = make_task("sequential_executor")
    task.payload["workflow"]["uses"] = ["shout", "shout"]
    drawn = draw(task)
    assert len(drawn.e2e) == 1 + module.NUM_FRESH_END_TO_END
    for run in drawn.e2e[1:]:
        assert run.output == run.input.upper() + "!!"
        assert run.script == ()


def test_a_router_says_the_branch_and_passes_its_answer_on_as_text() -> None:
    runs = [run for seed in range(8) for run in draw(make_task("router_agent"), seed).e2e[1:]]
    branches = {run.script[0]["say"] for run in runs}
    assert branches == {"scale", "shout"}
    for run in runs:
        [step] = run.script
        assert run.output == str(right(step["say"], run.input))
        assert type(run.output) is str


@pytest.mark.parametrize("kind", ["react_agent", "tool_calling_agent"])
def test_an_agent_calls_its_tools_and_says_what_they_gave(kind: str) -> None:
    runs = [run for seed in range(8) for run in draw(make_task(kind), seed).e2e[1:]]
    assert {len(run.script) for run in runs} == {2, 3}
    for run in runs:
        *steps, last = run.script
        said = [str(right(step["call"], *step["input"].values())) for step in steps]
        assert all(list(step["input"]) == [{"scale": "x", "shout": "text"}[step["call"]]] for step in steps)
        assert last["final"] in (FINALS if len(steps) == 1 else FINALS_OF_TWO)
        assert run.output == last["final"].format(*said)
        wanted = [f"{step['call']} for {next(iter(step['input'].values()))!r}" for step in steps]
        assert run.input == f"Please use {' and '.join(wanted)}."


def test_no_run_has_a_step_that_its_tool_refuses() -> None:
    runs = [run for seed in range(30) for run in draw(make_task(), seed).e2e]
    values = [step["input"]["x"] for run in runs for step in run.script if step.get("call") == "scale"]
    assert values
    assert min(values) >= 0


def test_served_tools_are_called_with_their_own_fresh_inputs() -> None:
    drawn = draw(make_task(mcp=["shout"]))
    assert [case.tool for case in drawn.mcp] == ["shout"] * NUM_MCP
    recorded = {"left", "upwards"}
    assert not recorded & {case.input for case in drawn.mcp}
    assert all(case.output == right("shout", case.input) for case in drawn.mcp)
    assert draw(make_task()).mcp == ()


def test_cases_are_drawn_once_for_a_group_and_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REMEMBERED", 3)
    sandbox, task = OracleSandbox(), make_task("single", tools="scale")
    drawer = CaseDrawer(ReferenceOracle(sandbox))
    first = drawer.draw("t", *halves(task), 0)
    num_jobs = len(sandbox.jobs)
    assert drawer.draw("t", *halves(task), 0) is first
    assert len(sandbox.jobs) == num_jobs
    for seed in (1, 2, 3):
        drawer.draw("t", *halves(task), seed)
        assert len(sandbox.jobs) == (seed + 1) * num_jobs
    again = drawer.draw("t", *halves(task), 0)
    assert again is not first
    assert again == first


def test_oracle_that_fails_is_an_infrastructure_error_and_nothing_is_remembered() -> None:
    task = make_task("single", tools="scale")
    sandbox = OracleSandbox()
    drawer = CaseDrawer(ReferenceOracle(sandbox))
    honest, sandbox.run = sandbox.run, _fail  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SandboxError, match="gone"):
        drawer.draw("t", *halves(task), 0)
    sandbox.run = honest
    assert drawer.draw("t", *halves(task), 0).calls


def _fail(job: object) -> None:
    raise SandboxError("gone")
