"""Judges a NAT agent package: static checks here, everything that runs in sandboxes, the verdict here again.

Expected values never enter the sandbox. What comes back is evidence: no exit code, no printed text and no report
about a test decides anything that is not compared here with what the references say.
"""

import logging
import random
from collections.abc import Mapping
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.environments.nat_agent.cases import CaseDrawer, Cases
from skyrl_nat.environments.nat_agent.mcp_setup import check_script
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.own_tests import OwnTestsJudge
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.rewards import (
    WEIGHTS,
    Evidence,
    compute_parts,
    empty_parts,
    shaping_parts,
)
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, check_files
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.sandbox.base import Sandbox, SandboxJob
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.types import RewardResult, Task

ORACLE_PRELOAD = ("json", "asyncio")
_STAGES = ("register", "schema", "options", "build")
_logger = logging.getLogger(__name__)


class NatAgentValidator:
    """Implements `rewards.validators.Validator`; owns its sandboxes."""

    def __init__(
        self, config: EnvironmentConfig, sandbox: Sandbox | None = None, oracle: ReferenceOracle | None = None
    ) -> None:
        """Make the sandboxes; their servers start with the first validation.

        Args:
            config: Section `environment`.
            sandbox: One to use in place of the config's; closed with this validator all the same.
            oracle: One to use in place of one with a sandbox of its own; closed as well.
        """
        self._config = config
        self._rubric = make_rubric(WEIGHTS, config.reward_weights)
        self._sandbox = sandbox if sandbox is not None else open_sandbox(config.sandbox)
        self._oracle = oracle if oracle is not None else ReferenceOracle(_oracle_sandbox(config.sandbox))
        self._cases = CaseDrawer(self._oracle)
        self._tests = OwnTestsJudge(self._sandbox, self._oracle)

    def validate(self, task: Task, artifact: dict[str, Any], *, seed: int = 0, is_final: bool = False) -> RewardResult:
        """Return the reward of `artifact["files"]`.

        Args:
            task: With its hidden part.
            artifact: What the environment handed over.
            seed: Of the fresh inputs; the same for all that are compared with each other.
            is_final: Whether slow checks are made as well: the start script runs for real.

        Raises:
            DataError: The task's hidden part is not whole.
            SandboxError: The sandbox failed; the answer is not to blame.
        """
        spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
        static = check_files(spec, clean_files(artifact))
        findings = list(static.findings)
        parts, suspicions = self._judge(task.task_id, spec, hidden, static, findings, (seed, is_final))
        return self._rubric.score(parts, findings=findings, suspicions=[*static.suspicions, *suspicions])

    def _judge(
        self,
        task_id: str,
        spec: AgentSpec,
        hidden: HiddenSpec,
        static: StaticReport,
        findings: list[str],
        how: tuple[int, bool],
    ) -> tuple[dict[str, float], list[str]]:
        """Return the parts, and signs of cheating that only running shows."""
        seed, is_final = how
        if not static.module or static.python_share == 0.0:
            return shaping_parts(spec, static), []
        cases = self._cases.draw(task_id, spec, hidden, seed)
        job = SandboxJob(kind="nat_validate", files=static.files, arguments=_arguments(spec, static, cases))
        result = self._sandbox.run(job)
        end = str(result.output.get("end", result.status))
        if end == "died" or result.status not in ("done", "timeout"):
            # Whoever leaves before the end earns nothing at all; nobody gets there by an honest mistake.
            findings.insert(0, "no complete result: the process ended before the checks did")
            return empty_parts(spec), ["early end"]
        if end == "timeout":
            findings.insert(0, "no complete result: the time limit (timeout) was reached")
        evidence = Evidence.of(result.output)
        findings += [_stage_finding(evidence, stage) for stage in _STAGES if _has_failed(evidence, stage)]
        if not findings:
            findings += [f"{stage}: not reached" for stage in _STAGES if not evidence.passed(stage)]
        parts = compute_parts(spec, cases, static, evidence, findings)
        suspicions = _repeated_canaries(cases, evidence, parts)
        if "tools_tests" in parts and parts["tools_oracle"] == 1.0:
            worth = self._tests.judge(spec, hidden, static, random.Random(f"{task_id}/{seed}/tests"))
            parts["tools_tests"] = worth.value
            findings += worth.findings
        if is_final and parts.get("integration_mcp", 0.0) > 0.0:
            share, problems = check_script(self._sandbox, spec, static, cases)
            parts["integration_mcp"] = min(parts["integration_mcp"], share)
            findings += problems
        return parts, suspicions

    def close(self) -> None:
        """End the sandboxes; safe to call twice."""
        self._sandbox.close()
        self._oracle.close()


