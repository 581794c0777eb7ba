"""A clock that only progress moves: when it stands still, the user is told who waits for whom, and it is ended."""

import asyncio
import faulthandler
import time
from pathlib import Path

from skyrl_nat.cluster.group import Wait
from skyrl_nat.cluster.inspection import stacks_of
from skyrl_nat.config.recovery import ENDING_S, OnStall
from skyrl_nat.config.run import RunConfig
from skyrl_nat.controller.run import Run
from skyrl_nat.errors import StalledError

SHORTEST_LIMIT_S = 300.0
STEPS_OF_SILENCE = 10
"""Times the slowest step so far: the derived limit."""
LOOKS_PER_LIMIT = 20
FROZEN_LIMITS = 2
"""Limits after which a controller that does not even get to look is ended from outside."""

PROBES = ("identity", "check_health")
START = "start"
"""The wait for a worker that is started anew. It has a deadline of its own; who ends it only begins it again."""


class Watchdog:
    """Watches a run; docs/recovery.md says what is progress. Traffic alone is none."""

    def __init__(self, run: Run) -> None:
        """Watch nothing yet."""
        self._run = run
        self._marks: tuple[object, ...] = ()
        run.progress_since = time.monotonic()
        self._num_stalls = 0
        """In a row."""

    @property
    def limit_s(self) -> float:
        """Silence that is allowed now."""
        return silence_limit(self._run)

    async def watch(self) -> None:
        """Watch until cancelled.

        Raises:
            StalledError: Nothing moved, and the config or a second stall in a row says to end the run.
            LostWorkerError: A rank of policy or reference stands still.
        """
        try:
            while True:
                limit = self.limit_s
                # If the controller itself hangs, nobody else can say so.
                faulthandler.dump_traceback_later(FROZEN_LIMITS * limit, exit=True)
                await asyncio.sleep(min(limit / LOOKS_PER_LIMIT, 5.0))
                await self.look()
        finally:
            # A new policy comes next, or the end of the run.
            end_if_stuck(self._run.config)

    async def look(self) -> None:
        """Compare with the last look, and act if the limit is over."""
        run, now = self._run, time.monotonic()
        groups = run.topology.groups
        num_micro_batches = [sum(group.progress.values()) for group in groups]
        marks = (run.step, run.devices.phase, run.runner.num_finished, num_micro_batches, len(run.saver.waits))
        if marks != self._marks:
            self._marks, run.progress_since, self._num_stalls = marks, now, 0
        elif any(wait.method == START for group in groups for wait in group.waits):
            run.progress_since = now
        elif now - run.progress_since > self.limit_s:
            self._num_stalls += 1
            await self._act(now - run.progress_since)
            run.progress_since = time.monotonic()

    async def _act(self, silent_s: float) -> None:
        run = self._run
        diagnosis = (
            f"no progress for {silent_s:.0f} s in phase {run.devices.phase} of step {run.step + 1}: "
            f"{describe(self._waits())}"
        )
        is_hopeless = self._num_stalls > 1 or not self._waits_for_workers()
        file = await self._write_stacks(diagnosis)
        action = OnStall.stop if is_hopeless else run.config.recovery.on_stall
        run.console.warn(f"STALL: {diagnosis}. Stacks are in {file}; action: {action}")
        if action is OnStall.stop:
            raise StalledError(
                f"A run must move within {self.limit_s:.0f} s (recovery.stall_timeout_s), but {diagnosis}. See {file}, "
                "then go on with resume=latest"
            )
        if action is OnStall.refill and run.devices.phase == "rollout":
            run.producer.drop_oldest()
            return
        await self._replace()

    def _waits(self) -> list[Wait]:
        """Return what is waited for now, the longest wait first."""
        waits = [wait for group in self._run.topology.groups for wait in group.waits if wait.method not in PROBES]
        return sorted([*waits, *self._run.saver.waits], key=lambda wait: wait.since)

    def _waits_for_workers(self) -> list[Wait]:
        """Return those that end when a worker is replaced."""
        return [wait for wait in self._waits() if wait not in self._run.saver.waits and wait.method != START]

    async def _replace(self) -> None:
        """Replace those that have been waited for through the whole silence, or else for longest."""
        groups = {group.role: group for group in self._run.topology.groups}
        # Writing the stacks took a while, in which some may have answered and others be started.
        waits = self._waits_for_workers()
        overdue = [wait for wait in waits if wait.since <= self._run.progress_since + 1.0] or waits[:1]
        for role, rank in dict.fromkeys((wait.role, wait.rank) for wait in overdue):
            await self._run.keeper.replace(groups[role], rank, f"it stood still for {self.limit_s:.0f} s")

    async def _write_stacks(self, diagnosis: str) -> Path:
        """Write the stacks of all actors and the controller's own tasks, and return the file."""
        run = self._run
        folder = run.folder / "stalls"
        file = folder / f"step_{run.step + 1:06d}_{time.strftime('%H%M%S')}.txt"
        found = await stacks_of(run.topology.groups)
        try:
            folder.mkdir(exist_ok=True)
            with file.open("w", encoding="utf-8") as out:
                out.write(f"{diagnosis}\n\n")
                for name, text in found.items():
                    out.write(f"== {name}: {text}\n")
                for task in asyncio.all_tasks():
                    out.write(f"== controller, task {task.get_name()}\n")
                    task.print_stack(file=out)
        except OSError as error:
            run.console.warn(f"{file} could not be written in full: {error}")
        return file


def silence_limit(run: Run) -> float:
    """Return the silence that is allowed now."""
    cluster = run.config.cluster
    if run.config.recovery.stall_timeout_s:
        return run.config.recovery.stall_timeout_s
    if not run.account.slowest_step_s:
        return cluster.call_timeout_s
    limit = max(SHORTEST_LIMIT_S, cluster.start_timeout_s, STEPS_OF_SILENCE * run.account.slowest_step_s)
    # No step says how long a save takes.
    return max(limit, cluster.call_timeout_s) if run.devices.phase == "save" else limit


def end_if_stuck(config: RunConfig) -> None:
    """End the process, with all stacks, if what no watchdog sees outlasts all its deadlines together.

    That is the start of a run, a new policy, and the end; `faulthandler.cancel_dump_traceback_later` takes it back.
    """
    recovery, cluster = config.recovery, config.cluster
    starts_s = recovery.node_timeout_s + 3 * cluster.start_timeout_s
    starts_s += cluster.num_engines_per_gpu * config.engine.start_timeout_s
    limit_s = starts_s + 6 * cluster.call_timeout_s + recovery.grace_s + ENDING_S
    # Not `sys.stderr`, which in a notebook is no file.
    faulthandler.dump_traceback_later(limit_s, exit=True, file=2)  # pyright: ignore[reportArgumentType]


def describe(waits: list[Wait]) -> str:
    """Return in one line who waits for whom since when; the longest wait first."""
    if not waits:
        return "nobody is waited for, the controller itself stands still"
    now = time.monotonic()
    by_target: dict[tuple[str, int, str], list[Wait]] = {}
    for wait in waits:
        by_target.setdefault((wait.role, wait.rank, wait.method), []).append(wait)
    parts = [
        f"{role} {rank} in `{method}` since {now - found[0].since:.0f} s ({len(found)} calls)"
        for (role, rank, method), found in by_target.items()
    ]
    more = f" and {len(parts) - 4} others" if len(parts) > 4 else ""
    return f"the controller waits for {', '.join(parts[:4])}{more}"
