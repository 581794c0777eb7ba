"""The server's eye on a running job: its clock, its processes, its memory and its files. Stdlib only."""

import time

import box
import job_clock
import processes

STARVED_PROCESSES = 4
"""A job with more may have taken the CPU from itself."""
STARVED_SHARE = 0.5
ANSWER_S = 1.0
"""A job ends its workers at the limit itself; this much later the server ends the job."""
MAX_SHARE = 0.1
"""Share of the time that looking may take."""


class JobWatch:
    """One job's clock and limits."""

    def __init__(self, family: processes.Family, child: int, limits: dict, timeout_s: float, baseline_kib: int) -> None:
        """Start the clock.

        Args:
            family: The job's processes.
            child: The process that the server forked.
            limits: The server's.
            timeout_s: The job's limit.
            baseline_kib: Resident memory that each fork shares with the server.
        """
        self._family = family
        self._child = child
        self._limits = limits
        self._timeout_s = timeout_s
        self._baseline_kib = baseline_kib
        self._started = self._looked = time.monotonic()
        self._next_look = self._next_measure = 0.0
        self._waits: dict[int, tuple[str, float]] = {}
        self._cpu_s: dict[int, float] = {}
        self._num_processes = 0
        self._unreadable: set[int] = set()
        self.depth = 1
        """Forks between the server and the first of the job's processes that starts workers."""
        self.box = ""
        """The job's folder on the disk, if it has one there."""
        self.uid = 0
        """Its owner."""
        self.must_show_files = False
        """Whether each process must let the server see what it has open."""
        self.waited_s = 0.0
        """How long the job has waited for a CPU."""
        job_clock.allow(0.0)

    @property
    def allowance_s(self) -> float:
        """By how much the deadline has moved."""
        return min(self.waited_s, (job_clock.MAX_FACTOR - 1.0) * self._timeout_s)

    def is_over(self) -> bool:
        """Return whether the job should have answered by now."""
        return time.monotonic() > self._started + self._timeout_s + self.allowance_s + ANSWER_S

    def is_starved(self) -> bool:
        """Return whether the job ran out of the longest time there is by waiting for others.

        A job that burns CPU beside the worker that waits has starved itself: that is a timeout.
        """
        elapsed_s = time.monotonic() - self._started
        return (
            elapsed_s >= job_clock.MAX_FACTOR * self._timeout_s
            and self.waited_s > STARVED_SHARE * elapsed_s
            and sum(self._cpu_s.values()) <= STARVED_SHARE * elapsed_s
            and self._num_processes <= STARVED_PROCESSES
        )

    def look(self) -> str:
        """Return which limit the whole job has outgrown; limits of single processes do not add up."""
        started = time.monotonic()
        if started < self._next_look:
            return ""
        members = self._family.members()
        chain, workers = self._chain(members)
        self._measure_wait(chain | workers, members)
        num_others = len(members) - len(chain)
        self._num_processes = max(self._num_processes, num_others)
        self._cpu_s |= {p.pid: p.cpu_s for p in members}
        reason = ""
        grown_mib = sum(self._grown_kib(p) for p in members) // 1024
        if num_others > self._limits["max_processes"]:
            reason = f"killed: {num_others} processes"
        elif grown_mib > self._limits["memory_mib"]:
            reason = f"killed: {grown_mib} MiB in all processes"
        elif self.box:
            reason = self._look_at_files([p.thread for p in members if p.pid not in chain and p.state != "Z"])
        self._next_look = time.monotonic() + (time.monotonic() - started) / MAX_SHARE
        return reason

    def _grown_kib(self, process: processes.Process) -> int:
        shared_kib = 0 if process.has_executed else self._baseline_kib
        return max(0, process.resident_kib - shared_kib)

    def _chain(self, members: list[processes.Process]) -> tuple[set[int], set[int]]:
        """Return the job's own first processes, and the workers that they started."""
        levels = [{self._child}]
        for _ in range(self.depth):
            levels.append({p.pid for p in members if p.parent in levels[-1]})
        return set().union(*levels[:-1]), levels[-1]

    def _measure_wait(self, pids: set[int], members: list[processes.Process]) -> None:
        """Move the deadline by what the process waited that waited longest since the last look.

        The kernel adds a wait up when it ends; until then a process that can run and does not is seen waiting.
        """
        now = time.monotonic()
        longest_s = 0.0
        for process in members:
            if process.pid not in pids:
                continue
            line, waited_s = processes.read_schedule(process.pid)
            before, known_s = self._waits.get(process.pid, ("", 0.0))
            is_waiting = process.state == "R" and line == before
            total_s = max(waited_s, known_s + (now - self._looked if is_waiting else 0.0))
            longest_s = max(longest_s, total_s - known_s)
            self._waits[process.pid] = (line, total_s)
        self.waited_s += min(longest_s, now - self._looked)
        self._looked = now
        job_clock.allow(self.allowance_s)

    def _look_at_files(self, pids: list[int]) -> str:
        started = time.monotonic()
        if started < self._next_measure:
            return ""
        try:
            with processes.as_user(self.uid):
                unreadable = box.check_size(self.box, pids, self._limits)
        except box.OutgrownError as error:
            return f"killed: {error}"
        hidden = unreadable & self._unreadable if self.must_show_files else set()
        self._unreadable = unreadable
        self._next_measure = time.monotonic() + (time.monotonic() - started) / MAX_SHARE
        return f"killed: {len(hidden)} processes that hide their files" if hidden else ""
