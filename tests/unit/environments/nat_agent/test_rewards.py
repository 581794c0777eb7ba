"""Parts from hand-made evidence: what the sandbox says is never more than what the outputs show."""

from typing import Any

import pytest

from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, ToolSpec, Vector
from skyrl_nat.environments.nat_agent.rewards import WEIGHTS, compute_parts
from skyrl_nat.environments.nat_agent.static_checks import StaticReport

SPEC = AgentSpec(
    name="n",
    package="agent",
    tools=(ToolSpec(name="f", arguments={"x": "int"}, returns="int", description="d"),),
    workflow=None,
)
HIDDEN = HiddenSpec(
    vectors=tuple(Vector(tool="f", input=i, output=2 * i) for i in range(4)),
    errors=(Vector(tool="f", input=-1, raises="ValueError"),),
    e2e=(Vector(tool="", input=7, output=14), Vector(tool="", input=8, output=16)),
    test_files={"test_hidden.py": ""},
    expected_tests=("test_hidden.py::a", "test_hidden.py::b"),
    reference={},
)
STATIC = StaticReport(
    files={"agent/register.py": "x"},
    source_root="",
    module="agent.register",
    config="agent/config.yml",
    python_share=1.0,
    yaml_share=1.0,
)


def evidence(**changes: Any) -> dict[str, Any]:
    stages = [{"stage": name, "ok": True, "error": ""} for name in ("register", "schema", "options", "build")]
    calls = [{"stage": "call", "id": f"vector/{i}", "output": 2 * i} for i in range(4)]
    calls += [
        {
            "stage": "call",
            "id": "error/0",
            "error": "ValueError: x",
            "raised": ["ValueError", "Exception"],
        }
    ]
    ends = [
        {"stage": "e2e", "id": "e2e/0", "output": 14},
        {"stage": "e2e", "id": "e2e/1", "output": 16},
    ]
    tests = [{"test": f"test_hidden.py::{name}", "outcome": "passed"} for name in "ab"]
    return {
        "stages": [*stages, *calls, *ends],
        "end": "done",
        "tests": tests,
        "tests_end": "done",
        **changes,
    }


def parts_of(output: dict[str, Any]) -> dict[str, float]:
    return compute_parts(SPEC, HIDDEN, STATIC, output)[0]


def test_weights_add_up_to_one_and_form_is_at_most_a_quarter() -> None:
    assert sum(WEIGHTS.values()) == pytest.approx(1.0)
    form = ("action", "files", "python", "yaml", "registers", "builds")
    assert sum(WEIGHTS[name] for name in form) == pytest.approx(0.25)


def test_whole_evidence_gives_one_everywhere() -> None:
    assert parts_of(evidence()) == dict.fromkeys(WEIGHTS, 1.0)


def test_early_end_gives_zero_everywhere_sb_01() -> None:
    parts, findings = compute_parts(SPEC, HIDDEN, STATIC, evidence(end="died"))
    assert parts == dict.fromkeys(WEIGHTS, 0.0)
    assert findings == ["no complete result: the process ended before the checks did"]


def test_missing_tests_count_as_failed_sb_04() -> None:
    parts, findings = compute_parts(SPEC, HIDDEN, STATIC, evidence(tests=evidence()["tests"][:1]))
    assert parts["tests"] == 0.5
    assert "hidden tests: 1 missing" in findings


def test_no_tests_skipped_tests_and_a_dead_pytest_give_zero_sb_05() -> None:
    skipped = [{"test": f"test_hidden.py::{name}", "outcome": "skipped"} for name in "ab"]
    for change in (
        {"tests": []},
        {"tests": skipped},
        {"tests_end": "died"},
        {"tests_end": "timeout"},
    ):
        assert parts_of(evidence(**change))["tests"] == 0.0


def test_test_that_passes_and_fails_to_tear_down_has_not_passed() -> None:
    tests = [*evidence()["tests"], {"test": "test_hidden.py::a", "outcome": "failed"}]
    assert parts_of(evidence(tests=tests))["tests"] == 0.5


def test_passed_tests_are_worth_no_more_than_right_outputs() -> None:
    stages = [item for item in evidence()["stages"] if not str(item.get("id", "")).startswith("vector")]
    parts = parts_of(evidence(stages=stages))
    assert parts["vectors"] == parts["tests"] == parts["errors"] == 0.0


def test_refusing_everything_earns_nothing() -> None:
    calls = [{"stage": "call", "id": f"vector/{i}", "error": "ValueError", "raised": ["ValueError"]} for i in range(4)]
    stages = [
        *evidence()["stages"][:4],
        *calls,
        {"stage": "call", "id": "error/0", "raised": ["ValueError"]},
    ]
    parts = parts_of(evidence(stages=stages))
    assert parts["errors"] == parts["vectors"] == 0.0


def test_right_outputs_without_a_build_count_half() -> None:
    stages = [item for item in evidence()["stages"] if item["stage"] not in ("build", "e2e")]
    parts = parts_of(evidence(stages=stages))
    assert parts["vectors"] == 0.5
    assert parts["e2e"] == 0.0


def test_output_beside_an_error_is_not_an_answer() -> None:
    stages = [{**item, "error": "x"} if item["stage"] == "call" else item for item in evidence()["stages"]]
    assert parts_of(evidence(stages=stages))["vectors"] == 0.0


@pytest.mark.parametrize("stages", [None, 3, "x", [1, None, []], [{"stage": []}], [{"id": {}}], [{}]])
def test_evidence_of_any_shape_gives_parts(stages: Any) -> None:
    parts = parts_of(evidence(stages=stages, tests=stages))
    assert parts["vectors"] == 0.0
    assert all(0.0 <= value <= 1.0 for value in parts.values())


def test_findings_name_no_hidden_value() -> None:
    stages = [{**item, "output": 987} if "output" in item else item for item in evidence()["stages"]]
    _, findings = compute_parts(SPEC, HIDDEN, STATIC, evidence(stages=stages))
    assert findings == [
        "tool f: 0 of 4 hidden inputs right",
        "end to end: 0 of 2 hidden inputs right",
    ]
