"""What the policy may ask for in an episode: the visible stages and examples, and its own tests, as short text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from skyrl_nat.environments.nat_agent.asking import job_arguments
from skyrl_nat.environments.nat_agent.compare import is_same
from skyrl_nat.environments.nat_agent.own_tests import find_failures
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.plays import run_own_tests
from skyrl_nat.environments.nat_agent.rewards import Evidence
from skyrl_nat.environments.nat_agent.static_checks import check_files
from skyrl_nat.environments.nat_agent.validator import clean_files
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

MAX_TEXT_CHARS = 300
_STAGES = ("register", "schema", "options", "build", "mcp")


def visible_report(spec: AgentSpec, files: dict[str, str], sandbox: Sandbox) -> str:
    """Return what the visible checks say: files, registration, workflow file, build, examples; a line each.

    Raises:
        SandboxError: The sandbox failed.
    """
    static = check_files(spec, clean_files({"files": files}))
    lines = list(static.findings)
    if not static.module or not static.config or static.python_share == 0 or static.yaml_share == 0:
        return "\n".join(lines)
    examples = [(tool, example) for tool in spec.functions for example in tool.examples]
    arguments = job_arguments(spec, static) | {
        "calls": [{"id": str(i), "tool": tool.name, "input": ex.input} for i, (tool, ex) in enumerate(examples)],
        "mcp": [] if spec.integration.mcp else None,
    }
    result = sandbox.run(SandboxJob(kind="nat_validate", files=static.files, arguments=arguments))
    if result.status != "done" or result.output.get("end") != "done":
        why = result.output.get("end", result.status)
        return "\n".join([*lines, f"no complete result ({why}): the package must neither exit nor loop"])
    evidence = Evidence.of(result.output)
    for stage in _STAGES:
        if stage in evidence.stages:
            error = str(evidence.stages[stage].get("error"))[:MAX_TEXT_CHARS]
            lines.append(f"{stage}: {'ok' if evidence.passed(stage) else error}")
    for index, (tool, example) in enumerate(examples):
        report = evidence.answers.get(str(index), {})
        lines.append(_example_line(f"{tool.name}({json.dumps(example.input)})", example.output, report, tool.compare))
    return "\n".join(lines)


def own_tests_report(spec: AgentSpec, files: dict[str, str], sandbox: Sandbox, paths: Sequence[str] = ()) -> str:
    """Return how the package's own tests went: a count, and what the first failures say.

    Args:
        spec: The task.
        files: The workspace.
        sandbox: Where they run.
        paths: Only these files; empty for all.

    Raises:
        SandboxError: The sandbox failed.
    """
    static = check_files(spec, clean_files({"files": files}))
    wanted = [test for test in static.tests if not paths or test.partition("::")[0] in paths]
    if not wanted:
        return "no tests found: write functions test_* in files tests/test_*.py"
    if not static.module:
        return "\n".join(static.findings)
    reports = run_own_tests(sandbox, spec, static, static.files, None, is_verbose=True)
    failures = find_failures(reports, wanted)
    lines = [f"{len(wanted) - len(failures)} of {len(wanted)} tests pass"]
    lines += [f"{test}: {text[-2 * MAX_TEXT_CHARS :]}" for test, text in failures.items()]
    return "\n".join(lines)


def _example_line(call: str, expected: Any, report: Mapping[str, Any], rule: Mapping[str, Any]) -> str:
    if "output" not in report:
        return f"{call}: {str(report.get('error', 'not called'))[:MAX_TEXT_CHARS]}"
    if is_same(expected, report["output"], rule):
        return f"{call}: ok"
    return f"{call}: expected {json.dumps(expected)}, got {json.dumps(report['output'])[:MAX_TEXT_CHARS]}"
