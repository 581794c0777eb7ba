"""The parent's side of a fork server: start, one job at a time, deadlines, restart.

The parent never trusts an answer beyond its shape: sizes are bounded, parsing failures make the job
`died`, and a server that does not answer in time is killed with everything in it.
"""

import json
import logging
import os
import queue
import select
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from skyrl_nat.config.environment import SandboxConfig
from skyrl_nat.errors import ConfigError, SandboxError
from skyrl_nat.sandbox.base import SandboxJob, SandboxResult

INSIDE_FOLDER = Path(__file__).parent / "inside"
PRELOAD = (
    "nat.runtime.loader",
    "nat.builder.workflow_builder",
    "nat.plugin_api",
    "nat.test",
    "pytest",
)
"""What every NAT job needs; imported once by each server."""
PYTHON_VARIABLE = "SKYRL_NAT_SANDBOX_PYTHON"
START_TIMEOUT_S = 180.0
ANSWER_GRACE_S = 10.0
"""Seconds after a job's own limit in which its server must have answered."""

_logger = logging.getLogger(__name__)
_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")
"""Starts every server: bubblewrap dies with the thread that started it, and callers' threads are short-lived."""


def find_python(config: SandboxConfig) -> Path:
    """Return the interpreter of the sandbox's virtual environment.

    Raises:
        ConfigError: There is none.
    """
    beside_package = Path(__file__).resolve().parents[2] / ".venv-nat" / "bin" / "python"
    named = config.python or os.environ.get(PYTHON_VARIABLE, "")
    path = Path(named) if named else beside_package
    if not path.is_file():
        raise ConfigError(
            f"environment.sandbox.python must name the interpreter of the sandbox's virtual environment, but {path} "
            f"does not exist. Make it with `python -m venv .venv-nat` and "
            f"`.venv-nat/bin/pip install nvidia-nat-core nvidia-nat-test`, or set {PYTHON_VARIABLE}"
        )
    # Absolute but not resolved: the link itself is what makes it a virtual environment.
    return path if path.is_absolute() else Path.cwd() / path


def server_settings(
    config: SandboxConfig,
    *,
    mode: str,
    uid: int,
    preload: tuple[str, ...],
    writable_folders: tuple[str, ...] = (),
) -> str:
    """Return the server program's settings as JSON; each writable folder becomes a tmpfs of the job's own."""
    limits = {
        "memory_mib": config.memory_mib,
        "max_processes": config.max_processes,
        "max_file_mib": config.max_file_mib,
        "max_tmpfs_mib": 4 * config.max_file_mib,
        "max_output_bytes": config.max_output_bytes,
        "writable_folders": list(writable_folders),
    }
    return json.dumps({"mode": mode, "uid": uid, "limits": limits, "preload": list(preload)})


def sandbox_environment(python: Path, home: str) -> dict[str, str]:
    """Return the whole environment of a server; nothing of the trainer's own goes in."""
    return {
        "PATH": f"{python.parent}:/usr/bin:/bin",
        "HOME": home,
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "TZ": "UTC",
    }


