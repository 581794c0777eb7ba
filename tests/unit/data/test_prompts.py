"""The order of tasks is a pure function of seed and position (row 69)."""

import pytest

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

TASKS = [Task(task_id=f"t{i}", family="f", payload={}) for i in range(5)]


def ids(stream: PromptStream, count: int) -> list[str]:
    return [stream.next()[1].task_id for _ in range(count)]


def test_every_epoch_holds_every_task_once_in_an_order_of_its_own():
    """Rows 65 and 69."""
    order = ids(PromptStream(TASKS, seed=1), 15)
    epochs = [order[0:5], order[5:10], order[10:15]]
    assert all(sorted(epoch) == ["t0", "t1", "t2", "t3", "t4"] for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


@pytest.mark.parametrize("stop", range(11))
def test_interrupted_anywhere_the_stream_goes_on_as_if_it_was_not(stop: int):
    """Row 69: the tasks of two epochs, interrupted at every place."""
    whole = ids(PromptStream(TASKS, seed=7), 11)
    first = PromptStream(TASKS, seed=7)
    played = ids(first, stop)
    resumed = PromptStream(TASKS, seed=7, position=first.position)
    assert played + ids(resumed, 11 - stop) == whole


def test_going_back_an_epoch_gives_the_same_task():
    stream = PromptStream(TASKS, seed=3)
    early = stream.task_at(2).task_id
    stream.task_at(17)
    assert stream.task_at(2).task_id == early


def test_another_seed_gives_another_order():
    assert ids(PromptStream(TASKS, seed=1), 10) != ids(PromptStream(TASKS, seed=2), 10)


def test_no_tasks_are_refused():
    with pytest.raises(DataError, match="at least one task, got 0"):
        PromptStream([], seed=0)


@pytest.mark.parametrize("epoch", [0, 1])
def test_easy_first_orders_every_epoch_by_difficulty_and_shuffles_within(epoch: int):
    tasks = [Task(task_id=f"t{i}", family="f", payload={}, difficulty=5 - i // 4) for i in range(20)]
    stream = PromptStream(tasks, seed=1, position=20 * epoch, easy_first=True)
    levels = [stream.task_at(20 * epoch + i).difficulty for i in range(20)]
    assert levels == sorted(levels)
    assert ids(stream, 20) != [task.task_id for task in sorted(tasks, key=lambda task: task.difficulty)]
