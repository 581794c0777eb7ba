"""From evidence to reward parts. Pure: all comparisons happen here, outside the sandbox.

Gates: form never pays without function. What is said of a tool's form counts no more than the share of hidden
inputs that the tool answers rightly, integration counts nothing where the workflow gives no right answer, and tests
only pay for tools that are right. The `shaping` parts pay for form alone; their weight is 0 unless a config raises it,
as it must for models that are too small to get a first reward otherwise.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from skyrl_nat.environments.nat_agent.cases import Cases
from skyrl_nat.environments.nat_agent.compare import is_same, is_same_text, share_above_constant
from skyrl_nat.environments.nat_agent.payload import AgentSpec, EndToEnd, ToolSpec, Vector
from skyrl_nat.environments.nat_agent.static_checks import StaticReport
from skyrl_nat.environments.nat_agent.workflow_file import WorkflowFile

WEIGHTS: dict[str, float] = {
    "tools_oracle": 0.30,
    "tools_errors": 0.05,
    "tools_pattern": 0.05,
    "tools_tests": 0.05,
    "integration_build": 0.10,
    "integration_yaml": 0.05,
    "integration_mcp": 0.10,
    "workflow_e2e": 0.25,
    "workflow_errors": 0.05,
    "shaping_files": 0.0,
    "shaping_python": 0.0,
    "shaping_yaml": 0.0,
    "shaping_registers": 0.0,
    "shaping_builds": 0.0,
}
"""Weight of each part; parts that a task does not ask for are left out and the rest is scaled up."""
VISIBLE_PARTS = tuple(name for name in WEIGHTS if name.startswith("shaping_"))
"""Parts that pay without a hidden input answered rightly."""
STANDALONE_SHARE = 0.5
"""Factor on right outputs of tools that work, but not from the workflow file."""

Report = Mapping[str, Any]


@dataclass(slots=True, kw_only=True)
class Evidence:
    """What the stages of one judgement said, sorted."""

    stages: dict[str, Report] = field(default_factory=dict[str, Report])
    """Stage -> its report, for those that come once."""
    answers: dict[str, Report] = field(default_factory=dict[str, Report])
    """Call id -> report."""
    tools: dict[str, Report] = field(default_factory=dict[str, Report])
    """Function -> what NAT knows of it."""

    is_forged: bool = False
    """Whether something was said twice: the job says everything once, so the package's code has spoken."""

    @classmethod
    def of(cls, output: Report) -> "Evidence":
        """Sort the answer of a `nat_validate` job; what is not of the right shape is left out."""
        evidence = cls()
        items = output.get("stages")
        for item in items if isinstance(items, list) else []:
            if not isinstance(item, dict):
                continue
            stage = str(item.get("stage"))
            if "id" in item:
                place, key = evidence.answers, str(item["id"])
            elif stage == "introspect":
                place, key = evidence.tools, str(item.get("tool"))
            else:
                place, key = evidence.stages, stage
            evidence.is_forged = evidence.is_forged or key in place
            place.setdefault(key, item)
        return evidence

    def passed(self, stage: str) -> bool:
        """Return whether a stage said that it went well."""
        return self.stages.get(stage, {}).get("ok") is True


def empty_parts(spec: AgentSpec) -> dict[str, float]:
    """Return every part that a task asks for, at 0."""
    parts = dict.fromkeys(WEIGHTS, 0.0)
    if not spec.integration.mcp:
        del parts["integration_mcp"]
    if not spec.integration.num_tests:
        del parts["tools_tests"]
    return parts


def shaping_parts(spec: AgentSpec, static: StaticReport) -> dict[str, float]:
    """Return the parts that nothing has to run for; the others are 0."""
    return empty_parts(spec) | {
        "shaping_files": static.files_share,
        "shaping_python": static.python_share,
        "shaping_yaml": static.yaml_share,
    }


def compute_parts(
    spec: AgentSpec,
    cases: Cases,
    static: StaticReport,
    evidence: Evidence,
    file: WorkflowFile,
    findings: list[str],
) -> dict[str, float]:
    """Return the value of every part but the tests'; adds to the findings.

    Args:
        spec: The visible half.
        cases: What was asked, with the right answers.
        static: What the parent saw.
        evidence: What the job said, beside the package's own code.
        file: What was said of the workflow file where that code was not.
        findings: Grows.
    """
    parts = shaping_parts(spec, static)
    is_built = evidence.passed("register") and evidence.passed("build") and file.is_valid
    parts["shaping_registers"] = float(evidence.passed("register"))
    parts["shaping_builds"] = float(is_built)
    right = _tool_shares(spec, cases, evidence, findings)
    has_function = any(right.values())
    runs = _right_runs(cases.e2e, evidence, findings) if is_built and has_function else []
    # A report can be forged by the code that it is about, a right answer of the whole workflow cannot.
    is_running = any(runs)
    factor = 1.0 if is_running else STANDALONE_SHARE
    parts["tools_oracle"] = factor * _mean(right.values())
    parts["tools_errors"] = factor * _mean(_error_shares(spec, cases.errors, evidence, right, findings))
    patterns = [_pattern_share(tool, spec.is_full, static, evidence.tools, findings) for tool in spec.functions]
    shares = [right[tool.name] * pattern for tool, pattern in zip(spec.functions, patterns, strict=True)]
    parts["tools_pattern"] = float(is_running) * _mean(shares)
    parts["integration_build"] = float(is_running) * parts["tools_oracle"]
    is_clean = file.is_clean and evidence.passed("schema") and evidence.passed("options")
    asked = [is_clean and static.yaml_share == 1.0, file.has_options]
    if spec.integration.is_installable:
        asked.append(static.is_installable)
    parts["integration_yaml"] = parts["integration_build"] * _mean(map(float, asked))
    if spec.integration.mcp:
        parts["integration_mcp"] = float(is_running) * _mcp_share(spec, cases, static, evidence, findings)
    if is_running:
        parts["workflow_e2e"] = share_above_constant(runs, [run.output for run in cases.e2e])
        refused = [
            _is_refused(case.output, evidence.answers, f"e2e_error/{i}") for i, case in enumerate(cases.e2e_errors)
        ]
        if not all(refused):
            findings.append(f"workflow: {sum(refused)} of {len(refused)} bad inputs refused with the right exception")
        # Without error cases there is nothing to refuse, and the part follows the outputs.
        parts["workflow_errors"] = min(parts["workflow_e2e"], _mean(map(float, refused)) if refused else 1.0)
    return parts


