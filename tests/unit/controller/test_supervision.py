"""Training that goes on with a new policy, and a stop that keeps the step in flight."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from skyrl_nat.config.recovery import RecoveryConfig
from skyrl_nat.controller import grace, supervision
from skyrl_nat.controller.grace import Grace
from skyrl_nat.errors import LostNodeError, LostWorkerError, StalledError, WeightSyncError, WorkerError


class Run:
    """Trains a step for each call of `train`, by a script of what goes wrong."""

    ill_role = "policy"

    def __init__(self, work: Callable[["Run"], Awaitable[None]]) -> None:
        self.work = work
        self.step = self.saved_step = 0
        self.num_restarts = 0
        self.num_needed = 1
        self.is_policy_ill = False
        self.devices = SimpleNamespace(is_in_step=False)
        self.config = SimpleNamespace(recovery=RecoveryConfig(max_policy_restarts=2))
        self.grace = Grace(5)
        self.console = SimpleNamespace(warn=lambda text: None)
        self.keeper = SimpleNamespace(keep=for_ever)
        well = SimpleNamespace(role="engine", probe=self.fail)
        self.topology = SimpleNamespace(groups=[well, SimpleNamespace(role=self.ill_role, probe=self.probe)])
        self.saver = SimpleNamespace(finish=self.settle, settle=self.settle)
        self.is_settled = False

    async def settle(self) -> None:
        self.is_settled = True

    async def fail(self, timeout_s: float) -> dict[int, BaseException]:
        raise AssertionError("engines are not asked")

    async def probe(self, timeout_s: float) -> dict[int, BaseException]:
        return {0: LostWorkerError("policy 0 is dead")} if self.is_policy_ill else {}

    async def restart_policy(self) -> None:
        self.num_restarts += 1
        self.step = self.saved_step

    async def save_last_step(self) -> None:
        self.saved_step = self.step


async def for_ever() -> None:
    await asyncio.Event().wait()


@pytest.fixture(autouse=True)
def _no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "Watchdog", lambda run: SimpleNamespace(watch=for_ever))
    monkeypatch.setattr(supervision, "train", lambda run: run.work(run))


def start(run: Any) -> None:
    asyncio.run(supervision.train_to_the_end(run))


def test_lost_ranks_are_replaced_and_training_goes_on() -> None:
    async def work(run: Run) -> None:
        if run.num_restarts < 2:
            raise LostWorkerError("policy 1 died")

    run = Run(work)
    start(run)
    assert run.num_restarts == 2
    assert run.is_settled, "a checkpoint that is being written is waited for"


def test_restarts_are_bounded_but_a_trained_step_forgives() -> None:
    async def work(run: Run) -> None:
        if run.num_restarts < 4:
            run.step = run.saved_step = run.num_restarts + 1
        raise LostWorkerError("policy 1 died")

    run = Run(work)
    with pytest.raises(LostWorkerError):
        start(run)
    assert run.num_restarts == 5, "four with a step before each, one without"


def test_a_restart_that_fails_is_tried_again_and_counts() -> None:
    """The ranks' node was lost, and Ray did not know of it yet."""

    class OnLostNode(Run):
        async def restart_policy(self) -> None:
            await super().restart_policy()
            if self.num_restarts < self.num_needed:
                raise LostWorkerError("policy 0 died during `start`")

    async def work(run: Run) -> None:
        if not run.num_restarts:
            raise LostWorkerError("policy 0 died")

    run = OnLostNode(work)
    run.num_needed = 2
    start(run)
    assert run.num_restarts == 2
    run = OnLostNode(work)
    run.num_needed = 4
    with pytest.raises(LostWorkerError):
        start(run)
    assert run.num_restarts == 2, "max_policy_restarts"


