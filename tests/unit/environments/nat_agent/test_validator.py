"""The judge as a whole, around sandboxes that run packages in this process or play scripted answers."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from mini_nat import MiniNat, OracleSandbox, open_oracle
from nat_tasks import answer, make_task

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.nat_agent.mcp_setup import named_input
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.payload import parse_spec
from skyrl_nat.environments.nat_agent.rewards import WEIGHTS
from skyrl_nat.environments.nat_agent.validator import ODDITIES, NatAgentValidator, clean_files
from skyrl_nat.errors import ConfigError, DataError, SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult
from skyrl_nat.types import RewardResult, Task

Change = Callable[[SandboxJob, dict[str, Any]], Any]
SMALL = make_task("single", tools="scale")
WHOLE = make_task(mcp=["scale"], num_tests=2, is_installable=True)
PAID = [name for name, weight in WEIGHTS.items() if weight > 0]


def judge(
    task: Task, files: Any = None, *, change: Change | None = None, config: EnvironmentConfig | None = None, **how: Any
) -> tuple[RewardResult, list[SandboxJob]]:
    sandbox = MiniNat(change)
    validator = NatAgentValidator(config or EnvironmentConfig(), sandbox, open_oracle())
    return validator.validate(task, {"files": answer(task) if files is None else files}, **how), sandbox.jobs


def ended(status: str, output: dict[str, Any] | None = None) -> Change:
    return lambda *_: SandboxResult(status=status, output=output or {}, log="", wall_s=0.1)


@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_shipped_solution_earns_one(split: str) -> None:
    for task in load_tasks([f"builtin:nat_agent/{split}"]):
        result, _ = judge(task, task.hidden["solution"], seed=11, is_final=True)
        assert (result.total, result.findings, result.suspicions) == (1.0, [], []), task.task_id
        assert result.is_success


def test_no_hidden_value_is_ever_in_a_job() -> None:
    """Every expected output that is long enough to be no accident is looked for in whatever is sent with the files."""
    num_looked_for = 0
    for task in load_tasks(["builtin:nat_agent/train"]):
        _, jobs = judge(task, task.hidden["solution"], seed=4)
        sent = json.dumps([job.arguments for job in jobs if job.kind == "nat_validate"])
        inputs = json.dumps([case["input"] for case in (*task.hidden["vectors"], *task.hidden["e2e"])])
        inputs += json.dumps([task.hidden["generators"], task.payload])  # what fresh inputs are made of, and options
        for case in (*task.hidden["vectors"], *task.hidden["e2e"]):
            text = json.dumps(case["output"])
            if len(text) > 5 and text not in inputs:
                num_looked_for += 1
                assert text not in sent, task.task_id
        for reference in task.hidden["reference"].values():
            assert json.dumps(reference["source"]).strip('"') not in json.dumps([job.arguments for job in jobs])
    assert num_looked_for > 50


def test_job_holds_ids_inputs_and_scripts_alone() -> None:
    _, [job, *_] = judge(WHOLE)
    assert {key for call in job.arguments["calls"] for key in call} == {"id", "tool", "input"}
    assert all(call["id"].isdigit() for call in (*job.arguments["calls"], *job.arguments["e2e"]))
    assert {key for run in job.arguments["e2e"] for key in run} == {"id", "input", "script"}
    assert {key for call in job.arguments["mcp"] for key in call} == {"id", "tool", "input"}
    assert (job.arguments["module"], job.arguments["config"]) == ("agent.register", "agent/config.yml")
    assert job.arguments["style"] == "react_agent"
    _, [small, *_] = judge(SMALL)
    assert small.arguments["mcp"] is None


def test_early_end_earns_nothing_at_all_sb_01_sb_02() -> None:
    """Neither a killed process nor a polite exit leaves a reward, however much was reported before."""

    def leave(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        return {**output, "end": "died"}

    for change in (ended("died"), ended("refused"), leave):
        result, jobs = judge(WHOLE, change=change)
        assert set(result.parts.values()) == {0.0}
        assert (result.total, result.is_success) == (0.0, False)
        assert result.findings == ["no complete result: the process ended before the checks did"]
        assert result.suspicions == ["early end"]
        assert len(jobs) == 1


def test_late_answer_is_judged_by_what_was_reached_sb_03() -> None:
    result, _ = judge(SMALL, change=ended("timeout"))
    assert result.total == 0.0
    assert result.findings[0] == "no complete result: the time limit (timeout) was reached"

    def hang(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        kept = [report for report in output["stages"] if report["stage"] != "e2e"]
        return {"stages": kept, "end": "timeout"}

    result, _ = judge(SMALL, change=hang)
    assert (result.parts["tools_oracle"], result.parts["workflow_e2e"]) == (0.5, 0.0)
    assert result.findings[0].endswith("(timeout) was reached")
    assert not result.is_success


def test_infrastructure_failure_is_raised_and_never_a_reward() -> None:
    def fail(*_: Any) -> Any:
        raise SandboxError("gone")

    with pytest.raises(SandboxError, match="gone"):
        judge(SMALL, change=fail)
    oracle = OracleSandbox()
    oracle.run = fail  # pyright: ignore[reportAttributeAccessIssue]
    validator = NatAgentValidator(EnvironmentConfig(), MiniNat(), ReferenceOracle(oracle))
    with pytest.raises(SandboxError, match="gone"):
        validator.validate(SMALL, {"files": answer(SMALL)})


@pytest.mark.parametrize(
    "artifact", [{}, {"files": None}, {"files": []}, {"files": {1: "x", "a.py": 2}}, {"files": {}}]
)
def test_artifact_of_any_shape_earns_zero_without_a_job(artifact: dict[str, Any]) -> None:
    sandbox = MiniNat()
    result = NatAgentValidator(EnvironmentConfig(), sandbox, open_oracle()).validate(WHOLE, artifact)
    assert (result.total, set(result.parts.values())) == (0.0, {0.0})
    assert "agent/register.py is missing" in result.findings
    assert sandbox.jobs == []


def test_code_that_does_not_parse_needs_no_job() -> None:
    result, jobs = judge(SMALL, answer(SMALL) | {"agent/register.py": "def f(:"})
    assert (result.total, jobs) == (0.0, [])
    assert result.parts["shaping_files"] == 1.0


def test_lone_surrogate_is_replaced_ds_10() -> None:
    assert clean_files({"files": {"a.py": "x = '\ud800'\n"}}) == {"a.py": "x = '?'\n"}


def test_paths_that_are_not_normal_are_left_out() -> None:
    paths = ["a.py", "b/c.py", "", "./a.py", "a//b.py", "a/./b.py", "b/../a.py", "a.py/"]
    assert list(clean_files({"files": dict.fromkeys(paths, "x")})) == ["a.py", "b/c.py"]


@pytest.mark.parametrize("name", ["vectors", "e2e", "reference"])
def test_task_with_nothing_to_check_is_refused_sb_05_d(name: str) -> None:
    task = copy.deepcopy(SMALL)
    task.hidden[name] = type(task.hidden[name])()
    with pytest.raises(DataError, match="must have references, vectors and e2e cases"):
        judge(task)
    with pytest.raises(DataError, match="hidden part"):
        judge(SMALL.visible(), {})


def test_same_seed_asks_the_same_and_another_one_other_things() -> None:
    def asked(seed: int) -> Any:
        return judge(SMALL, seed=seed)[1][0].arguments["calls"]

    assert asked(1) == asked(1)
    assert asked(1) != asked(2)
    for seed in (1, 2):
        assert {1000, 1001, 1002} <= {call["input"] for call in asked(seed)}  # recorded ones
        assert asked(seed)[-1]["input"] == 1000
    places = [[call["input"] for call in asked(seed)].index(1000) for seed in range(9)]
    assert len(set(places)) > 3  # a place says nothing


def failing(stage: str) -> Change:
    def change(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        for report in output["stages"]:
            is_meant = job.kind == "nat_validate" and report["stage"] == stage
            report.update({"ok": False, "error": "llms.main: bad"} if is_meant else {})
        return output

    return change


def test_stages_that_fail_are_findings_with_their_reason() -> None:
    result, jobs = judge(SMALL, change=failing("options"))
    assert result.findings == ["options: llms.main: bad"]
    assert 0.9 < result.total < 1.0
    assert [job.kind for job in jobs] == ["nat_validate", "nat_workflow_file"]


@pytest.mark.parametrize("stage", ["schema", "build"])
def test_file_that_does_not_load_or_build_is_not_looked_at_again(stage: str) -> None:
    result, jobs = judge(SMALL, change=failing(stage))
    assert result.findings[0] == f"{stage}: llms.main: bad"
    assert [job.kind for job in jobs] == ["nat_validate"]
    assert (result.parts["tools_oracle"], result.parts["workflow_e2e"]) == (0.5, 0.0)


def canary_task() -> Task:
    """shout("left") is shown as "left!" on purpose."""
    task = make_task()
    wrong = {"input": "left", "output": "left!"}
    task.payload["tools"][1]["examples"] = [wrong]
    task.hidden["canaries"] = [{"tool": "shout", **wrong}]
    return task


def test_repeating_a_wrong_example_is_suspicious_and_costs_nothing_by_itself() -> None:
    task = canary_task()
    learned = answer(task, shout="return 'left!' if text == 'left' else text.upper() + '!'")
    task.hidden["vectors"] = [vector for vector in task.hidden["vectors"] if vector["input"] != "left"]
    result, _ = judge(task, learned)
    assert result.suspicions == ["repeats a wrong example: shout"]
    assert result.total == 1.0
    assert judge(task)[0].suspicions == []


def test_a_package_that_is_wrong_everywhere_is_not_suspicious() -> None:
    task = canary_task()
    wrong = answer(task, shout="return 'left!'", scale="return 0")
    assert judge(task, wrong)[0].suspicions == []


def test_signs_in_the_code_are_reported_beside_the_reward() -> None:
    files = answer(SMALL)
    files["agent/register.py"] += "\nimport ctypes\n"
    result, _ = judge(SMALL, files)
    assert [text.partition(":")[0] for text in result.suspicions] == ["native code"]
    assert result.total == 1.0


def test_tests_are_paid_only_where_every_tool_is_right() -> None:
    result, jobs = judge(WHOLE)
    assert result.parts["tools_tests"] == 1.0
    assert "nat_own_tests" in {job.kind for job in jobs}
    almost = answer(WHOLE, shout="return text.upper() + ('!' if text != 'left' else '?')")
    result, jobs = judge(WHOLE, almost)
    assert result.parts["tools_oracle"] == 0.5
    assert result.parts["tools_tests"] == 0.0
    assert "nat_own_tests" not in {job.kind for job in jobs}


def test_constant_answers_earn_nothing() -> None:
    result, _ = judge(WHOLE, answer(WHOLE, scale="return 2000", shout="return 'LEFT!'"))
    assert {name: result.parts[name] for name in PAID} == dict.fromkeys(PAID, 0.0)
    assert result.total == 0.0


def test_start_script_runs_only_in_final_judgements_and_only_lowers() -> None:
    def serve_nothing(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        return {"reports": [], "end": "no server"} if job.kind == "nat_mcp_script" else output

    result, jobs = judge(WHOLE, change=serve_nothing)
    assert "nat_mcp_script" not in {job.kind for job in jobs}
    assert result.total == 1.0
    result, jobs = judge(WHOLE, change=serve_nothing, is_final=True)
    assert jobs[-1].kind == "nat_mcp_script"
    assert (result.parts["integration_mcp"], result.total) == (0.0, pytest.approx(0.9))
    assert result.findings == ["mcp script: 0 of 3 calls right; no server"]
    _, jobs = judge(WHOLE, answer(WHOLE) | {"scripts/setup_mcp.sh": "echo"}, is_final=True)
    assert "nat_mcp_script" not in {job.kind for job in jobs}


def test_weights_of_the_config_are_used_and_checked() -> None:
    config = EnvironmentConfig(reward_weights={**dict.fromkeys(PAID, 0.0), "shaping_files": 3.0, "shaping_python": 1.0})
    files = {"agent/register.py": answer(SMALL)["agent/register.py"]}
    early = judge(SMALL, files | {"agent/register.py": "x = ("}, config=config)[0]
    assert early.total == pytest.approx((3 * 0.5 + 0) / 4)
    with pytest.raises(ConfigError, match="typo"):
        NatAgentValidator(EnvironmentConfig(reward_weights={"typo": 1.0}), MiniNat(), open_oracle())


@pytest.mark.parametrize("stages", [None, 7, "x", [[]], [{"stage": "introspect", "tool": "scale", "inputs": [1]}]])
def test_forged_answers_never_raise_and_never_pay(stages: Any) -> None:
    result, _ = judge(WHOLE, change=lambda *_: {"stages": stages, "end": "done"}, is_final=True)
    assert result.total == 0.0


def test_inputs_are_objects_where_mcp_wants_them() -> None:
    spec = parse_spec(copy.deepcopy(WHOLE.payload))
    assert named_input(spec, "scale", 4) == {"x": 4}
    spec.tool("shout").inputs["properties"]["more"] = {"type": "integer"}
    assert named_input(spec, "shout", {"text": "a", "more": 1}) == {"text": "a", "more": 1}


def test_close_ends_both_sandboxes() -> None:
    sandbox, oracle = MiniNat(), OracleSandbox()
    NatAgentValidator(EnvironmentConfig(), sandbox, ReferenceOracle(oracle)).close()
    assert (sandbox.is_closed, oracle.is_closed) == (True, True)


def test_forged_reports_earn_nothing_and_are_suspected() -> None:
    def change(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        is_meant = job.kind == "nat_validate"
        return output | ({"stages": [*output["stages"], {"stage": "build", "ok": True}]} if is_meant else {})

    result, _ = judge(WHOLE, change=change)
    assert result.total == 0.0
    assert result.suspicions == ["forged reports"]
    assert result.findings[0].startswith("forged reports: ")


@pytest.mark.parametrize("kind", ODDITIES)
@pytest.mark.parametrize("job_kind", ["nat_validate", "nat_own_tests", "nat_mcp_script"])
def test_odd_answers_get_a_verdict_and_are_suspected(kind: type[Exception], job_kind: str) -> None:
    """No verdict at all would be a way out of a bad one."""

    def change(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        if job.kind == job_kind:
            raise kind("x" * 900)
        return output

    files = answer(WHOLE)
    files["agent/register.py"] += "\nimport ctypes\n"
    result, _ = judge(WHOLE, files, change=change, is_final=True)
    assert (result.total, set(result.parts.values())) == (0.0, {0.0})
    assert set(result.parts) == set(WEIGHTS)
    assert result.findings[-1].startswith(f"the answer cannot be judged: {kind.__name__}: xxx")
    assert len(result.findings[-1]) == 300
    assert [text.partition(":")[0] for text in result.suspicions] == ["native code", "breaks its judge"]


@pytest.mark.parametrize("kind", [SandboxError, DataError, ConfigError])
def test_errors_of_this_package_are_no_verdict(kind: type[Exception]) -> None:
    """Some of them are ValueErrors as well."""

    def fail(*_: Any) -> Any:
        raise kind("ours")

    with pytest.raises(kind, match="ours"):
        judge(SMALL, change=fail)


def test_name_that_cannot_be_printed_gets_a_verdict() -> None:
    result, _ = judge(SMALL, change=lambda *_: {"stages": [{"stage": "call", "id": 10**5000}], "end": "done"})
    assert (result.total, result.suspicions) == (0.0, ["breaks its judge"])


def test_text_that_is_no_value_costs_its_part_alone() -> None:
    def change(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        for report in output.get("stages", []):
            report.update({"text": "{[]: 1}"} if "text" in report else {})
        return output

    result, _ = judge(WHOLE, change=change)
    assert (result.parts["integration_mcp"], result.total) == (0.0, pytest.approx(0.9))
    assert result.suspicions == []


LONG = f"0x{'f' * 4000}"
ODD_FILES: dict[str, dict[str, str]] = {
    "no config": {"agent/config.yml": ""},
    "float": {"agent/config.yml": f"x: 1{':00' * 400}.5"},
    "type": {"agent/config.yml": f"workflow: {{_type: {LONG}}}"},
    "no yaml": {"agent/config.yml": "a: ["},
    "list": {"agent/config.yml": "- a"},
    "list as type": {"agent/config.yml": "functions: {x: {_type: [x]}}"},
    "list as type of the workflow": {"agent/config.yml": "workflow: {_type: [scale]}"},
}


@pytest.mark.parametrize("name", ODD_FILES)
def test_forged_build_of_an_odd_file_pays_the_tools_alone(name: str) -> None:
    """The job says what it would say of an honest answer; the file's own job, without the package, does not."""

    def change(job: SandboxJob, output: dict[str, Any]) -> dict[str, Any]:
        refused = {"stages": [{"stage": "schema", "ok": False, "error": "no"}], "end": "done"}
        return refused if job.kind == "nat_workflow_file" else output

    honest = answer(WHOLE)
    files = {path: text for path, text in (honest | ODD_FILES[name]).items() if text}
    validator = NatAgentValidator(EnvironmentConfig(), MiniNat(change, played=honest), open_oracle())
    result = validator.validate(WHOLE, {"files": files}, is_final=True)
    assert result.parts["tools_oracle"] == 0.5
    zero = set(PAID) - {"tools_oracle", "tools_errors", "tools_pattern"}
    assert result.parts["tools_pattern"] < 0.5
    assert {name: result.parts[name] for name in zero} == dict.fromkeys(zero, 0.0)
    assert result.findings[0].startswith("agent/config.yml")
    assert result.suspicions == []


def test_odd_types_of_functions_never_raise_beside_a_right_workflow() -> None:
    honest = answer(SMALL)
    files = honest | {"agent/config.yml": honest["agent/config.yml"] + "functions: {x: {_type: [x]}, y: {_type: {}}}\n"}
    validator = NatAgentValidator(EnvironmentConfig(), MiniNat(played=honest), open_oracle())
    assert validator.validate(SMALL, {"files": files}).suspicions == []


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("agent/more.py", f"class Z(object, name={LONG}): pass\n"),
        ("pyproject.toml", f"x = {'1' * 5000}"),
        ("pyproject.toml", f"{'a.' * 5000}a = 1"),
    ],
)
def test_odd_numbers_elsewhere_get_an_honest_verdict(path: str, text: str) -> None:
    honest = answer(WHOLE)
    result, _ = judge(WHOLE, honest | {path: text})
    assert result.parts["tools_oracle"] == 1.0
    assert result.total < 1.0
    assert result.suspicions == []
    assert result.findings
