"""A pool of fork servers: one job at a time on each, replaced where they fail; the base of all back ends."""

import logging
import queue
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, ClassVar

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult
from skyrl_nat.sandbox.self_test import SelfTest
from skyrl_nat.sandbox.server_process import Launch, ServerProcess
from skyrl_nat.strict_json import parse_json

_PROBE_TIMEOUT_S = 10.0
_logger = logging.getLogger(__name__)


class ForkServerSandbox:
    """Runs jobs in forks of preloaded servers; back ends differ in how a server is started."""

    is_confined: ClassVar[bool] = True
    """Whether every new server has to show that its jobs are confined."""
    advice: ClassVar[str] = ""
    """What to do where they are not."""

    def __init__(self, config: SandboxConfig, make_launch: Callable[[], Launch]) -> None:
        """Keep the settings; servers start with the first job or by `start`.

        Args:
            config: Section `environment.sandbox`.
            make_launch: How to start a new server.
        """
        self._config = config
        self._make_launch = make_launch
        self._slots: queue.Queue[ServerProcess | None] = queue.Queue()
        for _ in range(config.num_servers):
            self._slots.put(None)
        self._is_closed = False
        self.num_restarts = 0
        """Servers that had to be replaced."""

    def start(self) -> dict[str, Any]:
        """Start one server now and return what it says of itself (`preload_s`, `rss_mib`, `pid`).

        Raises:
            SandboxError: The sandbox cannot work on this machine; the message says why.
        """
        slot = self._take()
        try:
            slot = self._alive(slot)
            return slot.info | {"pid": slot.pid}
        except SandboxError as error:
            raise SandboxError(f"{error}. {self.advice}" if self.advice else str(error)) from error
        finally:
            self._give(slot)

    def run(self, job: SandboxJob) -> SandboxResult:
        """Run a job in a fresh fork; blocks while all servers are busy.

        Raises:
            SandboxError: The sandbox itself failed, or its machine was too busy to run the job, twice in a row.
        """
        refusal = _refusal(job)
        if refusal:
            return SandboxResult(status="refused", output={}, log=refusal, wall_s=0.0)
        slot = self._take()
        try:
            for attempt in (1, 2):
                try:
                    slot = self._alive(slot)
                    return self._ask(slot, job)
                except SandboxError:
                    if attempt == 2 or self._is_closed:
                        raise
                    _logger.warning("a sandbox failed and the job is tried again", exc_info=True)
            raise SandboxError("unreachable")
        finally:
            self._give(slot)

    def close(self) -> None:
        """End all processes; servers in use end with their job. Safe to call twice."""
        self._is_closed = True
        while True:
            try:
                slot = self._slots.get_nowait()
            except queue.Empty:
                break
            if slot is not None:
                slot.kill()
        self._slots.put(None)  # whoever waits for a slot finds out

    def _ask(self, slot: ServerProcess, job: SandboxJob) -> SandboxResult:
        timeout_s = job.timeout_s or self._config.job_timeout_s
        message = {"kind": job.kind, "files": job.files, "arguments": job.arguments, "timeout_s": timeout_s}
        try:
            answer = slot.ask(message, timeout_s=timeout_s, max_output_bytes=self._config.max_output_bytes)
        except SandboxError:
            slot.kill()
            raise
        result = _result(answer)
        if result.status == "starved":
            raise SandboxError(
                f"a machine must let a job run within 3 times its {timeout_s:.1f} s, but {job.kind!r} waited "
                f"{result.cpu_wait_s:.1f} of {result.wall_s:.1f} s for a CPU. Use fewer sandboxes, or more cores"
            )
        return result

    def _take(self) -> ServerProcess | None:
        slot = self._slots.get()
        if self._is_closed:
            self._slots.put(slot)
            raise SandboxError("a sandbox must be open to run a job, but it is closed. Make a new one")
        return slot

    def _give(self, slot: ServerProcess | None) -> None:
        if self._is_closed and slot is not None:
            slot.kill()
            slot = None
        self._slots.put(slot)

    def _alive(self, slot: ServerProcess | None) -> ServerProcess:
        if slot is not None and slot.is_alive:
            return slot
        if slot is not None:
            slot.kill()
            self.num_restarts += 1
        server = ServerProcess(self._make_launch())
        try:
            if self.is_confined:
                self._test(server)
        except SandboxError:
            server.kill()
            raise
        return server

    def _test(self, server: ServerProcess) -> None:
        """Raise SandboxError where a job could see or do what it must not."""
        with SelfTest() as test:
            job = SandboxJob(kind="probe", files={}, arguments=test.arguments(), timeout_s=_PROBE_TIMEOUT_S)
            result = self._ask(server, job)
            if result.status != "done" or not result.output.get("report"):
                raise SandboxError(
                    f"a job must be able to start in the sandbox, but: {result.log.strip()}. Try another profile"
                )
            faults = test.faults(result.output["report"])
        if faults:
            raise SandboxError(f"a job in the sandbox must be confined, but {'; '.join(faults)}. Try another profile")


def _refusal(job: SandboxJob) -> str:
    for name in job.files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or len(name) > 200:
            return f"file name {name[:80]!r} must be a relative path inside the work folder"
    return ""


def _result(answer: dict[str, Any]) -> SandboxResult:
    status, output, log = str(answer["status"]), {}, str(answer["log"])
    if status == "done":
        try:
            output = parse_json(answer["output"])
        except (ValueError, RecursionError) as error:
            status, log = "died", f"{log}\n[the answer was no JSON: {type(error).__name__}]"
        if not isinstance(output, dict):
            status, output = "died", {}
    return SandboxResult(
        status=status,
        output=output,
        log=log,
        wall_s=float(answer.get("wall_s", 0.0)),
        cpu_wait_s=float(answer.get("cpu_wait_s", 0.0)),
    )
