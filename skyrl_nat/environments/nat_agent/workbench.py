"""Where an episode's checks, tests and shell commands run: one sandbox, shared by the environments of a worker."""

import threading
from typing import Any

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.validator import ODDITIES
from skyrl_nat.environments.nat_agent.visible import own_tests_report, visible_report
from skyrl_nat.environments.nat_agent.workspace import BashResult
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import Sandbox, SandboxJob
from skyrl_nat.sandbox.profiles import open_sandbox


class Workbench:
    """Runs what the policy asks for; every job starts from the files alone. Thread-safe."""

    def __init__(self, config: EnvironmentConfig, sandbox: Sandbox | None = None) -> None:
        """Keep the settings; the sandbox is made with the first job.

        Args:
            config: Section `environment`.
            sandbox: One to use in place of the config's; closed with this workbench all the same.
        """
        self._config = config
        self._sandbox = sandbox
        self._lock = threading.Lock()

    def check(self, spec: AgentSpec, files: dict[str, str]) -> str:
        """Return what the visible checks say.

        Raises:
            SandboxError: The sandbox failed.
        """
        try:
            return visible_report(spec, files, self._open())
        except ODDITIES as error:
            return f"the package cannot be read: {type(error).__name__}"

    def run_tests(self, spec: AgentSpec, files: dict[str, str], paths: tuple[str, ...] = ()) -> str:
        """Return how the package's own tests went, all of them or those of some files.

        Raises:
            SandboxError: The sandbox failed.
        """
        try:
            return own_tests_report(spec, files, self._open(), paths)
        except ODDITIES as error:
            return f"the package cannot be read: {type(error).__name__}"

    def run_bash(self, files: dict[str, str], command: str) -> BashResult:
        """Run a shell command on the files.

        Raises:
            SandboxError: The sandbox failed.
        """
        result = self._open().run(SandboxJob(kind="bash", files=files, arguments={"command": command}))
        if result.status == "refused":
            raise SandboxError(f"the sandbox must take every workspace, it refused one: {result.log}. Report it")
        if result.status != "done":
            return BashResult(end=result.status)
        return _bash_result(result.output)

    def close(self) -> None:
        """End the sandbox; safe to call twice."""
        with self._lock:
            if self._sandbox is not None:
                self._sandbox.close()

    def _open(self) -> Sandbox:
        with self._lock:
            if self._sandbox is None:
                self._sandbox = open_sandbox(self._config.sandbox)
            return self._sandbox


def _bash_result(output: dict[str, Any]) -> BashResult:
    """Return a job's answer as a record; it was made beside untrusted code and may have any shape."""
    files, code, left_out = output.get("files"), output.get("exit_code"), output.get("left_out")
    return BashResult(
        end=str(output.get("end", "died")),
        output=str(output.get("output", "")),
        exit_code=code if isinstance(code, int) else None,
        files={str(path): str(text) for path, text in files.items()} if isinstance(files, dict) else None,
        left_out=tuple(map(str, left_out)) if isinstance(left_out, list) else (),
    )
