"""Runs of one answer's tests, some of them before their turn: on servers of the sandbox that no validation needs."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import monotonic
from typing import Self

from skyrl_nat.environments.nat_agent.payload import AgentSpec
from skyrl_nat.environments.nat_agent.recorded_calls import Report, Table
from skyrl_nat.environments.nat_agent.static_checks import StaticReport
from skyrl_nat.sandbox.base import Sandbox, SandboxJob

MAX_SECONDS = 30.0
"""For all runs of one answer's tests."""

Play = tuple[dict[str, str], Table | None]
"""The package's files, or a version of them, and what its tools answer; with None they work."""


def run_own_tests(
    sandbox: Sandbox,
    spec: AgentSpec,
    static: StaticReport,
    files: dict[str, str],
    table: Table | None,
    *,
    is_verbose: bool = False,
) -> list[Report]:
    """Run the tests in a fresh sandbox; returns what was reported.

    Args:
        sandbox: Where.
        spec: The task.
        static: What the parent knows of the package.
        files: Its files, or a version of them.
        table: Answers of the tools by `call_key`; None lets the tools work.
        is_verbose: Whether failures are explained; slower.

    Raises:
        SandboxError: The sandbox failed.
    """
    arguments = {
        "source_root": static.source_root,
        "module": static.module,
        "tools": [tool.name for tool in spec.functions],
        "tests": sorted({test.partition("::")[0] for test in static.tests}),
        "table": table,
        "is_verbose": is_verbose,
    }
    output = sandbox.run(SandboxJob(kind="nat_own_tests", files=files, arguments=arguments)).output
    reports = output.get("reports", [])
    return [report for report in reports if isinstance(report, dict)] if isinstance(reports, list) else []


class SpareServers:
    """Counts the servers that no validation has a claim to; each validation under way claims one.

    Where as many are under way as there are servers, nothing is played before its turn; one that begins
    while something is waits for the end of that play at most.
    """

    def __init__(self, num_servers: int) -> None:
        """Start with no validation under way."""
        self.num_servers = num_servers
        self._num_spare = num_servers
        self._lock = threading.Lock()

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Claim a server for a validation, whether or not one is spare: it waits for it in the sandbox."""
        with self._lock:
            self._num_spare -= 1
        try:
            yield
        finally:
            self.give()

    def take(self) -> bool:
        """Take a server if one is spare; returns whether."""
        with self._lock:
            if self._num_spare <= 0:
                return False
            self._num_spare -= 1
            return True

    def give(self) -> None:
        """Give one back."""
        with self._lock:
            self._num_spare += 1


class Plays:
    """Plays the tests of one answer within a limit of seconds; once it is left, nothing of it runs."""

    def __init__(self, play: Callable[[dict[str, str], Table | None], list[Report]], spares: SpareServers) -> None:
        """Keep how tests are played; the seconds count from here."""
        self._play, self._spares = play, spares
        self._until = monotonic() + MAX_SECONDS
        self._threads = ThreadPoolExecutor(spares.num_servers, thread_name_prefix="play-ahead")

    def __enter__(self) -> Self:
        """Nothing is played yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait for what was begun, even if nobody wants it any more."""
        self._threads.shutdown()

    def reports(self, files: dict[str, str], table: Table | None) -> list[Report]:
        """Play now, and return what was reported.

        Raises:
            ValueError: The seconds are over.
            SandboxError: The sandbox failed.
        """
        if monotonic() > self._until:
            raise ValueError(f"they take more than {MAX_SECONDS:g} s in all")
        return self._play(files, table)

    def each(self, plays: Iterable[Play]) -> Iterator[list[Report]]:
        """Yield what was reported in each play, in their order, or raise what was raised in it.

        A play begins when it is asked for, and beside it the next ones, one on each spare server: without any they
        follow each other, and at most as many as there were spare are in vain where the rest is not asked for.
        """
        waiting, begun = deque(plays), deque[Future[list[Report]]]()
        while waiting or begun:
            if begun:
                yield begun.popleft().result()
            else:
                asked_for = waiting.popleft()
                while waiting and self._spares.take():
                    begun.append(self._threads.submit(self._play_ahead, waiting.popleft()))
                yield self.reports(*asked_for)

    def _play_ahead(self, play: Play) -> list[Report]:
        try:
            return self.reports(*play)
        finally:
            self._spares.give()