@pytest.mark.parametrize("role", ["policy", "reference"])
@pytest.mark.parametrize("error", [WeightSyncError("the push broke"), WorkerError("policy 0 failed: reset by peer")])
@pytest.mark.parametrize(("is_ill", "restarts"), [(True, 1), (False, 0)])
def test_a_failure_restarts_the_policy_only_if_a_rank_is_not_well(
    role: str, error: Exception, is_ill: bool, restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead rank breaks pushes and its peers' collectives, which may be heard of first."""
    monkeypatch.setattr(Run, "ill_role", role)

    async def work(run: Run) -> None:
        if not run.num_restarts:
            run.is_policy_ill = is_ill
            raise error

    run = Run(work)
    if is_ill:
        start(run)
    else:
        with pytest.raises(type(error)):
            start(run)
    assert run.num_restarts == restarts


def test_a_lost_node_that_none_replaced_ends_the_run() -> None:
    async def work(run: Run) -> None:
        run.is_policy_ill = True
        raise LostNodeError("the node is gone")

    run = Run(work)
    with pytest.raises(LostNodeError):
        start(run)
    assert run.num_restarts == 0


def test_a_push_that_a_lost_rank_broke_ends_the_run_in_its_name() -> None:
    async def work(run: Run) -> None:
        raise WeightSyncError("the push broke")

    run = Run(work)
    run.is_policy_ill = True
    run.config.recovery.max_policy_restarts = 0
    with pytest.raises(LostWorkerError, match="policy 0 is dead"):
        start(run)
    assert run.num_restarts == 0


def test_exception_in_a_worker_is_no_reason_to_try_again() -> None:
    async def work(run: Run) -> None:
        raise WorkerError("policy 0 failed in `train`: ValueError")

    run = Run(work)
    with pytest.raises(WorkerError):
        start(run)
    assert run.num_restarts == 0


def test_stop_lets_the_step_in_flight_end_and_saves_it() -> None:
    async def work(run: Run) -> None:
        run.step, run.saved_step, run.devices.is_in_step = 4, 4, True
        await asyncio.sleep(0.3)
        run.step, run.devices.is_in_step = 5, False
        await for_ever()

    run = Run(work)
    asyncio.run(stop_after(run, 0.1))
    assert run.saved_step == 5


def test_stalled_run_saves_its_last_step() -> None:
    async def work(run: Run) -> None:
        run.step = 5
        raise StalledError("nobody moves")

    run = Run(work)
    with pytest.raises(StalledError):
        start(run)
    assert run.saved_step == 5


def test_stop_saves_nothing_that_is_no_whole_step() -> None:
    async def work(run: Run) -> None:
        run.step, run.devices.is_in_step = 5, True
        await asyncio.sleep(0.2)
        raise LostWorkerError("policy 0 died in the middle of it")

    run = Run(work)
    asyncio.run(stop_after(run, 0.1))
    assert run.saved_step == 0
    assert run.is_settled, "a checkpoint of an earlier step is waited for"


@pytest.mark.parametrize(("step_s", "save_s", "saved"), [(0.8, None, 4), (0.5, 0.2, 5), (None, 0.0, 4)])
def test_the_end_of_the_step_and_its_save_share_one_grace(
    step_s: float | None, save_s: float | None, saved: int
) -> None:
    """In parts of the grace of 2 s; None is for ever. A save that fits is made, and nothing outlasts the grace."""
    told: list[float] = []

    class Slow(Run):
        async def save_last_step(self) -> None:
            await (for_ever() if save_s is None else asyncio.sleep(2 * save_s))
            await super().save_last_step()

    async def work(run: Run) -> None:
        run.step, run.saved_step, run.devices.is_in_step = 4, 4, True
        asyncio.get_running_loop().call_soon(training[0].cancel)
        told.append(time.monotonic())
        await (for_ever() if step_s is None else asyncio.sleep(2 * step_s))
        run.step, run.devices.is_in_step = 5, False
        await for_ever()

    training: list[asyncio.Task[None]] = []

    async def scenario() -> None:
        training.append(asyncio.create_task(supervision.train_to_the_end(run)))  # type: ignore[arg-type]
        with pytest.raises(asyncio.CancelledError):
            await training[0]

    run = Slow(work)
    run.grace = Grace(2)
    asyncio.run(scenario())
    assert time.monotonic() - told[0] <= 2 + 1
    assert run.saved_step == saved


def test_work_that_does_not_heed_its_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(run: Run) -> None:
        while True:
            try:
                await asyncio.wait_for(free.wait(), 60)
                return
            except asyncio.CancelledError:
                continue

    async def scenario() -> None:
        nonlocal free
        free = asyncio.Event()
        await stop_after(run, 0.05)
        free.set()

    free = asyncio.Event()
    monkeypatch.setattr(grace, "CLOSING_S", 0.1)
    run = Run(work)
    run.grace = Grace(0.1)
    asyncio.run(asyncio.wait_for(scenario(), 30))


async def stop_after(run: Any, seconds: float) -> None:
    training = asyncio.ensure_future(supervision.train_to_the_end(run))
    await asyncio.sleep(seconds)
    training.cancel()
    with pytest.raises(asyncio.CancelledError):
        await training


def test_whoever_fails_beside_the_work_ends_it() -> None:
    async def fails_once() -> None:
        if not run.num_restarts:
            raise LostWorkerError("policy 0 is silent")
        await for_ever()

    async def work(run: Run) -> None:
        if not run.num_restarts:
            await for_ever()

    run = Run(work)
    run.keeper = SimpleNamespace(keep=fails_once)
    start(run)
    assert run.num_restarts == 1
