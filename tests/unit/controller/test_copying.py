"""Checkpoints go to a mirror beside training, and neither a slow nor a broken one holds it up."""

import asyncio
import threading
from pathlib import Path

import pytest
from saved_run import Run, refuse, saved_weights

from skyrl_nat.checkpoint.mirror import Mirror
from skyrl_nat.controller.grace import Grace


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
        patch.setattr(Mirror, "push", refuse)
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


@pytest.mark.parametrize("is_in_time", [True, False])
def test_a_stop_while_the_last_copy_is_waited_for_leaves_it_the_grace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_in_time: bool
) -> None:
    run, url = Run(tmp_path, mirror=f"memory://stopped{is_in_time}"), f"memory://stopped{is_in_time}/run"
    push, may_push, grace = Mirror.push, threading.Event(), Grace(30 if is_in_time else 0.1)

    def slow(mirror: Mirror, checkpoint: Path) -> None:
        assert may_push.wait(30)
        push(mirror, checkpoint)

    async def work() -> None:
        await run.step_and_save(1)
        waiting = asyncio.create_task(run.saver.finish())
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if is_in_time:
            may_push.set()
        grace.begin()
        await run.saver.close(grace)
        assert Mirror(url).steps() == ([1] if is_in_time else [])
        may_push.set()

    monkeypatch.setattr(Mirror, "push", slow)
    asyncio.run(work())
    assert run.said == ([] if is_in_time else [f"the newest checkpoint was not copied to {url} in time"])
