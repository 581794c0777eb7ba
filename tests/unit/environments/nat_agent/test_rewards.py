"""Parts from evidence: what the sandbox says is never worth more than what the outputs show."""

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mini_nat import MiniNat, open_oracle
from nat_tasks import answer, halves, make_task

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.nat_agent.asking import ask
from skyrl_nat.environments.nat_agent.cases import CaseDrawer, Cases
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.rewards import WEIGHTS, Evidence, compute_parts, empty_parts
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, check_files
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator
from skyrl_nat.environments.nat_agent.workflow_file import WorkflowFile
from skyrl_nat.types import Task

PAID = [name for name, weight in WEIGHTS.items() if weight > 0]
WHOLE = make_task(mcp=["scale", "shout"], num_tests=2, is_installable=True)
SMALL = make_task("single", tools="scale")
Output = dict[str, Any]
WHOLE_FILE = WorkflowFile(is_valid=True, is_clean=True, has_options=True)


@dataclass
class Judgement:
    """An answer, and what a job said of it."""

    spec: AgentSpec
    cases: Cases
    static: StaticReport
    output: Output

    def parts(
        self, change: Callable[[Output], Any] | None = None, file: Output | None = None, **static: Any
    ) -> tuple[dict[str, float], list[str]]:
        """Parts and findings, after a change of the reports, of what is said of the file, or of the static stage."""
        output = copy.deepcopy(self.output)
        output["stages"] = [report for report in output["stages"] if change is None or change(report) is not False]
        findings: list[str] = []
        report = replace(self.static, **static)
        file = replace(WHOLE_FILE, **(file or {}))
        return compute_parts(self.spec, self.cases, report, Evidence.of(output), file, findings), findings


def judge(task: Task, **bodies: str) -> Judgement:
    kept: list[Output] = []

    def keep(_: object, output: Output) -> Output:
        kept.append(output)
        return output

    sandbox, oracle, files = MiniNat(keep), open_oracle(), answer(task, **bodies)
    NatAgentValidator(EnvironmentConfig(), sandbox, oracle).validate(task, {"files": files}, seed=1)
    spec, hidden = halves(task)
    cases = CaseDrawer(open_oracle()).draw(task.task_id, spec, hidden, 1)
    static = check_files(spec, files)
    questions = ask(spec, static, cases, random.Random(f"{task.task_id}/1/order"))
    assert sandbox.jobs[0].arguments == questions.arguments
    return Judgement(spec, cases, static, questions.understood(kept[0]))


HONEST = judge(WHOLE)


def put(**values: Any) -> Callable[[Output], None]:
    """Put values into every report that has such a key."""
    return lambda report: report.update({key: value for key, value in values.items() if key in report})


def fail(stage: str) -> Callable[[Output], None]:
    return lambda report: report.update(ok=False, error="no") if report["stage"] == stage else None


def of_tool(name: str) -> set[str]:
    return {f"call/{index}" for index, vector in enumerate(HONEST.cases.calls) if vector.tool == name}


def test_weights_add_up_to_one_and_form_alone_pays_nothing() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    assert all((weight == 0.0) == name.startswith("shaping_") for name, weight in WEIGHTS.items())


def test_whole_evidence_gives_one_everywhere_but_for_the_tests() -> None:
    parts, findings = HONEST.parts()
    assert parts == {**dict.fromkeys(WEIGHTS, 1.0), "tools_tests": 0.0}
    assert findings == []


def test_parts_that_a_task_does_not_ask_for_are_absent() -> None:
    parts, _ = judge(SMALL).parts()
    assert set(WEIGHTS) - set(parts) == {"integration_mcp", "tools_tests"}
    assert set(empty_parts(HONEST.spec)) == set(WEIGHTS)
    assert parts == dict.fromkeys(parts, 1.0)