class _Server:
    """One server process and its channel; used by one thread at a time."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        """Start the process and wait until it has preloaded.

        Raises:
            SandboxError: It did not come up.
        """
        self._process = _SPAWNER.submit(
            subprocess.Popen,
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
            close_fds=True,
        ).result()
        self._stderr_tail = bytearray()
        threading.Thread(target=self._drain_stderr, name="sandbox-stderr", daemon=True).start()
        try:
            self.info = self._read_frame(time.monotonic() + START_TIMEOUT_S, max_bytes=1 << 20)
        except SandboxError as error:
            self.kill()
            raise SandboxError(f"{error}. Its stderr ends with: {self._stderr_text()}") from error
        if self.info.get("is_ready") is not True:
            self.kill()
            raise SandboxError(
                f"the sandbox's interpreter must have NAT and pytest, but preloading failed: "
                f"{self.info.get('reason')}. Run `{command_python(command)} -m pip install "
                "nvidia-nat-core nvidia-nat-test`"
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: dict[str, Any], *, timeout_s: float, max_output_bytes: int) -> dict[str, Any]:
        data = json.dumps(job).encode("utf-8", "replace")
        deadline = time.monotonic() + timeout_s + ANSWER_GRACE_S
        self._write(struct.pack(">I", len(data)) + data, deadline)
        # JSON text in JSON text: a byte may take six, twice escaped.
        return self._read_frame(deadline, max_bytes=8 * max_output_bytes + (1 << 16))

    def kill(self) -> None:
        """Kill and reap; bwrap's death takes its whole pid namespace with it."""
        if self.is_alive:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _drain_stderr(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        with stream:
            while chunk := os.read(stream.fileno(), 1 << 14):
                self._stderr_tail += chunk
                del self._stderr_tail[:-4000]

    def _stderr_text(self) -> str:
        time.sleep(0.05)  # the reader thread may be a moment behind
        return self._stderr_tail.decode("utf-8", "replace").strip()[-1000:] or "(nothing)"

    def _write(self, data: bytes, deadline: float) -> None:
        assert self._process.stdin is not None
        fd = self._process.stdin.fileno()
        view = memoryview(data)
        try:
            while view:
                _, writable, _ = select.select([], [fd], [], max(0.0, deadline - time.monotonic()))
                if not writable:
                    raise SandboxError("a sandbox server must take its job, but it stopped reading")
                view = view[os.write(fd, view[:4096]) :]
        except OSError as error:
            raise SandboxError(f"a sandbox server must take its job, but writing failed: {error}") from error

    def _read_frame(self, deadline: float, *, max_bytes: int) -> dict[str, Any]:
        (size,) = struct.unpack(">I", self._read_exactly(4, deadline))
        if size > max_bytes:
            raise SandboxError(f"an answer of the sandbox server must have at most {max_bytes} bytes, got {size}")
        answer = json.loads(self._read_exactly(size, deadline))
        if not isinstance(answer, dict):
            raise SandboxError("an answer of the sandbox server must be a JSON object")
        return answer

    def _read_exactly(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        data = bytearray()
        while len(data) < size:
            readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not readable:
                raise SandboxError("a sandbox server must answer within its limit, but it did not")
            chunk = os.read(fd, min(size - len(data), 1 << 20))
            if not chunk:
                raise SandboxError(f"a sandbox server must stay up, but it ended with code {self._process.wait()}")
            data += chunk
        return bytes(data)


def command_python(command: list[str]) -> str:
    """Return the interpreter in a server's command line."""
    return next((word for word in command if Path(word).name.startswith("python")), "python")


class ForkServerSandbox:
    """A pool of fork servers; the base of the back ends, which differ in the command line only."""

    def __init__(
        self,
        config: SandboxConfig,
        make_command: Callable[[], list[str]],
        environment: dict[str, str],
    ) -> None:
        """Keep the settings; servers start with the first job or by `start`.

        Args:
            config: Section `environment.sandbox`.
            make_command: Command line of a new server.
            environment: Its whole environment.
        """
        self._config = config
        self._make_command = make_command
        self._environment = environment
        self._slots: queue.Queue[_Server | None] = queue.Queue()
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
        finally:
            self._give(slot)

    def run(self, job: SandboxJob) -> SandboxResult:
        """Run a job in a fresh fork; blocks while all servers are busy.

        Raises:
            SandboxError: The sandbox itself failed, twice in a row.
        """
        refusal = _refusal(job)
        if refusal:
            return SandboxResult(status="refused", output={}, log=refusal, wall_s=0.0)
        timeout_s = job.timeout_s or self._config.job_timeout_s
        message = {
            "kind": job.kind,
            "files": job.files,
            "arguments": job.arguments,
            "timeout_s": timeout_s,
        }
        slot = self._take()
        try:
            for attempt in (1, 2):
                slot = self._alive(slot)
                try:
                    answer = slot.ask(message, timeout_s=timeout_s, max_output_bytes=self._config.max_output_bytes)
                    return _result(answer)
                except SandboxError:
                    slot.kill()
                    self.num_restarts += 1
                    if attempt == 2 or self._is_closed:
                        raise
                    _logger.warning("a sandbox server failed and is replaced", exc_info=True)
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

    def check_isolation(self, probe: dict[str, Any]) -> None:
        """Raise SandboxError where a probe job could do what it must not; back ends override."""

    def _take(self) -> "_Server | None":
        slot = self._slots.get()
        if self._is_closed:
            self._slots.put(slot)
            raise SandboxError("a sandbox must be open to run a job, but it is closed. Make a new one")
        return slot

    def _give(self, slot: "_Server | None") -> None:
        if self._is_closed and slot is not None:
            slot.kill()
            slot = None
        self._slots.put(slot)

    def _alive(self, slot: "_Server | None") -> _Server:
        if slot is not None and slot.is_alive:
            return slot
        if slot is not None:
            slot.kill()
            self.num_restarts += 1
        server = _Server(self._make_command(), self._environment)
        try:
            probe = _result(
                server.ask(
                    {"kind": "probe", "files": {}, "arguments": {}, "timeout_s": 10.0},
                    timeout_s=10.0,
                    max_output_bytes=self._config.max_output_bytes,
                )
            )
            if probe.status != "done":
                raise SandboxError(f"a job must be able to start in the sandbox, but: {probe.log.strip()}")
            self.check_isolation(probe.output)
        except SandboxError:
            server.kill()
            raise
        return server


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
            output = json.loads(answer["output"])
        except (ValueError, RecursionError) as error:
            status, log = "died", f"{log}\n[the answer was no JSON: {type(error).__name__}]"
        if not isinstance(output, dict):
            status, output = "died", {}
    return SandboxResult(status=status, output=output, log=log, wall_s=float(answer.get("wall_s", 0.0)))
