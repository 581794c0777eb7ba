"""What `/proc` says of a job's processes, and their end. Stdlib only."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass

KILL_WAIT_S = 5.0
FIRST_PROCESS_S = 0.5
"""What the first process of a job has to end the others, before they are killed one by one."""
_PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
_TICKS = os.sysconf("SC_CLK_TCK")
_FORKED_WITHOUT_EXEC, _EXITING = 0x40, 0x4


@dataclass(frozen=True)
class Process:
    """One line of `/proc/<pid>/stat`."""

    pid: int
    thread: int
    """One that is alive, by which memory and files are seen; the pid as a rule."""
    parent: int
    state: str
    is_ending: bool
    has_executed: bool
    """Whether it runs a program of its own, not a fork of its parent's memory."""
    cpu_s: float
    """Of itself and of the children that it waited for."""
    resident_kib: int


def read_process(pid: int) -> Process | None:
    """Return what is known of a process, None if it is gone."""
    fields = _read_stat(pid)
    if len(fields) < 22:
        return None
    thread, seen = pid, fields
    if fields[0] == "Z" and int(fields[17]) > 1:  # only its main thread has ended; by that nothing would be seen
        thread, seen = _living_thread(pid) or (pid, fields)
    return Process(
        pid=pid,
        thread=thread,
        parent=int(fields[1]),
        state=seen[0],
        is_ending=bool(int(seen[6]) & _EXITING),
        has_executed=not int(fields[6]) & _FORKED_WITHOUT_EXEC,
        cpu_s=sum(map(int, fields[11:15])) / _TICKS,
        resident_kib=int(seen[21]) * _PAGE_KIB,
    )


def _living_thread(pid: int) -> tuple[int, list[str]] | None:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - ten times quicker
            fields = _read_stat(int(name))
            if len(fields) >= 22 and fields[0] not in "ZX":
                return int(name), fields
    return None


def _read_stat(pid: int) -> list[str]:
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def count_threads(uid: int) -> int:
    """Return how many threads a user has."""
    total = 0
    for name in os.listdir("/proc"):  # noqa: PTH208 - ten times quicker
        if name.isdigit():
            fields = dict(line.split(":", 1) for line in _read(f"/proc/{name}/status").splitlines() if ":" in line)
            if fields.get("Uid", "").split()[:1] == [str(uid)]:
                total += int(fields.get("Threads", "0"))
    return total


def read_schedule(pid: int) -> tuple[str, float]:
    """Return what tells whether a process's main thread has run, and how many seconds it has waited for a CPU."""
    line = _read(f"/proc/{pid}/schedstat")
    fields = line.split()
    return line, int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


class Family:
    """The processes of the running job, seen by its subreaper, the server.

    In a pid namespace they are all but init and the server, else all that descend from the caller.
    """

    def __init__(self, *, is_alone: bool, uid: int) -> None:
        """Say how to tell them.

        Args:
            is_alone: Whether the server shares its pid namespace with nobody but init.
            uid: A user that only this job has; 0 for none.
        """
        self._is_alone = is_alone
        self._uid = uid

    def members(self) -> list[Process]:
        """Return the processes, zombies too."""
        own = os.getpid()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - ten times quicker
        found = {pid: process for pid in pids if (process := read_process(pid)) is not None}
        if self._is_alone:
            return [process for pid, process in found.items() if pid not in (1, own)]
        members: set[int] = set()
        grown = True
        while grown:
            more = {pid for pid, p in found.items() if p.parent == own or p.parent in members} - members
            grown = bool(more)
            members |= more
        return [found[pid] for pid in sorted(members)]

    def kill(self, first: int = 0) -> None:
        """Kill and reap them all, orphans too.

        Args:
            first: The job's first process. Outside of a pid namespace it kills the others: it alone can do so
                in one call, which no chain of forks outruns.

        Raises:
            RuntimeError: Some cannot be killed.
        """
        started = time.monotonic()
        patience_s = 0.0
        if first and not self._is_alone:
            _signal(first, signal.SIGTERM)
            patience_s = FIRST_PROCESS_S
        while time.monotonic() < started + KILL_WAIT_S:
            if self._is_alone:
                _signal(-1, signal.SIGKILL)  # init and the caller are spared
            elif time.monotonic() >= started + patience_s:
                self._kill_seen()
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:  # whatever the job started is, in the end, a child of its subreaper
                return
            time.sleep(0.001)
        raise RuntimeError("processes of a job survived SIGKILL")

    def _kill_seen(self) -> None:
        if self._uid:
            janitor = os.fork()
            if janitor == 0:
                os.setresgid(self._uid, self._uid, self._uid)
                os.setresuid(self._uid, self._uid, self._uid)
                _signal(-1, signal.SIGKILL)
                os._exit(0)
            os.waitpid(janitor, 0)
        for process in self.members():
            _signal(process.pid, signal.SIGKILL)


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


@contextlib.contextmanager
def as_user(uid: int) -> Iterator[None]:
    """Reach files and processes with the rights of a job's own user; of the caller where it has none."""
    if not uid:
        yield
        return
    user, group = os.geteuid(), os.getegid()
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)


def _read(path: str) -> str:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return ""
    try:
        return os.read(fd, 4096).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(fd)
