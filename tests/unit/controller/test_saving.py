"""What a run saves and takes back, and what happens when the disk refuses it."""

import asyncio
import errno
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import LocalCalls
from groups import make_group

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.checkpoint.mirror import Mirror
from skyrl_nat.config.outputs import CheckpointConfig
from skyrl_nat.config.recovery import RecoveryConfig
from skyrl_nat.controller.saving import Saver, restore
from skyrl_nat.controller.update import Coefficients
from skyrl_nat.errors import CheckpointError
from skyrl_nat.rollouts.producer import ProducerState
from skyrl_nat.types import RolloutGroup

AHEAD = make_group(9, [1.0, None])
LOST = {"t3": {"failures": 2, "step": 3, "reason": "no answer"}}


class Producer:
    """Has one finished group beyond the stream's position, and one that is being played."""

    def __init__(self, position: int) -> None:
        self.position = position
        self.restored: list[RolloutGroup] = []
        self.lost: dict[str, Any] = {}

    def state(self) -> ProducerState:
        return ProducerState(position=self.position, finished=[AHEAD], unfinished=[10], quarantine=LOST)

    def restore(self, finished: list[RolloutGroup], quarantine: dict[str, Any]) -> None:
        self.restored, self.lost = finished, quarantine


class Rank:
    """A policy rank whose weights are one number; its disk may be full."""

    def __init__(self) -> None:
        self.weights = 0
        self.copy = 0
        self.is_full: Callable[[], bool] = lambda: False
        self.may_write = threading.Event()
        """Holds up writing in the background."""
        self.may_write.set()

    def save(self, folder: str) -> None:
        Path(folder).mkdir(parents=True)
        Path(folder, "weights").write_text(str(self.weights))
        if self.is_full():
            raise CheckpointError("the checkpoint must be written, got: OSError: [Errno 28] No space left on device.")

    def snapshot(self) -> None:
        self.copy = self.weights

    def write(self, folder: str) -> None:
        assert self.may_write.wait(30)
        now, self.weights = self.weights, self.copy
        try:
            self.save(folder)
        finally:
            self.weights = now

    def load(self, folder: str) -> None:
        self.weights = int(Path(folder, "weights").read_text())


class Run:
    """What saving needs of a run."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.rank = Rank()
        self.policy = LocalCalls([self.rank])
        self.config = SimpleNamespace(
            name="run",
            seed=1,
            checkpoint=CheckpointConfig(**settings),
            recovery=RecoveryConfig(grace_s=20),
            cluster=SimpleNamespace(call_timeout_s=20),
        )
        self.said: list[str] = []
        self.console = SimpleNamespace(status=lambda text: None, warn=self.said.append)
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.tracker = SimpleNamespace(
            run_ids=lambda: {"wandb": "abc"}, log=lambda *entry: self.logged.append(entry), rewind=lambda step: None
        )
        self.stream = SimpleNamespace(position=9)
        self.step, self.total_steps, self.coefficients = 0, 100, Coefficients(0.1, 0.0)
        self.rewards: dict[int, float] = {}
        self.checkpoints = CheckpointManager(folder, keep_last=self.config.checkpoint.keep_last, keep_best=1)
        self.saver = Saver(self, self.checkpoints)  # type: ignore[arg-type]
        self.renew_producer()

    def renew_producer(self) -> None:
        self.producer = Producer(self.stream.position)

    async def step_and_save(self, *steps: int) -> None:
        """Save some steps, whose weights are their numbers."""
        for step in steps:
            self.step = self.rank.weights = step
            await self.saver.save()

    def train_and_save(self, *steps: int) -> None:
        """Save some steps, whose weights are their numbers, and end."""

        async def work() -> None:
            await self.step_and_save(*steps)
            await self.saver.finish()

        asyncio.run(work())


def test_all_that_going_on_needs_comes_back(tmp_path: Path) -> None:
    """A KL coefficient that has moved to 0.07 goes on from there, not from the config's; so do groups played ahead."""
    before = Run(tmp_path)
    before.coefficients, before.rewards = Coefficients(0.07, 0.002), {1: 0.25, 2: 0.5}
    before.train_and_save(3)
    checkpoint = before.checkpoints.latest()
    assert checkpoint is not None
    assert read_state(checkpoint) == {
        "step": 3,
        "position": 9,
        "unfinished": [10],
        "quarantine": LOST,
        "seed": 1,
        "coefficients": {"kl": 0.07, "entropy": 0.002},
        "num_policy_ranks": 1,
        "rewards": {"1": 0.25, "2": 0.5},
        "tracker_runs": {"wandb": "abc"},
    }
    after = Run(tmp_path)
    after.stream.position, after.rewards = 0, {3: 0.75, 4: 0.125}
    asyncio.run(restore(after, checkpoint))  # type: ignore[arg-type]
    assert (after.step, after.stream.position, after.rank.weights) == (3, 9, 3)
    assert after.coefficients == Coefficients(0.07, 0.002)
    assert (after.producer.restored, after.producer.lost) == ([AHEAD], LOST)
    assert after.producer.position == 9
    assert after.rewards == {1: 0.25, 2: 0.5, 3: 0.75}, "step 4 is trained anew"
    assert after.said == []


