"""One server process and its channel.

The parent never trusts an answer beyond its shape: sizes are bounded, and a server that does not answer in time is
killed with everything in it.
"""

import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skyrl_nat.errors import SandboxError

START_TIMEOUT_S = 180.0
ANSWER_GRACE_S = 10.0
"""Seconds after a job's own limit in which its server must have answered."""
MAX_FACTOR = 3.0
"""A starved job may take this many times its limit (`inside/job_clock.py`)."""

_SPAWNER = ThreadPoolExecutor(1, thread_name_prefix="sandbox-spawner")
"""Starts every server: bubblewrap dies with the thread that started it, and callers' threads are short-lived."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a server, and how to end what killing its process would leave."""

    command: list[str]
    environment: dict[str, str]
    """The whole of it."""
    scratch: str = ""
    """A folder of the server's own, removed with it."""
    kill_command: list[str] | None = None
    """Ends a container that does not die with its client."""

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill the server and remove what it leaves."""
        if self.kill_command is not None:
            subprocess.run(self.kill_command, env=self.environment, capture_output=True, timeout=60, check=False)
        process.kill()
        process.wait()
        if self.scratch:
            shutil.rmtree(self.scratch, ignore_errors=True)


def make_scratch() -> str:
    """Return a new folder in which every user can find what it may see."""
    folder = tempfile.mkdtemp(prefix="skyrl-nat-sandbox-")
    Path(folder).chmod(0o711)
    return folder


class ServerProcess:
    """One server process and its channel; used by one thread at a time."""

    def __init__(self, launch: Launch) -> None:
        """Start the process and wait until it has preloaded.

        Raises:
            SandboxError: It did not come up.
        """
        self._launch = launch
        self._process = _SPAWNER.submit(
            subprocess.Popen,
            launch.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=launch.environment,
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
                f"{self.info.get('reason')}. Run `{command_python(launch.command)} -m pip install "
                "nvidia-nat-core nvidia-nat-test`"
            )

    @property
    def pid(self) -> int:
        """Of the process that was started."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def ask(self, job: dict[str, Any], *, timeout_s: float, max_output_bytes: int) -> dict[str, Any]:
        """Send a job and return the server's answer.

        Raises:
            SandboxError: It did not answer in time, or not as it must.
        """
        data = json.dumps(job).encode("utf-8", "replace")
        deadline = time.monotonic() + MAX_FACTOR * timeout_s + ANSWER_GRACE_S
        self._write(struct.pack(">I", len(data)) + data, deadline)
        # JSON text in JSON text: a byte may take six, twice escaped.
        return self._read_frame(deadline, max_bytes=8 * max_output_bytes + (1 << 16))

    def kill(self) -> None:
        """Kill and reap, with everything in it; safe to call twice."""
        self._launch.end(self._process)
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