def _mean(values: Any) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 1.0


def _tool_shares(spec: AgentSpec, cases: Cases, evidence: Evidence, findings: list[str]) -> dict[str, float]:
    """Return the share of hidden inputs that each function answers rightly, above the best constant.

    The lower one of recorded and fresh inputs counts, so knowing old ones by heart does not pay.
    """
    shares: dict[str, float] = {}
    for tool in spec.functions:
        halves: list[list[tuple[bool, Any]]] = [[], []]
        for index, vector in enumerate(cases.calls):
            if vector.tool == tool.name:
                is_right = _is_right(tool, vector, evidence.answers.get(f"call/{index}", {}))
                halves[index >= cases.num_recorded].append((is_right, vector.output))
        right = [is_right for half in halves for is_right, _ in half]
        if not all(right):
            findings.append(f"tool {tool.name}: {sum(right)} of {len(right)} hidden inputs right")
        shares[tool.name] = min(
            (share_above_constant([r for r, _ in half], [output for _, output in half]) for half in halves if half),
            default=0.0,
        )
    return shares


def _is_right(tool: ToolSpec, vector: Vector, report: Report) -> bool:
    return "output" in report and "error" not in report and is_same(vector.output, report["output"], tool.compare)


def _is_refused(name: str, answers: Mapping[str, Report], key: str) -> bool:
    raised = answers.get(key, {}).get("raised")
    return isinstance(raised, list) and name in raised


def _error_shares(
    spec: AgentSpec, errors: Sequence[Vector], evidence: Evidence, right: Mapping[str, float], findings: list[str]
) -> list[float]:
    """Return, for each function, how much of what must be refused is; never more than its right outputs."""
    by_tool: dict[str, list[bool]] = defaultdict(list)
    for index, vector in enumerate(errors):
        by_tool[vector.tool].append(_is_refused(vector.raises, evidence.answers, f"error/{index}"))
    for name, refused in by_tool.items():
        if not all(refused):
            findings.append(
                f"tool {name}: {sum(refused)} of {len(refused)} bad inputs refused with the right exception"
            )
    return [min(right[tool.name], _mean(map(float, by_tool[tool.name]))) for tool in spec.functions]


def _pattern_share(
    tool: ToolSpec, is_full: bool, static: StaticReport, tools: Mapping[str, Report], findings: list[str]
) -> float:
    """Return the share of NAT's patterns that a function follows: what NAT itself knows of it, and hints."""
    known = tools.get(tool.name, {})
    inputs = known.get("inputs")
    listed = inputs.get("properties") if isinstance(inputs, dict) else None
    properties: dict[str, Any] = listed if isinstance(listed, dict) else {}
    wanted: dict[str, Any] = tool.inputs["properties"]
    types = {name: schema.get("type") for name, schema in properties.items() if isinstance(schema, dict)}
    checks = {
        "must have a description": not is_full or bool(str(known.get("description", "")).strip()),
        f"must take {', '.join(wanted)}": list(properties) == list(wanted),
        "must have the documented input types": types == {name: schema["type"] for name, schema in wanted.items()},
        f"must return {tool.returns}": str(known.get("output")).partition("[")[0] == tool.returns.partition("[")[0],
        "must annotate every argument and return": static.hint_share == 1.0,
        "must refuse bad input": static.has_raise or not tool.errors,
    }
    findings += [f"pattern: {tool.name} {text}" for text, holds in checks.items() if not holds]
    return _mean(map(float, checks.values()))


def _right_runs(runs: Sequence[EndToEnd], evidence: Evidence, findings: list[str]) -> list[bool]:
    is_right: list[bool] = []
    for index, run in enumerate(runs):
        report = evidence.answers.get(f"e2e/{index}", {})
        is_right.append("output" in report and "error" not in report and is_same(run.output, report["output"]))
    if not all(is_right):
        findings.append(f"workflow: {sum(is_right)} of {len(is_right)} hidden runs right")
    return is_right


def _mcp_share(spec: AgentSpec, cases: Cases, static: StaticReport, evidence: Evidence, findings: list[str]) -> float:
    """Return the share of calls over MCP that give the right text; nothing without the start script."""
    served = evidence.stages.get("mcp", {}).get("tools")
    names = {str(item.get("name")) for item in served if isinstance(item, dict)} if isinstance(served, list) else set()
    missing = [name for name in spec.integration.mcp if name not in names]
    if missing:
        findings.append(f"mcp: {', '.join(missing)} not served; {evidence.stages.get('mcp', {}).get('error', '')}")
    is_right: list[bool] = []
    for index, vector in enumerate(cases.mcp):
        text = evidence.answers.get(f"mcp/{index}", {}).get("text")
        is_right.append(vector.tool in names and is_same_text(vector.output, text, spec.tool(vector.tool).compare))
    if not all(is_right):
        findings.append(f"mcp: {sum(is_right)} of {len(is_right)} calls right")
    share = share_above_constant(is_right, [vector.output for vector in cases.mcp])
    return share if static.script and static.yaml_share > 0 else 0.0
