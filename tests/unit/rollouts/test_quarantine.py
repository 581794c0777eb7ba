"""Tasks that fail every time are put aside and listed; all others keep their order, resumed or not."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from group_player import rollout

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.errors import StoppedError
from skyrl_nat.rollouts.producer import GroupProducer, ProducerLimits, ProducerState
from skyrl_nat.rollouts.quarantine import Quarantine
from skyrl_nat.types import Outcome, RolloutGroup, Task

TASKS = [Task(task_id=f"t{i}", family="f", payload={}) for i in range(4)]
START = ProducerState(position=0, finished=[], unfinished=[])
INFRASTRUCTURE = Outcome.INFRASTRUCTURE_FAILURE
Judge = Callable[[str, int], Outcome]
"""Task and stream index -> how its rollouts end."""


def poisoned(*names: str, outcome: Outcome = INFRASTRUCTURE) -> Judge:
    return lambda name, index: outcome if name in names else Outcome.FINISHED


class Player:
    """Plays groups at once; `played` has the task of each."""

    def __init__(self, judge: Judge) -> None:
        self.version = 0
        self.played: list[str] = []
        self._judge = judge

    async def __call__(self, task: Task, index: int) -> RolloutGroup:
        self.played.append(task.task_id)
        return RolloutGroup(
            task=task, index=index, rollouts=[rollout(task, self.version, self._judge(task.task_id, index))] * 2
        )


def make(player: Player, *, after: int = 2, staleness: int = 0, state: ProducerState = START) -> GroupProducer:
    limits = ProducerLimits(tasks_per_step=2, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=9)
    stream = PromptStream(TASKS, seed=0, position=state.position)
    producer = GroupProducer(player, stream, limits, quarantine=Quarantine(after))
    producer.restore(state.finished, json.loads(json.dumps(state.quarantine)))
    return producer


async def take(producer: GroupProducer, player: Player, first: int, last: int) -> list[int]:
    """Return the stream indices that are handed over in some steps."""
    player.version = first
    producer.start_at(first)
    taken: list[int] = []
    for step in range(first, last):
        taken += [group.index for group in await producer.take()]
        player.version = step + 1
        producer.advance(step + 1)
        await asyncio.sleep(0)
    return taken


def indices_of(name: str, count: int) -> list[int]:
    stream = PromptStream(TASKS, seed=0)
    return [index for index in range(4 * count) if stream.task_at(index).task_id == name]


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_a_poisoned_task_is_played_as_often_as_the_bound_says_and_the_others_keep_their_order(staleness: int):
    """4 tasks, one of them poisoned: every epoch hands over the other three, as if it were not in the set."""

    async def scenario() -> list[int]:
        taken = await take(producer, player, 0, 9)
        await producer.close()
        return taken

    player = Player(poisoned("t1"))
    producer = make(player, staleness=staleness)
    taken = asyncio.run(scenario())
    assert taken == [index for index in range(24) if index not in indices_of("t1", 6)]
    assert len(producer.quarantine) == 1
    assert "t1" in producer.quarantine
    if staleness == 0:
        assert player.played.count("t1") == 2


def test_groups_under_way_when_their_task_was_put_aside_are_left_out():
    """Its third group would be judged, but was begun before the second was lost; a resumed run would not play it."""
    second, third = indices_of("t1", 3)[1:]
    player = Player(lambda name, index: INFRASTRUCTURE if name == "t1" and index <= second else Outcome.FINISHED)

    async def scenario() -> list[int]:
        producer = make(player, staleness=8)
        taken = await take(producer, player, 0, 6)
        await producer.close()
        return taken

    taken = asyncio.run(scenario())
    assert player.played.count("t1") > 2
    assert third not in taken


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_resumed_run_hands_over_what_an_undisturbed_one_does_wherever_it_stopped(staleness: int):
    async def stopped_after(stop: int) -> list[int]:
        player = Player(poisoned("t1"))
        producer = make(player, staleness=staleness)
        taken = await take(producer, player, 0, stop)
        state = producer.state()
        await producer.close()
        producer = make(player, staleness=staleness, state=state)
        taken += await take(producer, player, stop, 9)
        await producer.close()
        return taken

    expected = [index for index in range(24) if index not in indices_of("t1", 6)]
    for stop in range(9):
        assert asyncio.run(stopped_after(stop)) == expected


def test_a_stop_in_the_middle_of_a_batch_loses_no_group_and_counts_no_failure_twice():
    """CK-05: what was taken of a batch that never became whole is kept for the next process, failures too."""
    started = asyncio.Event()

    class Slow(Player):
        async def __call__(self, task: Task, index: int) -> RolloutGroup:
            if index == 2:
                started.set()
                await asyncio.sleep(60)
            return await super().__call__(task, index)

    async def scenario() -> tuple[ProducerState, list[str]]:
        first = PromptStream(TASKS, seed=0).task_at(0).task_id
        player = Slow(poisoned(first))
        producer = make(player)
        producer.start_at(0)
        taking = asyncio.create_task(producer.take())
        await started.wait()
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        state = producer.state()
        await producer.close()
        return state, player.played

    state, played = asyncio.run(scenario())
    assert len(played) == 2
    assert (state.position, [group.index for group in state.finished], state.unfinished) == (0, [0, 1], [2])
    assert state.quarantine == {}


def test_a_stop_before_a_batch_is_trained_gives_the_next_process_the_same_batch_without_playing_it():
    """CK-05: engines are put to sleep between the two, which takes its time."""

    async def scenario() -> tuple[list[int], list[int], list[str]]:
        player = Player(poisoned("t1"))
        producer = make(player)
        await take(producer, player, 0, 2)
        batch = [group.index for group in await producer.take()]
        state, num_played = producer.state(), len(player.played)
        await producer.close()
        producer = make(player, state=state)
        again = await take(producer, player, 2, 3)
        await producer.close()
        return batch, again, player.played[num_played:]

    batch, again, played = asyncio.run(scenario())
    assert again == batch
    assert len(played) <= 2, "of the next batch alone"


@pytest.mark.parametrize("outcome", [INFRASTRUCTURE, Outcome.VALIDATOR_FAILURE])
def test_a_run_without_a_task_left_ends_with_one_named_error(outcome: Outcome):
    async def scenario() -> None:
        player = Player(poisoned("t0", "t1", "t2", "t3", outcome=outcome))
        producer = make(player, after=1)
        with pytest.raises(StoppedError, match=r"At least one task must be playable, but groups of all 4 .*after=0"):
            await take(producer, player, 0, 1)
        assert set(player.played) == {"t0", "t1", "t2", "t3"}
        await producer.close()

    asyncio.run(scenario())


def test_what_the_policy_did_puts_no_task_aside():
    """Rollouts that the screen took out are no failure of anything."""

    async def scenario() -> int:
        player = Player(poisoned("t1", outcome=Outcome.SCREENED))
        producer = make(player)
        await take(producer, player, 0, 6)
        await producer.close()
        return len(producer.quarantine)

    assert asyncio.run(scenario()) == 0


def test_a_group_given_up_by_the_watchdog_counts():
    async def play(task: Task, index: int) -> RolloutGroup:
        await asyncio.sleep(60 if index == 0 else 0)
        return RolloutGroup(task=task, index=index, rollouts=[rollout(task, 6)] * 2)

    async def scenario() -> dict[str, object]:
        limits = ProducerLimits(tasks_per_step=2, staleness=0, min_valid_rollouts=2, max_dropped_groups=9)
        producer = GroupProducer(play, PromptStream(TASKS, seed=0), limits, quarantine=Quarantine(3))
        producer.start_at(6)
        producer.drop_oldest()
        await producer.take()
        producer.advance(7)
        await producer.close()
        return producer.state().quarantine

    name = PromptStream(TASKS, seed=0).task_at(0).task_id
    assert asyncio.run(scenario()) == {name: {"failures": 1, "step": 7, "reason": "given up after a stall"}}


def test_only_failures_in_a_row_count():
    quarantine = Quarantine(2)
    for act in (lambda: quarantine.fail("a", "lost", 1), lambda: quarantine.clear("a")) * 3:
        act()
        assert "a" not in quarantine
    quarantine.fail("a", "lost", 4)
    quarantine.fail("a", "lost", 5)
    assert "a" in quarantine


def test_zero_puts_no_task_aside_and_remembers_nothing():
    quarantine = Quarantine(0)
    for step in range(5):
        quarantine.fail("a", "lost", step)
    assert (len(quarantine), quarantine.state()) == (0, {})
    quarantine.restore({"a": {"failures": 7, "step": 1, "reason": "lost"}})
    assert (len(quarantine), quarantine.state()) == (0, {})


def test_a_higher_bound_lets_tasks_out():
    lost = {"a": {"failures": 3, "step": 1, "reason": "lost"}, "b": {"failures": 4, "step": 1, "reason": "lost"}}
    quarantine = Quarantine(4)
    quarantine.restore(lost)
    assert ("a" in quarantine, "b" in quarantine) == (False, True)


def test_each_task_is_listed_once_with_its_reason_and_the_user_is_told_once(tmp_path: Path):
    file, told = tmp_path / "quarantine.jsonl", []
    quarantine = Quarantine(2, file=file, warn=told.append)
    quarantine.write()
    assert not file.exists()
    for name, step in (("a", 1), ("b", 1), ("a", 2), ("c", 3), ("b", 4)):
        quarantine.fail(name, f"no answer\nfrom engine of {name}" + "x" * 1000, step)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["task_id"], line["failures"], line["step"]) for line in lines] == [("a", 2, 2), ("b", 2, 4)]
    assert lines[0]["reason"].startswith("no answer\nfrom engine of a")
    assert len(lines[0]["reason"]) == 500
    assert [text.split(" is played no more")[0] for text in told] == ["task a", "task b"]


def test_a_run_that_goes_back_lists_what_its_checkpoint_knows(tmp_path: Path):
    file = tmp_path / "quarantine.jsonl"
    quarantine = Quarantine(1, file=file)
    quarantine.fail("a", "lost", 1)
    earlier = quarantine.state()
    quarantine.fail("b", "lost", 2)
    again = Quarantine(1, file=file)
    again.restore(earlier)
    assert len(file.read_text().splitlines()) == 2, "reading a checkpoint alone writes nothing"
    again.write()
    assert [json.loads(line)["task_id"] for line in file.read_text().splitlines()] == ["a"]


def test_a_disk_that_takes_no_list_is_said_and_the_task_is_left_out_all_the_same(tmp_path: Path):
    said: list[str] = []
    (tmp_path / "run").write_text("no folder")
    quarantine = Quarantine(1, file=tmp_path / "run" / "quarantine.jsonl", warn=said.append)
    quarantine.fail("a", "lost", 1)
    assert "a" in quarantine
    assert [text.partition(" could not be written")[0] for text in said[:1]] == [f"{tmp_path}/run/quarantine.jsonl"]
    assert said[1].startswith("task a is played no more")
