"""Shows that a new server's jobs are confined: lays out what a job must not reach, and looks at what came through."""

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ALLOWED_VARIABLES = {
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_CTYPE", "PWD", "TZ"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "OMP_NUM_THREADS"),
}
_FILES = ("/etc/passwd", "/proc/1/environ", "/root/.netrc", "/var/run/docker.sock")
_FOLDERS = ("/", "/usr", "/etc", "/tmp", "/dev/shm", "/var/tmp")


class SelfTest:
    """A secret file, an open folder, sockets and a process; a context manager."""

    def __init__(self) -> None:
        """Lay everything out."""
        self._name = f"skyrl-nat-probe-{secrets.token_hex(8)}"
        self._folder = Path(tempfile.mkdtemp(prefix="skyrl-nat-self-test-"))
        self._folder.chmod(0o777)
        self._secret = self._folder / "secret"
        self._secret.write_text("secret")
        self._secret.chmod(0o644)
        self._tcp = _listen(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
        self._udp = _listen(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
        self._file_socket = _listen(socket.AF_UNIX, socket.SOCK_STREAM, str(self._folder / "socket"))
        (self._folder / "socket").chmod(0o777)
        self._abstract_socket = _listen(socket.AF_UNIX, socket.SOCK_STREAM, f"\0{self._name}")
        self._process = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take everything away."""
        self._process.kill()
        self._process.communicate()
        for opened in (self._tcp, self._udp, self._file_socket, self._abstract_socket):
            opened.close()
        for folder in self._folders():
            with contextlib.suppress(OSError):
                Path(folder, self._name).unlink()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _folders(self) -> list[Path]:
        """Where the job is to try to write; emptied again, as an open profile lets it."""
        return [self._folder, Path.home(), *map(Path, _FOLDERS)]

    def arguments(self) -> dict[str, Any]:
        """Return what the job is to try."""
        return {
            "files": [str(self._secret), f"/proc/{os.getpid()}/environ", *_FILES],
            "folders": list(map(str, self._folders())),
            "name": self._name,
            "pid": self._process.pid,
            "tcp": self._tcp.getsockname()[1],
            "udp": self._udp.getsockname()[1],
            "socket_file": str(self._folder / "socket"),
            "abstract_socket": f"\0{self._name}",
        }

    def faults(self, report: dict[str, Any]) -> list[str]:
        """Return what is wrong, by the job's report and by what arrived here."""
        return [fault for faults in self.walls(report).values() for fault in faults]

    def walls(self, report: dict[str, Any]) -> dict[str, list[str]]:
        """Return what is wrong with each wall: what it is around -> faults, empty where it holds.

        Args:
            report: Of the job; what it leaves out counts as a fault.
        """
        foreign = sorted(set(report.get("environment", ["?"])) - ALLOWED_VARIABLES)
        # /tmp and /dev/shm may be the job's own: what counts is what this side sees.
        written = [f for f in self._folders() if (f / self._name).exists()]
        visible = report.get("num_visible", 9)
        reached = [*report.get("reached", ["?"]), *self._arrived()]
        checks = {
            "rights": {
                "it runs as root": report.get("uid", 0) == 0,
                "it has capabilities": report.get("capabilities", 1) != 0,
                "its system calls are not filtered": report.get("has_filter") is not True,
            },
            "files and variables of the machine": {
                f"it sees variables of others: {', '.join(foreign)}": bool(foreign),
                f"it reads files of the machine: {report.get('read')}": report.get("read") != [],
                f"it writes outside: {', '.join(map(str, written))}": bool(written),
            },
            "processes of the machine": {
                f"it sees {visible} processes": visible > 2,
                "it kills processes of the machine": self._process.poll() is not None,
            },
            "network": {f"it reaches the network: {', '.join(reached)}": bool(reached)},
            "own folder and interpreter": {
                "its work folder is not writable": report.get("is_work_writable") is not True,
                "it cannot read its interpreter": report.get("is_interpreter_readable") is not True,
            },
        }
        return {wall: [text for text, is_fault in faults.items() if is_fault] for wall, faults in checks.items()}

    def _arrived(self) -> list[str]:
        """Return which sockets somebody has reached."""
        arrived = []
        for name, opened in (
            ("tcp", self._tcp),
            ("socket file", self._file_socket),
            ("abstract", self._abstract_socket),
        ):
            with contextlib.suppress(BlockingIOError):
                opened.accept()[0].close()
                arrived.append(f"{name} of the machine")
        with contextlib.suppress(BlockingIOError):
            self._udp.recv(1)
            arrived.append("udp of the machine")
        return arrived


def _listen(family: int, kind: int, address: Any) -> socket.socket:
    opened = socket.socket(family, kind)
    opened.bind(address)
    if kind == socket.SOCK_STREAM:
        opened.listen()
    opened.setblocking(False)
    return opened
