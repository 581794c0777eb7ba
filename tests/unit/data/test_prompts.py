"""The order of tasks is a pure function of seed and position (row 69)."""

import itertools

import numpy as np
import pytest

from skyrl_nat.data.prompts import WINDOW, PromptStream
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


class Numbered:
    """A source of which each task is made when it is asked for; blocks of 10, 20, 30, 10, ... rows."""

    def __init__(self, num_blocks: int):
        self.block_starts = np.cumsum([0, *(10 * (i % 3 + 1) for i in range(num_blocks))])
        self.difficulties = np.array([i * 7 % 5 + 1 for i in range(len(self))], dtype=np.int8)

    def __len__(self) -> int:
        return int(self.block_starts[-1])

    def __getitem__(self, index: int) -> Task:
        return Task(task_id=str(index), family="f", payload={}, difficulty=int(self.difficulties[index]))

    def ids(self):
        return map(str, range(len(self)))

    def block_of(self, name: str) -> int:
        return int(np.searchsorted(self.block_starts, int(name), side="right")) - 1


@pytest.mark.parametrize("easy_first", [False, True])
@pytest.mark.parametrize("num_blocks", [1, 7, 8, 9, 50])
def test_every_epoch_over_blocks_is_a_permutation_and_resumes_at_any_place(num_blocks: int, easy_first: bool):
    source = Numbered(num_blocks)
    stream = PromptStream(source, seed=5, easy_first=easy_first)
    epochs = [ids(stream, len(source)) for _ in range(3)]
    assert all(sorted(epoch, key=int) == list(source.ids()) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    whole = [name for epoch in epochs for name in epoch]
    for position in range(0, len(whole), 13):
        resumed = PromptStream(source, seed=5, position=position, easy_first=easy_first)
        assert ids(resumed, 3)[: len(whole) - position] == whole[position : position + 3]


def test_rows_come_from_one_window_of_blocks_at_a_time_and_are_mixed_within():
    source = Numbered(48)
    blocks = [source.block_of(name) for name in ids(PromptStream(source, seed=2), len(source))]
    assert list(dict.fromkeys(blocks)) != sorted(set(blocks))
    seen: set[int] = set()
    while blocks:
        window = set(list(dict.fromkeys(blocks))[:WINDOW])
        count = sum(block in window for block in blocks)
        assert set(blocks[:count]) == window
        assert not window & seen
        assert sum(a != b for a, b in itertools.pairwise(blocks[:count])) > count / 2
        seen |= window
        blocks = blocks[count:]
    assert len(seen) == 48


def test_easy_first_over_blocks_reads_a_block_once_per_difficulty():
    source = Numbered(40)
    order = ids(PromptStream(source, seed=2, easy_first=True), len(source))
    levels = [source[int(name)].difficulty for name in order]
    assert levels == sorted(levels)
    for level in range(1, 6):
        blocks = [source.block_of(name) for name in order if source[int(name)].difficulty == level]
        for window in range(0, 40, WINDOW):
            part = list(dict.fromkeys(blocks))[window : window + WINDOW]
            places = [place for place, block in enumerate(blocks) if block in part]
            assert places == list(range(places[0], places[0] + len(places)))


def test_order_is_the_same_on_every_machine():
    """Pinned as first computed: a run that is resumed with other versions goes on in the same order."""
    assert ids(PromptStream(TASKS, seed=7), 10) == ["t3", "t0", "t1", "t4", "t2", "t0", "t3", "t1", "t4", "t2"]
    assert ids(PromptStream(Numbered(30), seed=-3, position=123_456_789), 5) == ["58", "260", "35", "305", "558"]
