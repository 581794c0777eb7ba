"""What the policy may ask for in an episode: the visible stages and the visible examples, as short text."""

import json
import threading
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.nat_agent.compare import is_same
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.static_checks import check_files
from skyrl_nat.environments.nat_agent.validator import clean_files, job_arguments, make_sandbox
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

_STAGES = ("register", "schema", "options", "build")


class PackageChecker:
    """Runs the visible checks; one per environment worker, shared by its environments. Thread-safe."""

    def __init__(self, config: EnvironmentConfig, sandbox: Sandbox | None = None) -> None:
        """Keep the settings; the sandbox is made with the first check."""
        self._config = config
        self._sandbox = sandbox
        self._lock = threading.Lock()

    def check(self, spec: AgentSpec, files: dict[str, str]) -> str:
        """Return a report of at most a few lines.

        Raises:
            SandboxError: The sandbox failed.
        """
        static = check_files(spec, clean_files({"files": files}))
        if not static.module or not static.config or static.python_share == 0 or static.yaml_share == 0:
            return "\n".join(static.findings)
        examples = [(tool, example) for tool in spec.functions for example in tool.examples]
        calls = [{"id": str(i), "tool": tool.name, "input": ex.input} for i, (tool, ex) in enumerate(examples)]
        arguments = job_arguments(spec, static) | {"calls": calls}
        job = SandboxJob(kind="nat_validate", files=static.files, arguments=arguments)
        result = self._open().run(job)
        if result.status != "done" or result.output.get("end") != "done":
            why = result.output.get("end", result.status)
            return f"no complete result ({why}): the package must not exit or loop"
        lines = list(static.findings)
        reports = [item for item in result.output["stages"] if isinstance(item, dict)]
        for item in reports:
            if item.get("stage") in _STAGES:
                lines.append(f"{item['stage']}: " + ("ok" if item.get("ok") is True else str(item.get("error"))[:300]))
        answers = {str(item.get("id")): item for item in reports if item.get("stage") == "call"}
        for index, (tool, example) in enumerate(examples):
            lines.append(_example_line(tool.name, example.input, example.output, answers.get(str(index), {})))
        return "\n".join(lines)

    def close(self) -> None:
        """End the sandbox; safe to call twice."""
        with self._lock:
            if self._sandbox is not None:
                self._sandbox.close()

    def _open(self) -> Sandbox:
        with self._lock:
            if self._sandbox is None:
                self._sandbox = make_sandbox(self._config.sandbox)
            return self._sandbox


def _example_line(name: str, value: Any, expected: Any, report: dict[str, Any]) -> str:
    call = f"{name}({json.dumps(value)})"
    if "output" not in report:
        return f"{call}: {str(report.get('error', 'not called'))[:200]}"
    if is_same(expected, report["output"]):
        return f"{call}: ok"
    return f"{call}: expected {json.dumps(expected)}, got {json.dumps(report['output'])[:200]}"