def test_perfect_form_with_nothing_right_pays_nothing() -> None:
    parts, findings = HONEST.parts(put(output=987, text="987"))
    assert {name: parts[name] for name in PAID} == dict.fromkeys(PAID, 0.0)
    assert all(parts[name] == 1.0 for name in parts if name.startswith("shaping_"))
    assert "tool scale: 0 of" in " ".join(findings)
    assert not any("must take" in finding for finding in findings), "nothing is said of a form that is right"


def test_a_constant_for_every_input_pays_nothing() -> None:
    """The constants are right now and then: for the first recorded input, wherever it is asked again."""
    parts, _ = judge(WHOLE, scale="return 2000", shout="return 'LEFT!'").parts()
    assert {name: parts[name] for name in PAID} == dict.fromkeys(PAID, 0.0)


def test_lucky_runs_do_not_pay_where_no_tool_is_right() -> None:
    parts, _ = HONEST.parts(lambda report: report.update(output=0) if report["stage"] == "call" else None)
    assert (parts["workflow_e2e"], parts["workflow_errors"], parts["integration_mcp"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("change", [fail("build"), fail("register"), lambda report: report["stage"] != "build"])
def test_without_a_build_tools_count_half_and_the_rest_nothing(change: Callable[[Output], Any]) -> None:
    parts, _ = HONEST.parts(change)
    assert (parts["tools_oracle"], parts["tools_errors"]) == (0.5, 0.5)
    nothing = ("integration_build", "integration_yaml", "workflow_e2e", "workflow_errors", "shaping_builds")
    assert {name: parts[name] for name in nothing} == dict.fromkeys(nothing, 0.0)


def test_one_of_two_tools_right_pays_half_of_its_parts() -> None:
    parts, findings = HONEST.parts(lambda r: r.update(output="no") if r.get("id") in of_tool("shout") else None)
    assert (parts["tools_oracle"], parts["tools_errors"], parts["tools_pattern"]) == (0.5, 0.5, 0.5)
    assert (parts["integration_build"], parts["integration_yaml"]) == (0.5, 0.5)
    assert findings == [f"tool shout: 0 of {len(of_tool('shout'))} hidden inputs right"]


@pytest.mark.parametrize("is_fresh", [False, True])
def test_knowing_old_inputs_by_heart_or_only_new_ones_does_not_pay(is_fresh: bool) -> None:
    def spoil(report: Output) -> None:
        kind, _, number = report.get("id", "").partition("/")
        if kind == "call" and (int(number) >= HONEST.cases.num_recorded) is is_fresh:
            report["output"] = "no"

    assert HONEST.parts(spoil)[0]["tools_oracle"] == 0.0


def test_refusing_everything_pays_nothing() -> None:
    def refuse(report: Output) -> None:
        if report["stage"] == "call":
            report.pop("output", None)
            report.update(error="ValueError", raised=["ValueError"])

    parts, _ = HONEST.parts(refuse)
    assert parts["tools_errors"] == parts["tools_oracle"] == 0.0


def test_output_beside_an_error_is_not_an_answer() -> None:
    parts, _ = HONEST.parts(lambda r: r.update(error="x") if r["stage"] in ("call", "e2e") else None)
    assert parts["tools_oracle"] == parts["workflow_e2e"] == 0.0


def test_the_first_of_two_reports_counts() -> None:
    output = copy.deepcopy(HONEST.output)
    output["stages"] += [{**report, "output": "no"} for report in output["stages"] if "output" in report]
    assert replace(HONEST, output=output).parts()[0]["tools_oracle"] == 1.0


def test_accepted_bad_input_costs_the_errors_part_alone() -> None:
    parts, findings = HONEST.parts(lambda r: r.update(raised=["TypeError"]) if r.get("id") == "error/0" else None)
    bad = len(HONEST.cases.errors)
    assert parts["tools_errors"] == pytest.approx(((bad - 1) / bad + 1) / 2)
    assert parts["tools_oracle"] == 1.0
    assert findings == [f"tool scale: {bad - 1} of {bad} bad inputs refused with the right exception"]


def test_workflow_that_accepts_bad_input_is_found() -> None:
    parts, findings = judge(SMALL).parts(lambda r: not r.get("id", "").startswith("e2e_error"))
    assert (parts["workflow_e2e"], parts["workflow_errors"]) == (1.0, 0.0)
    assert findings[0].startswith("workflow: 0 of ")


@pytest.mark.parametrize(
    ("file", "static", "share"),
    [
        ({"is_clean": False}, {}, 2 / 3),
        ({}, {"yaml_share": 0.5}, 2 / 3),
        ({}, {"is_installable": False}, 2 / 3),
        ({"has_options": False}, {}, 2 / 3),
        ({"has_options": False}, {"is_installable": False}, 1 / 3),
        ({"is_clean": False, "has_options": False}, {"is_installable": False}, 0.0),
        ({"is_valid": False}, {}, 0.0),
    ],
)
def test_workflow_file_and_entry_point_share_one_part(file: Output, static: Output, share: float) -> None:
    parts, _ = HONEST.parts(None, file, **static)
    assert parts["integration_yaml"] == pytest.approx(share)


def test_forged_build_of_a_file_that_nat_does_not_build_pays_no_more_than_the_tools_alone() -> None:
    parts, _ = HONEST.parts(None, {"is_valid": False})
    assert parts["tools_oracle"] == 0.5
    zero = (
        "integration_build",
        "integration_yaml",
        "integration_mcp",
        "workflow_e2e",
        "workflow_errors",
        "tools_pattern",
    )
    assert {parts[name] for name in zero} == {0.0}


@pytest.mark.parametrize("stage", ["schema", "options"])
def test_what_fails_beside_the_package_is_not_clean_whatever_is_said_elsewhere(stage: str) -> None:
    parts, _ = HONEST.parts(fail(stage))
    assert parts["integration_yaml"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("key", "value", "missing"),
    [
        ("description", " ", "must have a description"),
        ("inputs", {"properties": {"y": {"type": "integer"}}}, "must take x"),
        ("inputs", {"properties": {"x": {"type": "number"}}}, "must have the documented input types"),
        ("inputs", None, "must take x"),
        ("output", "float", "must return int"),
    ],
)
def test_pattern_is_what_nat_knows_of_a_function(key: str, value: Any, missing: str) -> None:
    parts, findings = HONEST.parts(
        lambda report: report.update({key: value}) if report.get("tool") == "scale" else None
    )
    lost = sum(finding.startswith("pattern: scale") for finding in findings)
    assert f"pattern: scale {missing}" in findings
    assert parts["tools_pattern"] == pytest.approx((1 + (6 - lost) / 6) / 2)


def test_missing_hints_and_refusals_cost_a_sixth_of_the_pattern_each() -> None:
    assert HONEST.parts(hint_share=0.99)[0]["tools_pattern"] == pytest.approx(5 / 6)
    assert HONEST.parts(has_raise=False)[0]["tools_pattern"] == pytest.approx((5 / 6 + 1) / 2)


def test_bare_packages_need_no_description() -> None:
    parts, findings = judge(SMALL).parts(put(description=""))
    assert (parts["tools_pattern"], findings) == (1.0, [])


@pytest.mark.parametrize(
    ("change", "static", "share"),
    [
        (None, {}, 1.0),
        (None, {"script": ""}, 0.0),
        (None, {"yaml_share": 0.0}, 0.0),
        (put(tools=[]), {}, 0.0),
        (put(tools="scale shout"), {}, 0.0),
        (put(tools=[{"name": "scale"}, "shout", None]), {}, (3 / 6 - 1 / 6) / (5 / 6)),
        (lambda report: report.get("id") != "mcp/0", {}, (5 / 6 - 1 / 6) / (5 / 6)),
        (put(text=3), {}, 0.0),
    ],
)
def test_mcp_pays_by_right_texts_of_served_tools_and_needs_the_script(
    change: Callable[[Output], Any] | None, static: dict[str, Any], share: float
) -> None:
    assert len({vector.output for vector in HONEST.cases.mcp}) == 6
    parts, _ = HONEST.parts(change, **static)
    assert parts["integration_mcp"] == pytest.approx(share)


JUNK = [None, True, -1, 10**400, float("nan"), float("inf"), "x" * 5000, [], {}, [[[]]], {"a": [None]}, [1, None, {}]]


@pytest.mark.parametrize("stages", [*JUNK, [{"stage": []}], [{"id": {}}], [{"stage": "introspect", "tool": []}]])
def test_evidence_of_any_shape_gives_parts_and_never_pays(stages: Any) -> None:
    findings: list[str] = []
    evidence = Evidence.of({"stages": stages})
    parts = compute_parts(HONEST.spec, HONEST.cases, HONEST.static, evidence, WHOLE_FILE, findings)
    assert {name: parts[name] for name in PAID} == dict.fromkeys(PAID, 0.0)


@given(st.sampled_from(JUNK), st.sampled_from(sorted({key for report in HONEST.output["stages"] for key in report})))
@settings(max_examples=150)
def test_forged_values_anywhere_never_raise_and_never_pay_more(junk: Any, key: str) -> None:
    parts, _ = HONEST.parts(put(**{key: junk}))
    honest, _ = HONEST.parts()
    assert all(0.0 <= value <= honest[name] for name, value in parts.items())
    inner, _ = HONEST.parts(put(inputs={"properties": junk}, options={"factor": junk}, tools=[junk], raised=[junk]))
    assert inner["tools_oracle"] == 1.0
    assert (inner["integration_mcp"], inner["tools_errors"]) == (0.0, 0.5)  # shout has nothing to refuse


def test_findings_name_no_hidden_value() -> None:
    _, findings = HONEST.parts(put(output=987, text="987"))
    assert len(findings) >= 4
    values = {str(value) for case in (*HONEST.cases.calls, *HONEST.cases.e2e) for value in (case.input, case.output)}
    long = [value for value in values if len(value) > 3]
    assert len(long) > 10
    assert not [value for value in long if value in " ".join(findings)]


FILES = ("", "agent/register.py", "agent/config.yml", "pyproject.toml", "scripts/setup_mcp.sh")


@given(st.data())
@settings(max_examples=120)
def test_verdict_and_findings_agree_nt_05(data: st.DataObject) -> None:
    """A success has no finding, and whatever is not a success has one, wherever a report or a file is spoilt."""
    task = make_task(data.draw(st.sampled_from(["react_agent", "router_agent", "sequential_executor"])), mcp=["scale"])
    task = data.draw(st.sampled_from([task, SMALL]))
    task.payload["integration"]["is_installable"] = task is not SMALL
    missing = data.draw(st.sampled_from(FILES))
    spoilt = data.draw(st.sets(st.integers(0, 60), max_size=3))
    key, value = data.draw(st.sampled_from(["output", "ok", "raised", "text", "options", "inputs", "", "tools"])), {}

    def spoil(job: object, output: Output) -> Output:
        for index in sorted(spoilt, reverse=True):
            if index < len(output["stages"]):
                if not key:
                    del output["stages"][index]
                elif key in output["stages"][index]:
                    output["stages"][index][key] = value
        return output

    validator = NatAgentValidator(EnvironmentConfig(), MiniNat(spoil), open_oracle())
    files = {path: text for path, text in answer(task).items() if path != missing}
    if "agent/register.py" in files and "agent/config.yml" not in files:
        return  # MiniNat needs it
    result = validator.validate(task, {"files": files}, seed=2)
    assert result.is_success == (result.findings == []), (result.parts, result.findings)
    assert result.is_success == (result.total == 1.0)


@pytest.mark.parametrize(
    "twice",
    [{"stage": "build", "ok": True}, {"stage": "call", "id": "call/0"}, {"stage": "introspect", "tool": "scale"}],
)
def test_what_is_said_twice_is_forged(twice: Output) -> None:
    assert not Evidence.of(HONEST.output).is_forged
    assert Evidence.of({"stages": [twice, *HONEST.output["stages"]]}).is_forged
    assert Evidence.of({"stages": [*HONEST.output["stages"], twice]}).is_forged
