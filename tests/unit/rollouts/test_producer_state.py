"""What a producer leaves in a checkpoint and takes from it: nothing is lost, nothing is trained twice."""

import asyncio
import itertools

import pytest
from group_player import TASKS, Player, make

from skyrl_nat.config.run import RunConfig, TrainerConfig
from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.rollouts.producer import GroupProducer, ProducerLimits, ProducerState
from skyrl_nat.types import Task


def resumed(player: Player, state: ProducerState, *, staleness: int, tasks: list[Task] = TASKS) -> GroupProducer:
    """Return the producer of a run that goes on from a checkpoint."""
    limits = ProducerLimits(tasks_per_step=2, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=99)
    producer = GroupProducer(player, PromptStream(tasks, seed=0, position=state.position), limits)
    producer.restore(state.finished, state.quarantine)
    return producer


async def played_ahead(delays: dict[int, float], *, staleness: int) -> ProducerState:
    """Return the state after one batch; what is not delayed has been played by then."""
    player = Player(delays=delays)
    producer = make(player, staleness=staleness)
    producer.start_at(0)
    await producer.take()
    player.version = 1
    producer.advance(1)
    await asyncio.sleep(0.01)
    state = producer.state()
    await producer.close()
    return state


def test_what_was_played_ahead_is_taken_once_and_only_the_rest_is_played_again():
    """The group that a kill caught in the middle is played again; those that were ready keep their old tokens."""

    async def scenario():
        state = await played_ahead({3: 30.0}, staleness=1)
        assert (state.position, state.unfinished) == (2, [3])
        assert [(group.index, group.oldest_version) for group in state.finished] == [(2, 0), (4, 1), (5, 1)]
        player = Player()
        player.version = 1
        producer = resumed(player, state, staleness=1)
        assert producer.state() == ProducerState(position=2, finished=state.finished, unfinished=[])
        producer.start_at(1)
        assert producer.state() == ProducerState(position=2, finished=state.finished, unfinished=[3])
        first = await producer.take()
        assert [(group.index, group.oldest_version) for group in first] == [(2, 0), (3, 1)]
        assert first[0].task == PromptStream(TASKS, seed=0).task_at(2)
        player.version = 2
        producer.advance(2)
        assert [group.index for group in await producer.take()] == [4, 5]
        await asyncio.sleep(0.01)
        assert player.started == [3, 6, 7]
        assert producer.state().position == 4, "taken, not trained"
        producer.advance(3)
        assert producer.state().position == 6
        await producer.close()

    asyncio.run(scenario())


def test_groups_that_wait_for_their_place_are_in_the_next_checkpoint_too():
    """Resumed with a lower bound, fewer are admitted at once; the others must not be lost by the next kill."""

    async def scenario():
        state = await played_ahead({}, staleness=3)
        assert [group.index for group in state.finished] == [2, 3, 4, 5, 6, 7, 8, 9]
        player = Player()
        player.version = 1
        producer = resumed(player, state, staleness=1)
        producer.start_at(1)
        await producer.take()
        assert [group.index for group in producer.state().finished] == [2, 3, 4, 5, 6, 7, 8, 9]
        producer.advance(2)
        assert [group.index for group in producer.state().finished] == [4, 5, 6, 7, 8, 9]
        await producer.close()
        assert player.started == []

    asyncio.run(scenario())


@pytest.mark.parametrize("change", ["lower bound", "other tasks"])
def test_groups_of_no_use_after_a_resume_are_played_again(change: str):
    async def scenario():
        state = await played_ahead({}, staleness=1)
        player = Player()
        player.version = 1
        tasks = [Task(task_id=f"u{i}", family="f", payload={}) for i in range(100)]
        others = {"tasks": tasks} if change == "other tasks" else {}
        producer = resumed(player, state, staleness=0 if change == "lower bound" else 1, **others)
        producer.start_at(1)
        batch = await producer.take()
        assert [(group.index, group.oldest_version) for group in batch] == [(2, 1), (3, 1)]
        assert producer.counts.stale_groups == 0
        await producer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("staleness", [0, 1, 2])
@pytest.mark.parametrize("stop", [2, 4, 6])
def test_every_row_of_three_epochs_is_trained_three_times_wherever_the_run_stops(stop: int, staleness: int):
    """CK-05: 10 rows, batches of 5, 3 epochs: 6 steps, stopped after step 2, 4 and 6, the ends of epochs."""
    tasks = TASKS[:10]
    config = RunConfig(trainer=TrainerConfig(tasks_per_step=5, epochs=3))
    assert config.total_steps(len(tasks)) == 6
    limits = ProducerLimits(tasks_per_step=5, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=9)
    seen: list[str] = []

    async def train(state: ProducerState, first: int, last: int) -> ProducerState:
        player = Player()
        player.version = first
        producer = GroupProducer(player, PromptStream(tasks, seed=4, position=state.position), limits)
        producer.restore(state.finished, state.quarantine)
        producer.start_at(first)
        for step in range(first, last):
            seen.extend(group.task.task_id for group in await producer.take())
            player.version = step + 1
            producer.advance(step + 1)
        state = producer.state()
        await producer.close()
        return state

    async def scenario() -> int:
        state = await train(ProducerState(position=0, finished=[], unfinished=[]), 0, stop)
        return (await train(state, stop, 6)).position

    assert asyncio.run(scenario()) == 30
    assert [seen.count(task.task_id) for task in tasks] == [3] * 10
    assert [sorted(seen[start : start + 10]) for start in (0, 10, 20)] == [sorted(task.task_id for task in tasks)] * 3


@pytest.mark.parametrize("staleness", [0, 2])
@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_with_flat_groups_left_out_every_other_row_is_trained_once_an_epoch_wherever_the_run_stops(
    stop: int, staleness: int
):
    """CK-05: 10 rows, of which 4 are flat in every epoch; batches of 3, 6 steps, 3 epochs."""
    tasks = TASKS[:10]
    flat = {"t0", "t3", "t4", "t9"}
    limits = ProducerLimits(tasks_per_step=3, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=9)
    stream = PromptStream(tasks, seed=4)
    places = [index for index in range(30) if stream.task_at(index).task_id not in flat]
    seen: list[int] = []
    num_flat: list[int] = []
    played: list[int] = []

    async def train(state: ProducerState, first: int, last: int) -> ProducerState:
        player = Player()
        player.version = first
        producer = GroupProducer(
            player,
            PromptStream(tasks, seed=4, position=state.position),
            limits,
            has_signal=lambda group: group.task.task_id not in flat,
        )
        producer.restore(state.finished, state.quarantine)
        producer.start_at(first)
        for step in range(first, last):
            seen.extend(group.index for group in await producer.take())
            num_flat.append(producer.counts.flat_groups)
            player.version = step + 1
            producer.advance(step + 1)
        await asyncio.sleep(0)
        state = producer.state()
        await producer.close()
        played.extend(player.finished)
        return state

    async def scenario() -> ProducerState:
        state = await train(ProducerState(position=0, finished=[], unfinished=[]), 0, stop)
        assert state.position == places[3 * stop - 1] + 1, "in rows, flat ones too"
        return await train(state, stop, 6)

    assert asyncio.run(scenario()).position == places[17] + 1
    assert seen == places
    ends = [0, *(places[3 * step - 1] + 1 for step in range(1, 7))]
    assert num_flat == [end - start - 3 for start, end in itertools.pairwise(ends)]
    assert len(played) == len(set(played)), "what was played ahead, flat or not, is not played again"
