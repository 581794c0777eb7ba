"""What a checkpoint holds of a run, how it is written while the disk may fail, and how a run goes on from it."""

import asyncio
import contextlib
import dataclasses
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.checkpoint.manifest import check_sizes
from skyrl_nat.checkpoint.mirror import mirror_of
from skyrl_nat.cluster.group import Wait, waiting
from skyrl_nat.controller.copying import Copier
from skyrl_nat.controller.grace import Grace
from skyrl_nat.controller.update import Coefficients
from skyrl_nat.errors import CheckpointError, DeadlineError, SkyRLNatError
from skyrl_nat.rollouts.recorded import read_groups
from skyrl_nat.rollouts.recorder import write_groups

if TYPE_CHECKING:
    from skyrl_nat.controller.run import Run

GROUPS = "groups.jsonl"
"""File of a checkpoint: groups that were played ahead and not yet handed over."""


def run_state(run: "Run") -> dict[str, Any]:
    """Return what the controller must know to go on, as JSON data; docs/resume.md tells what each is for."""
    ahead = run.producer.state()
    return {
        "step": run.step,
        "position": ahead.position,
        "unfinished": ahead.unfinished,
        "quarantine": ahead.quarantine,
        "seed": run.config.seed,
        "coefficients": dataclasses.asdict(run.coefficients),
        "num_policy_ranks": run.policy.size,
        "rewards": {str(step): reward for step, reward in run.rewards.items()},
        "tracker_runs": run.tracker.run_ids(),
    }


async def restore(run: "Run", checkpoint: Path) -> None:
    """Go on from a checkpoint.

    Raises:
        CheckpointError: It is not complete, or does not fit the model.
    """
    state = read_state(checkpoint)
    run.console.status(f"loading {checkpoint}")
    await run.policy.call_all("load", str(checkpoint / "policy"))
    run.step = int(state["step"])
    run.stream.position = int(state["position"])
    run.coefficients = Coefficients(**state["coefficients"])
    saved = {int(step): float(reward) for step, reward in state["rewards"].items()}
    run.rewards = saved | {step: reward for step, reward in run.rewards.items() if step <= run.step}
    run.renew_producer()
    run.producer.restore(read_groups(checkpoint / GROUPS), state["quarantine"])
    if state["num_policy_ranks"] != run.policy.size:
        run.console.warn(
            f"{checkpoint.name} is of {state['num_policy_ranks']} policy ranks, this run has {run.policy.size}: random "
            f"numbers of the ranks begin anew, from seed, step and rank"
        )


