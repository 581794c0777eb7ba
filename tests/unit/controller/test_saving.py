"""What a run saves and takes back, and what happens when the disk refuses it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fakes import LocalCalls
from saved_run import AHEAD, LOST, Rank, Run, refuse, saved_weights

from skyrl_nat.checkpoint.manager import CheckpointManager, read_state
from skyrl_nat.controller.grace import Grace
from skyrl_nat.controller.saving import restore
from skyrl_nat.controller.update import Coefficients
from skyrl_nat.errors import CheckpointError, LostWorkerError, SilentWorkerError


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


@pytest.mark.parametrize("size", [1, 3])
def test_another_number_of_ranks_is_said_plainly_and_changes_no_position(tmp_path: Path, size: int) -> None:
    """CK-08: the position is the one of 9 rows, three steps of three, whatever the number of ranks."""
    before = Run(tmp_path)
    before.policy = LocalCalls([before.rank, before.rank])
    before.train_and_save(3)
    after = Run(tmp_path)
    after.stream.position = 0
    after.policy = LocalCalls([after.rank, *(Rank() for _ in range(size - 1))])
    asyncio.run(restore(after, tmp_path / "step_000003"))  # type: ignore[arg-type]
    assert after.said == [
        f"step_000003 is of 2 policy ranks, this run has {size}: random numbers of the ranks begin anew, from seed, "
        "step and rank"
    ]
    assert (after.step, after.stream.position, after.producer.position) == (3, 9, 9)


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
            patch.setattr(CheckpointManager, "commit", refuse)
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


def test_whoever_watches_sees_that_the_run_waits_for_a_save_and_for_its_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path, asynchronous=True)
    seen: list[tuple[str, list[tuple[str, int, str]]]] = []
    commit = CheckpointManager.commit

    def watched(*arguments: Any) -> Path:
        seen.append((run.devices.phase, [(wait.role, wait.rank, wait.method) for wait in run.saver.waits]))
        return commit(*arguments)

    monkeypatch.setattr(CheckpointManager, "commit", watched)
    run.train_and_save(1)
    assert seen == [("save", [("checkpoint", 1, "commit")])]
    assert (run.devices.phase, run.saver.waits) == ("start", set())


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


@pytest.mark.parametrize("error", [SilentWorkerError, LostWorkerError])
def test_a_rank_that_dies_or_is_silent_while_it_writes_is_no_fault_of_the_disk(
    tmp_path: Path, error: type[Exception]
) -> None:
    """It is raised where the next save begins, so that the policy is started anew; nothing half is left."""
    run = Run(tmp_path, asynchronous=True)

    def die() -> bool:
        raise error("policy 0")

    async def work() -> None:
        run.rank.is_full = die
        await run.step_and_save(1)
        with pytest.raises(error):
            await run.step_and_save(2)

    asyncio.run(work())
    assert run.said == []
    assert list(tmp_path.iterdir()) == []


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
        grace = Grace(0.1)
        grace.begin()
        await run.saver.close(grace)
        run.rank.may_write.set()

    asyncio.run(work())
    assert run.checkpoints.latest() is None
    assert run.said == ["a checkpoint was not written within 0.1 s and is given up"]
