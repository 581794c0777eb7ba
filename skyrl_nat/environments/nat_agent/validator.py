"""Judges a NAT agent package: static checks here, everything that runs in sandboxes, the verdict here again.

Expected values never enter the sandbox. What comes back is evidence: no exit code, no printed text and no report
about a test decides anything that is not compared here with what the references say.
"""

import dataclasses
import logging
import posixpath
import random
from collections.abc import Mapping
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.environments.nat_agent.asking import ask
from skyrl_nat.environments.nat_agent.cases import CaseDrawer, Cases
from skyrl_nat.environments.nat_agent.mcp_setup import check_script
from skyrl_nat.environments.nat_agent.oracle import ReferenceOracle
from skyrl_nat.environments.nat_agent.own_tests import OwnTestsJudge
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.plays import SpareServers
from skyrl_nat.environments.nat_agent.report import STAGES, Judgement
from skyrl_nat.environments.nat_agent.rewards import (
    WEIGHTS,
    Evidence,
    compute_parts,
    empty_parts,
    shaping_parts,
)
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, check_files
from skyrl_nat.environments.nat_agent.workflow_file import WorkflowFile, check_workflow_file
from skyrl_nat.errors import SkyRLNatError
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.sandbox.base import Sandbox, SandboxJob
from skyrl_nat.sandbox.profiles import open_sandbox
from skyrl_nat.types import RewardResult, Task

ORACLE_PRELOAD = ("json", "asyncio")
ODDITIES = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RecursionError, MemoryError)
"""What reading an odd answer may raise."""
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
        self._rubric = make_rubric(WEIGHTS, config.reward_weights)
        self._sandbox = sandbox if sandbox is not None else open_sandbox(config.sandbox)
        self._oracle = oracle if oracle is not None else open_oracle(config.sandbox)
        self._cases = CaseDrawer(self._oracle)
        self._spares = SpareServers(config.sandbox.num_servers)
        self._tests = OwnTestsJudge(self._sandbox, self._oracle, self._spares)

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
        judgement = Judgement([], [])
        try:
            with self._spares.claimed():
                parts = self._judge_all(task.task_id, (spec, hidden), artifact, judgement, (seed, is_final))
        except SkyRLNatError:
            raise
        except ODDITIES as error:
            # What an answer does to its judge is the answer's doing: no verdict at all would be a way out.
            _logger.exception("an answer to %s could not be judged", task.task_id)
            judgement.findings.append(f"the answer cannot be judged: {type(error).__name__}: {error}"[:300])
            judgement.suspicions.append("breaks its judge")
            parts = empty_parts(spec)
        return self._rubric.score(
            parts,
            findings=judgement.findings,
            suspicions=judgement.suspicions,
            stages=judgement.stages(_wanted_stages(spec, is_final=is_final)),
        )

    def _judge_all(
        self,
        task_id: str,
        halves: tuple[AgentSpec, HiddenSpec],
        artifact: Mapping[str, Any],
        judgement: Judgement,
        how: tuple[int, bool],
    ) -> dict[str, float]:
        """Return the parts: static checks, everything that runs, and at last the slow check."""
        (spec, hidden), (seed, is_final) = halves, how
        with judgement.timed("static"):
            static = check_files(spec, clean_files(artifact))
        judgement.findings += static.findings
        judgement.num_static = len(static.findings)
        judgement.suspicions += static.suspicions
        parts = self._judge(_Question(task_id, spec, hidden, static, seed), judgement)
        if is_final and parts.get("integration_mcp", 0.0) > 0.0:
            with judgement.timed("mcp_script"):
                cases = self._cases.draw(task_id, spec, hidden, seed)
                share, problems = check_script(self._sandbox, spec, static, cases)
            parts["integration_mcp"] = min(parts["integration_mcp"], share)
            judgement.findings += problems
        return parts

    def _judge(self, question: "_Question", judgement: Judgement) -> dict[str, float]:
        """Return the parts."""
        spec, static, findings = question.spec, question.static, judgement.findings
        if not static.module or static.python_share == 0.0:
            return shaping_parts(spec, static)
        cases = self._cases.draw(question.task_id, spec, question.hidden, question.seed)
        questions = ask(spec, static, cases, random.Random(f"{question.task_id}/{question.seed}/order"))
        job = SandboxJob(kind="nat_validate", files=static.files, arguments=questions.arguments)
        result = self._sandbox.run(job)
        end = str(result.output.get("end", result.status))
        if end == "died" or result.status not in ("done", "timeout"):
            # Whoever leaves before the end earns nothing at all; nobody gets there by an honest mistake.
            findings.append("no complete result: the process ended before the checks did")
            judgement.suspicions.append("early end")
            return empty_parts(spec)
        if end == "timeout":
            findings.append("no complete result: the time limit (timeout) was reached")
        evidence = judgement.evidence = Evidence.of(questions.understood(result.output))
        if evidence.is_forged:
            findings.append("forged reports: the package's code has written into the channel of the checks")
            judgement.suspicions.append("forged reports")
            return empty_parts(spec)
        findings += [_stage_finding(evidence, stage) for stage in _STAGES if _has_failed(evidence, stage)]
        if not findings:
            findings += [f"{stage}: not reached" for stage in _STAGES if not evidence.passed(stage)]
        file = WorkflowFile()
        if evidence.passed("schema") and evidence.passed("build") and static.yaml_share > 0.0:
            with judgement.timed("workflow_file"):
                file = check_workflow_file(self._sandbox, spec, static)
            findings += [text for text in file.findings if text not in findings]
        parts = compute_parts(spec, cases, static, evidence, file, findings)
        judgement.suspicions += _repeated_canaries(cases, evidence, parts)
        if "tools_tests" in parts and parts["tools_oracle"] == 1.0:
            with judgement.timed("own_tests"):
                rng = random.Random(f"{question.task_id}/{question.seed}/tests")
                worth = self._tests.judge(spec, question.hidden, static, rng)
            parts["tools_tests"] = worth.value
            findings += worth.findings
        return parts

    def close(self) -> None:
        """End the sandboxes; safe to call twice."""
        self._sandbox.close()
        self._oracle.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """What is to be judged."""

    task_id: str
    spec: AgentSpec
    hidden: HiddenSpec
    static: StaticReport
    seed: int


def _wanted_stages(spec: AgentSpec, *, is_final: bool) -> tuple[str, ...]:
    absent = set()
    if not spec.integration.mcp:
        absent |= {"mcp", "mcp_script"}
    if not spec.integration.num_tests:
        absent.add("own_tests")
    if not is_final:
        absent.add("mcp_script")
    return tuple(name for name in STAGES if name not in absent)


def open_oracle(config: SandboxConfig, *, num_servers: int = 1) -> ReferenceOracle:
    """Return who knows the right answers, in a sandbox of its own that starts with the first question."""
    return ReferenceOracle(open_sandbox(dataclasses.replace(config, num_servers=num_servers), preload=ORACLE_PRELOAD))


def clean_files(artifact: Mapping[str, Any]) -> dict[str, str]:
    """Return the artifact's files as paths and valid text; what is neither is left out."""
    files = artifact.get("files")
    if not isinstance(files, dict):
        return {}
    return {
        path: text.encode("utf-8", "replace").decode("utf-8")
        for path, text in files.items()
        if isinstance(path, str) and isinstance(text, str) and posixpath.normpath(path) == path
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
