"""From the sandbox's evidence to reward parts. Pure: all comparisons happen here, outside the sandbox.

The form parts together weigh a quarter, so that form never pays without function. What was said inside
the sandbox (a test passed) counts at most as much as what was computed here (an output is right).
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from skyrl_nat.environments.nat_agent.compare import is_same, share_above_constant
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, Vector
from skyrl_nat.environments.nat_agent.static_checks import StaticReport

WEIGHTS: dict[str, float] = {
    "action": 0.02,
    "files": 0.03,
    "python": 0.04,
    "yaml": 0.04,
    "registers": 0.05,
    "builds": 0.07,
    "vectors": 0.40,
    "errors": 0.05,
    "tests": 0.10,
    "e2e": 0.20,
}
"""Weight of each part. The form parts, down to `builds`, are 0.25 of 1."""
STANDALONE_SHARE = 0.5
"""Factor on right outputs of tools that work, but not from the workflow file."""

Report = Mapping[str, Any]


def empty_parts() -> dict[str, float]:
    """Return every part at 0."""
    return dict.fromkeys(WEIGHTS, 0.0)


def static_parts(static: StaticReport) -> dict[str, float]:
    """Return the parts that nothing has to run for; the others are 0."""
    return empty_parts() | {
        "action": 1.0 if static.files else 0.0,
        "files": static.files_share,
        "python": static.python_share,
        "yaml": static.yaml_share,
    }


def compute_parts(
    spec: AgentSpec, hidden: HiddenSpec, static: StaticReport, output: Report
) -> tuple[dict[str, float], list[str]]:
    """Return the value of every part, and findings.

    Args:
        spec: The visible half.
        hidden: The hidden half.
        static: What the parent saw.
        output: Answer of the `nat_validate` job.
    """
    findings: list[str] = []
    if output.get("end") == "died":
        # Whoever leaves before the end earns nothing at all; nobody gets there by an honest mistake.
        return empty_parts(), ["no complete result: the process ended before the checks did"]
    if output.get("end") == "timeout":
        findings.append("timeout: the package did not come to an end")
    stages = {str(item.get("stage")): item for item in _reports(output, "stages") if item.get("stage") not in _MANY}
    findings += [
        f"{name}: {str(stages[name].get('error', ''))[:300]}"
        for name in _STAGES
        if name in stages and stages[name].get("ok") is not True
    ]
    parts = static_parts(static)
    parts["registers"] = _passed(stages, "register")
    parts["builds"] = _passed(stages, "build")
    if not (_passed(stages, "schema") and _passed(stages, "options")):
        parts["yaml"] = min(parts["yaml"], 0.5)
    answers = {str(item.get("id")): item for item in _reports(output, "stages") if item.get("stage") in _MANY}
    works_from_file = STANDALONE_SHARE if not parts["builds"] else 1.0
    parts["vectors"] = works_from_file * _vector_share(hidden, answers, findings)
    # Without error cases there is nothing to refuse, and the part follows the outputs.
    parts["errors"] = min(parts["vectors"], _error_share(hidden, answers, findings) if hidden.errors else 1.0)
    parts["tests"] = min(parts["vectors"], _test_share(hidden, output, findings))
    parts["e2e"] = _share("end to end", "e2e", hidden.e2e, answers, findings)
    return parts, findings


_MANY = ("call", "e2e")
_STAGES = ("register", "schema", "options", "build")


def _reports(output: Report, key: str) -> list[Report]:
    items = output.get(key)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _passed(stages: Mapping[str, Report], name: str) -> float:
    return 1.0 if stages.get(name, {}).get("ok") is True else 0.0


def _vector_share(hidden: HiddenSpec, answers: Mapping[str, Report], findings: list[str]) -> float:
    by_tool: dict[str, list[tuple[int, Vector]]] = defaultdict(list)
    for index, vector in enumerate(hidden.vectors):
        by_tool[vector.tool].append((index, vector))
    shares = []
    for tool, items in by_tool.items():
        is_right = [_is_right(vector, answers.get(f"vector/{index}", {})) for index, vector in items]
        if not all(is_right):
            findings.append(f"tool {tool}: {sum(is_right)} of {len(is_right)} hidden inputs right")
        shares.append(share_above_constant(is_right, [vector.output for _, vector in items]))
    return sum(shares) / len(shares)


def _share(
    what: str,
    key: str,
    vectors: tuple[Vector, ...],
    answers: Mapping[str, Report],
    findings: list[str],
) -> float:
    is_right = [_is_right(vector, answers.get(f"{key}/{index}", {})) for index, vector in enumerate(vectors)]
    if not all(is_right):
        findings.append(f"{what}: {sum(is_right)} of {len(is_right)} hidden inputs right")
    return share_above_constant(is_right, [vector.output for vector in vectors])


def _is_right(vector: Vector, report: Report) -> bool:
    return "output" in report and "error" not in report and is_same(vector.output, report["output"])


def _error_share(hidden: HiddenSpec, answers: Mapping[str, Report], findings: list[str]) -> float:
    num_right = 0
    for index, vector in enumerate(hidden.errors):
        raised = answers.get(f"error/{index}", {}).get("raised")
        num_right += isinstance(raised, list) and vector.raises in raised
    if num_right < len(hidden.errors):
        findings.append(f"errors: {num_right} of {len(hidden.errors)} bad inputs refused with the right exception")
    return num_right / len(hidden.errors)


def _test_share(hidden: HiddenSpec, output: Report, findings: list[str]) -> float:
    """Return the share of the expected tests that were reported as passed and nothing else."""
    outcomes: dict[str, set[str]] = defaultdict(set)
    for item in _reports(output, "tests"):
        if "test" in item:
            outcomes[str(item["test"])].add(str(item.get("outcome")))
    if output.get("tests_end") != "done":
        error = str(output.get("tests_error", ""))[:300]
        findings.append(f"hidden tests: no complete result ({output.get('tests_end')}) {error}".rstrip())
        return 0.0
    missing = [test for test in hidden.expected_tests if test not in outcomes]
    passed = [test for test in hidden.expected_tests if outcomes.get(test) == {"passed"}]
    if missing:
        findings.append(f"hidden tests: {len(missing)} missing")
    if len(passed) < len(hidden.expected_tests):
        findings.append(f"hidden tests: {len(passed)} of {len(hidden.expected_tests)} passed")
    return len(passed) / len(hidden.expected_tests)