def test_another_number_of_ranks_is_said_plainly(tmp_path: Path) -> None:
    """CK-08."""
    before = Run(tmp_path)
    before.train_and_save(3)
    after = Run(tmp_path)
    after.policy = LocalCalls([Rank(), Rank()])
    asyncio.run(restore(after, tmp_path / "step_000003"))  # type: ignore[arg-type]
    assert after.said == [
        "step_000003 is of 1 policy ranks, this run has 2: random numbers of the ranks begin anew, from seed, step "
        "and rank"
    ]


def test_time_that_training_stood_still_is_noted(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.train_and_save(3)
    [(step, metrics)] = run.logged
    assert (step, list(metrics)) == (3, ["time/checkpoint_s"])
    assert 0 < metrics["time/checkpoint_s"] < 60


@pytest.mark.parametrize("place", ["rank", "controller"])
def test_a_full_disk_costs_a_warning_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """CK-02, CK-04: keep 1; the old one stays until a new one is complete, and nothing half is left."""
    run = Run(tmp_path, keep_last=1)
    run.train_and_save(1)
    with monkeypatch.context() as patch:
        if place == "rank":
            run.rank.is_full = lambda: True
        else:
            patch.setattr(CheckpointManager, "commit", _refuse)
        run.train_and_save(2, 3)
    run.rank.is_full = lambda: False
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]
    assert [text.split(":")[0] for text in run.said] == [
        "step 2 could not be saved (1 in a row)",
        "step 3 could not be saved (2 in a row)",
    ]
    assert "No space left on device" in run.said[0]
    assert "step_000001, which is kept, takes " in run.said[0]
    assert " MiB are free in " in run.said[0]
    run.train_and_save(4)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000004"]
    assert run.saver.saved_step == 4
    run.rank.is_full = lambda: True
    run.train_and_save(5, 6)
    assert "(1 in a row)" in run.said[2], "a save that went well forgives"


def test_too_many_failures_in_a_row_stop_the_run_with_one_sentence(tmp_path: Path) -> None:
    """CK-04."""
    run = Run(tmp_path, max_failures=2)
    run.rank.is_full = lambda: True
    run.train_and_save(1)
    with pytest.raises(CheckpointError, match=r"checkpoint\.max_failures \(2\) saves in a row must not fail") as caught:
        run.train_and_save(2)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_last_step_may_not_stay_unsaved_in_silence(tmp_path: Path) -> None:
    """CK-04."""
    run = Run(tmp_path)
    run.total_steps, run.rank.is_full = 2, lambda: True
    with pytest.raises(CheckpointError, match="The last step must be saved"):
        run.train_and_save(1, 2)
    assert len(run.said) == 1


def saved_weights(folder: Path) -> dict[str, str]:
    """Return the weights in every folder that bears a step's name."""
    return {path.name: (path / "policy" / "weights").read_text() for path in sorted(folder.iterdir())}


def test_training_goes_on_while_the_state_of_that_moment_is_written(tmp_path: Path) -> None:
    run = Run(tmp_path, asynchronous=True)

    async def work() -> None:
        run.rank.may_write.clear()
        await run.step_and_save(1)
        assert run.checkpoints.latest() is None, "it is not complete yet, and training has gone on"
        run.step = run.rank.weights = 2
        run.coefficients.kl, run.stream.position, run.producer.position = 0.5, 12, 12
        assert run.saver.saved_step == 0
        run.rank.may_write.set()
        await run.saver.finish()

    asyncio.run(work())
    assert run.saver.saved_step == 1
    assert saved_weights(tmp_path) == {"step_000001": "1"}
    state = read_state(tmp_path / "step_000001", is_thorough=True)
    assert (state["step"], state["position"], state["coefficients"]["kl"]) == (1, 9, 0.1)


def test_a_save_is_complete_before_the_next_one_begins(tmp_path: Path) -> None:
    run = Run(tmp_path, asynchronous=True)

    async def work() -> None:
        run.rank.may_write.clear()
        await run.step_and_save(1)
        second = asyncio.create_task(run.step_and_save(2))
        done, _ = await asyncio.wait([second], timeout=0.2)
        assert not done
        assert run.rank.copy == 1, "the copy that is being written is not overwritten"
        run.rank.may_write.set()
        await second
        await run.saver.finish()

    asyncio.run(work())
    assert saved_weights(tmp_path) == {"step_000001": "1", "step_000002": "2"}


def test_the_last_step_is_waited_for(tmp_path: Path) -> None:
    run = Run(tmp_path, asynchronous=True)
    run.total_steps = 2
    asyncio.run(run.step_and_save(2))
    assert run.checkpoints.latest() == tmp_path / "step_000002"