class Saver:
    """Writes the checkpoints of a run, one at a time; a disk that refuses one does not end the run at once.

    With `checkpoint.asynchronous` training waits only until all is copied to host memory. What is written is the state
    of that moment. The last step is waited for.
    """

    def __init__(self, run: "Run", checkpoints: CheckpointManager) -> None:
        """Save nothing yet."""
        self.checkpoints = checkpoints
        self.saved_step = 0
        """Of the newest complete checkpoint."""
        self.waits: set[Wait] = set()
        """For the disk, as checksums of a checkpoint are computed."""
        self._run = run
        self._config = run.config.checkpoint
        self._num_failures = 0
        """In a row."""
        self._writing: asyncio.Task[None] | None = None
        mirror = mirror_of(self._config.mirror, run.config.name)
        self._copier = Copier(run, checkpoints, mirror) if mirror else None

    async def go_on_from(self, start: Path | None) -> None:
        """Let nobody find what was saved after the checkpoint that training goes on from; None for none."""
        self.saved_step = self._run.step
        self.checkpoints.set_aside(start)
        if self._copier:
            await self._copier.leave_behind(self.checkpoints.own_step(start), self._run.config.recovery.grace_s)

    async def save(self) -> None:
        """Save the step that was just trained and pushed.

        Raises:
            CheckpointError: Too many saves in a row failed, or that of the run's last step.
        """
        run, started = self._run, time.monotonic()
        await self.settle()
        is_background = self._config.asynchronous and run.step < run.total_steps
        with self._surviving(run.step):
            part = self.checkpoints.begin(run.step)
            with self._discarding(part):
                write_groups(part / GROUPS, run.producer.state().finished)
                state = run_state(run)
                if is_background:
                    await run.policy.call_all("snapshot")
            self._writing = asyncio.create_task(self._write(part, state, is_background=is_background))
        if not is_background:
            await self.settle()
        run.tracker.log(run.step, {"time/checkpoint_s": time.monotonic() - started})

    async def save_last(self) -> None:
        """Save the last step before a stop, if it is not saved."""
        await self.settle()
        if self._run.step > self.saved_step:
            await self.save()
            await self.settle()

    async def settle(self) -> None:
        """Wait until what is being written is complete.

        Raises:
            CheckpointError: As in `save`.
            WorkerError, DeadlineError: The policy's ranks died, or gave no answer.
        """
        writing = self._writing
        if writing is not None:
            try:
                with self._run.devices.in_phase("save"):
                    # Whoever waits may be cancelled; what is written is written to its end.
                    await asyncio.shield(writing)
            finally:
                self._writing = None if writing.done() else writing

    async def finish(self) -> None:
        """Wait at the end of a run until the last checkpoint is complete, and copied if there is a mirror.

        Raises:
            CheckpointError, WorkerError, DeadlineError: As in `settle`.
        """
        await self.settle()
        if self._copier:
            await self._copier.finish(self._run.config.cluster.call_timeout_s)

    async def close(self, grace: Grace) -> None:
        """Wait for what is being written and copied, but not for ever; what is not complete by then is given up."""
        writing, self._writing = self._writing, None
        try:
            if writing is not None:
                await asyncio.wait_for(writing, grace.left_s)
        except SkyRLNatError as error:
            self._run.console.warn(f"a checkpoint was not written: {error}")
        except TimeoutError:
            self._run.console.warn(f"a checkpoint was not written within {grace.seconds:g} s and is given up")
        if self._copier:
            await self._copier.finish(grace.left_s)

    async def _write(self, part: Path, state: dict[str, Any], *, is_background: bool) -> None:
        policy, step = self._run.policy, int(state["step"])
        with self._surviving(step), self._discarding(part):
            if is_background:
                await policy.call_beside("write", str(part / "policy"))
            else:
                await policy.call_all("save", str(part / "policy"))
            with waiting(self.waits, "checkpoint", step, "commit"):
                folder = await asyncio.to_thread(self.checkpoints.commit, part, state, dict(self._run.rewards))
            self.saved_step, self._num_failures = step, 0
            if self._copier:
                self._copier.copy(folder)

    @contextlib.contextmanager
    def _discarding(self, part: Path) -> Iterator[None]:
        """Remove a folder that is not made complete."""
        try:
            yield
        except BaseException:
            self.checkpoints.discard(part)
            raise

    @contextlib.contextmanager
    def _surviving(self, step: int) -> Iterator[None]:
        """Turn a failed write into a warning, until there are too many in a row.

        Raises:
            CheckpointError: There are.
        """
        try:
            yield
        except DeadlineError:  # an OSError too, and no fault of the disk
            raise
        except (CheckpointError, OSError) as error:
            self._num_failures += 1
            text = f"step {step} could not be saved ({self._num_failures} in a row): {error} {self._room()}"
            if self._num_failures >= self._config.max_failures:
                raise CheckpointError(
                    f"checkpoint.max_failures ({self._config.max_failures}) saves in a row must not fail, but {text}. "
                    "Free space, then go on with resume=latest"
                ) from error
            if step == self._run.total_steps:
                raise CheckpointError(f"The last step must be saved, but {text}. Free space, then resume=latest") from (
                    error
                )
            self._run.console.warn(f"{text}. The run goes on and tries again when the next checkpoint is due")

    def _room(self) -> str:
        """Say what a checkpoint takes and what the disk has."""
        folder = self.checkpoints.folder
        try:
            newest = self.checkpoints.all()[-1:]
            needed = "".join(
                f"{path.name}, which is kept, takes {_mib(check_sizes(path).num_bytes)}; " for path in newest
            )
            return f"{needed}{_mib(shutil.disk_usage(folder).free)} are free in {folder}"
        except (OSError, CheckpointError) as error:
            return f"what is free in {folder} is not known ({error})"


def _mib(num_bytes: int) -> str:
    return f"{num_bytes / 2**20:,.1f} MiB"