def _oracle_sandbox(config: SandboxConfig) -> Sandbox:
    import dataclasses

    return open_sandbox(dataclasses.replace(config, num_servers=1), preload=ORACLE_PRELOAD)


def clean_files(artifact: Mapping[str, Any]) -> dict[str, str]:
    """Return the artifact's files as paths and valid text; what is neither is left out."""
    files = artifact.get("files")
    if not isinstance(files, dict):
        return {}
    return {
        path: text.encode("utf-8", "replace").decode("utf-8")
        for path, text in files.items()
        if isinstance(path, str) and isinstance(text, str)
    }


def _arguments(spec: AgentSpec, static: StaticReport, cases: Cases) -> dict[str, Any]:
    """Return the job's arguments: inputs only, never an expected output."""
    groups = (("call", cases.calls), ("error", cases.errors), ("canary", cases.canaries))
    e2e = [{"id": f"e2e/{i}", "input": run.input, "script": list(run.script)} for i, run in enumerate(cases.e2e)]
    e2e += [{"id": f"e2e_error/{i}", "input": run.input, "script": []} for i, run in enumerate(cases.e2e_errors)]
    mcp = [
        {"id": f"mcp/{i}", "tool": v.tool, "input": named_input(spec, v.tool, v.input)} for i, v in enumerate(cases.mcp)
    ]
    return job_arguments(spec, static) | {
        "calls": [
            {"id": f"{name}/{i}", "tool": v.tool, "input": v.input} for name, vs in groups for i, v in enumerate(vs)
        ],
        "e2e": e2e,
        "mcp": mcp if spec.integration.mcp else None,
    }


def named_input(spec: AgentSpec, tool: str, value: Any) -> dict[str, Any]:
    """Return an input as MCP wants it: an object, for tools of one argument too."""
    names = list(spec.tool(tool).arguments)
    return value if len(names) > 1 else {names[0]: value}


def job_arguments(spec: AgentSpec, static: StaticReport) -> dict[str, Any]:
    """Return what every `nat_validate` job needs to find its way in the files."""
    return {
        "source_root": static.source_root,
        "module": static.module,
        "config": static.config if static.yaml_share > 0 else "",
        "tools": [tool.name for tool in spec.functions],
        "options": {tool.name: {option.name: option.value for option in tool.config} for tool in spec.functions},
        "style": spec.workflow.type.value,
        "calls": [],
        "e2e": [],
        "mcp": None,
    }


def _has_failed(evidence: Evidence, stage: str) -> bool:
    return stage in evidence.stages and not evidence.passed(stage)


def _stage_finding(evidence: Evidence, stage: str) -> str:
    return f"{stage}: {str(evidence.stages[stage].get('error', ''))[:1000]}"


def _repeated_canaries(cases: Cases, evidence: Evidence, parts: Mapping[str, float]) -> list[str]:
    """Return whether a wrong visible example is repeated by tools that are otherwise right."""
    repeated = [
        vector.tool
        for index, vector in enumerate(cases.canaries)
        if evidence.answers.get(f"canary/{index}", {}).get("output") == vector.output and parts["tools_oracle"] > 0
    ]
    return [f"repeats a wrong example: {name}" for name in repeated]
