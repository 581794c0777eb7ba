"""Judges a NAT tool package: static checks here, everything that runs in one sandbox job, the verdict here again.

Expected values never enter the sandbox. What comes back is evidence: outputs are compared here, and the
hidden tests' results, which the code under test could forge, count no more than the outputs do.
"""

from collections.abc import Mapping
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig, SandboxBackend, SandboxConfig
from skyrl_nat.environments.nat_agent.payload import AgentSpec, HiddenSpec, parse_hidden, parse_spec
from skyrl_nat.environments.nat_agent.rewards import (
    WEIGHTS,
    compute_parts,
    empty_parts,
    static_parts,
)
from skyrl_nat.environments.nat_agent.static_checks import StaticReport, check_files
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.sandbox.base import Sandbox, SandboxJob
from skyrl_nat.sandbox.bubblewrap import BubblewrapSandbox
from skyrl_nat.sandbox.process import ProcessSandbox
from skyrl_nat.types import RewardResult, Task


def make_sandbox(config: SandboxConfig) -> BubblewrapSandbox | ProcessSandbox:
    """Return the sandbox that the config names; starts nothing."""
    return BubblewrapSandbox(config) if config.backend is SandboxBackend.bubblewrap else ProcessSandbox(config)


class NatAgentValidator:
    """Implements `rewards.validators.Validator`; owns its sandbox."""

    def __init__(self, config: EnvironmentConfig, sandbox: Sandbox | None = None) -> None:
        """Make the sandbox; its servers start with the first validation.

        Args:
            config: Section `environment`.
            sandbox: One to use in place of the config's; closed with this validator all the same.
        """
        self._job_timeout_s = config.sandbox.job_timeout_s
        self._rubric = make_rubric(WEIGHTS, config.reward_weights)
        self._sandbox = sandbox if sandbox is not None else make_sandbox(config.sandbox)

    def validate(self, task: Task, artifact: dict[str, Any]) -> RewardResult:
        """Return the reward of `artifact["files"]`.

        Raises:
            DataError: The task's hidden part is not whole.
            SandboxError: The sandbox failed; the answer is not to blame.
        """
        spec, hidden = parse_spec(task.payload), parse_hidden(task.hidden)
        static = check_files(spec, clean_files(artifact))
        if not static.module or static.python_share == 0.0:
            return self._rubric.score(static_parts(static), findings=static.findings)
        arguments = _arguments(spec, hidden, static)
        result = self._sandbox.run(
            SandboxJob(
                kind="nat_validate",
                files=static.files,
                arguments=arguments,
                timeout_s=self._job_timeout_s,
            )
        )
        if result.status != "done":
            parts = static_parts(static) if result.status == "timeout" else empty_parts()
            findings = [f"no complete result: the job {result.status}", *static.findings]
            return self._rubric.score(parts, findings=findings)
        parts, findings = compute_parts(spec, hidden, static, result.output)
        return self._rubric.score(parts, findings=[*static.findings, *findings])

    def close(self) -> None:
        """End the sandbox; safe to call twice."""
        self._sandbox.close()


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


def _arguments(spec: AgentSpec, hidden: HiddenSpec, static: StaticReport) -> dict[str, Any]:
    """Return the job's arguments: inputs only, never an expected output."""
    calls = [{"id": f"vector/{i}", "tool": v.tool, "input": v.input} for i, v in enumerate(hidden.vectors)]
    calls += [{"id": f"error/{i}", "tool": v.tool, "input": v.input} for i, v in enumerate(hidden.errors)]
    return job_arguments(spec, static) | {
        "calls": calls,
        "e2e": [{"id": f"e2e/{i}", "input": v.input} for i, v in enumerate(hidden.e2e)],
        "test_files": hidden.test_files,
    }


def job_arguments(spec: AgentSpec, static: StaticReport) -> dict[str, Any]:
    """Return what every `nat_validate` job needs to find its way in the files."""
    return {
        "source_root": static.source_root,
        "module": static.module,
        "config": static.config if static.yaml_share > 0 else "",
        "tools": [tool.name for tool in spec.functions],
        "calls": [],
        "e2e": [],
        "test_files": {},
    }