def test_a_failure_in_the_background_is_the_same_warning_and_the_same_error(tmp_path: Path) -> None:
    """CK-04."""
    run = Run(tmp_path, asynchronous=True, max_failures=2)
    run.train_and_save(1)
    run.rank.is_full = lambda: True
    run.train_and_save(2)
    assert [text.split(":")[0] for text in run.said] == ["step 2 could not be saved (1 in a row)"]
    with pytest.raises(CheckpointError, match=r"checkpoint\.max_failures \(2\)"):
        run.train_and_save(3)
    assert saved_weights(tmp_path) == {"step_000001": "1"}


@pytest.mark.parametrize("is_trained_further", [False, True])
def test_a_stop_waits_for_what_is_being_written_and_saves_what_came_after(
    tmp_path: Path, is_trained_further: bool
) -> None:
    run = Run(tmp_path, asynchronous=True)

    async def work() -> None:
        run.rank.may_write.clear()
        await run.step_and_save(1)
        waiting = asyncio.create_task(run.saver.settle())
        await asyncio.sleep(0)
        waiting.cancel()
        run.rank.may_write.set()
        run.step = run.rank.weights = 1 + is_trained_further
        await run.saver.save_last()

    asyncio.run(work())
    assert run.checkpoints.latest() == tmp_path / f"step_{1 + is_trained_further:06d}"
    assert saved_weights(tmp_path)["step_000001"] == "1", "whoever waited was cancelled, not the writing"


def test_what_does_not_come_to_an_end_is_given_up_and_leaves_nothing_half(tmp_path: Path) -> None:
    run = Run(tmp_path, asynchronous=True)

    async def work() -> None:
        run.rank.may_write.clear()
        await run.step_and_save(1)
        await run.saver.close(0.1)
        run.rank.may_write.set()

    asyncio.run(work())
    assert run.checkpoints.latest() is None
    assert run.said == ["a checkpoint was not written within 0.1 s and is given up"]


def test_copies_go_to_the_mirror_and_are_kept_like_checkpoints(tmp_path: Path) -> None:
    """CK-10."""
    run = Run(tmp_path / "own", keep_last=1, mirror=f"file://{tmp_path}/mirror")
    for step, reward in ((1, 0.5), (2, 0.9), (3, 0.1), (4, 0.2)):
        run.train_and_save(step)
        run.rewards[step] = reward
    assert sorted(saved_weights(tmp_path / "own")) == ["step_000002", "step_000004"]
    assert saved_weights(tmp_path / "mirror" / "run") == {"step_000002": "2", "step_000004": "4"}
    assert run.said == []
    figures = [metrics for _, metrics in run.logged if "time/mirror_s" in metrics]
    assert [entry["checkpoint/failed_copies/count"] for entry in figures] == [0.0] * 4


def test_a_mirror_that_fails_costs_a_warning_and_a_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(tmp_path, mirror="memory://broken")
    with monkeypatch.context() as patch:
        patch.setattr(Mirror, "push", _refuse)
        run.train_and_save(1)
    assert len(run.said) == 1
    assert "step 1 could not be copied to memory://broken/run" in run.said[0]
    assert run.logged[-1][1]["checkpoint/failed_copies/count"] == 1.0
    run.train_and_save(2)
    assert len(run.said) == 1
    assert Mirror("memory://broken/run").steps() == [2]


def test_a_slow_mirror_holds_nothing_up_and_what_it_reads_is_not_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, keep_last=1, mirror="memory://slow")
    push, may_push, pushed = Mirror.push, threading.Event(), []

    def slow(mirror: Mirror, checkpoint: Path) -> None:
        assert may_push.wait(30)
        push(mirror, checkpoint)
        pushed.append(checkpoint.name)

    monkeypatch.setattr(Mirror, "push", slow)

    async def work() -> None:
        await run.step_and_save(1, 2, 3)
        assert sorted(saved_weights(tmp_path)) == ["step_000001", "step_000002", "step_000003"]
        may_push.set()
        await run.saver.finish()
        await run.step_and_save(4)
        await run.saver.finish()

    asyncio.run(work())
    assert pushed == ["step_000001", "step_000003", "step_000004"], "one that is not the newest any more is left out"
    assert sorted(saved_weights(tmp_path)) == ["step_000004"]
    assert Mirror("memory://slow/run").steps() == [4]


def test_going_on_from_an_older_checkpoint_is_clear_in_the_mirror_too(tmp_path: Path) -> None:
    run = Run(tmp_path, keep_last=9, mirror="memory://older")
    run.train_and_save(1, 2)
    run.step = 1
    asyncio.run(run.saver.go_on_from(tmp_path / "step_000001"))
    assert run.saver.saved_step == 1
    assert run.checkpoints.latest() == tmp_path / "step_000001"
    assert Mirror("memory://older/run").steps() == [1]
    assert run.said == ["steps 2 in memory://older/run: left behind by this start"]


def _refuse(*arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")
