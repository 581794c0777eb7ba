"""Staleness is a number: what starts when, what is handed over, what is left out."""

import asyncio

import pytest
from group_player import TASKS, Player, make, rollout

from skyrl_nat.data.prompts import PromptStream
from skyrl_nat.errors import StoppedError
from skyrl_nat.rollouts.producer import MAX_FLAT_BATCHES, GroupProducer, ProducerLimits
from skyrl_nat.types import Outcome, RolloutGroup, Task


async def run_batches(player: Player, producer: GroupProducer, count: int) -> list[list[int]]:
    producer.start_at(0)
    batches = []
    for step in range(count):
        batches.append([group.index for group in await producer.take()])
        await asyncio.sleep(0.01)
        player.version = step + 1
        producer.advance(step + 1)
    await producer.close()
    return batches


def test_staleness_zero_plays_only_the_current_batch():
    async def scenario():
        player = Player()
        producer = make(player, staleness=0)
        producer.start_at(0)
        await producer.take()
        await asyncio.sleep(0.02)
        assert player.started == [0, 1], "nothing of batch 1 before the weights of step 1 are in the engines"
        player.version = 1
        producer.advance(1)
        await producer.take()
        assert player.started == [0, 1, 2, 3]
        await producer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("staleness", [1, 2])
def test_staleness_s_plays_s_batches_ahead_and_no_more(staleness: int):
    async def scenario():
        player = Player()
        producer = make(player, staleness=staleness)
        producer.start_at(0)
        await producer.take()
        await asyncio.sleep(0.02)
        assert len(player.started) == 2 * (staleness + 1)
        await producer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_no_group_is_handed_over_staler_than_the_bound(staleness: int):
    async def scenario():
        player = Player()
        producer = make(player, staleness=staleness)
        producer.start_at(0)
        for step in range(6):
            for group in await producer.take():
                assert step - group.oldest_version <= staleness
            await asyncio.sleep(0.005)
            player.version = step + 1
            producer.advance(step + 1)
        assert producer.counts.stale_groups == 0
        await producer.close()

    asyncio.run(scenario())


def test_quick_groups_do_not_displace_slow_ones():
    player = Player(delays={0: 0.05, 3: 0.05})
    batches = asyncio.run(run_batches(player, make(player, staleness=2), 3))
    assert batches == [[0, 1], [2, 3], [4, 5]]
    assert player.finished[0] != 0, "the slow group really was slower"


def test_failed_groups_are_replaced_and_counted():
    async def scenario():
        player = Player(failing=frozenset({1}))
        producer = make(player, staleness=0)
        producer.start_at(0)
        batch = await producer.take()
        assert [group.index for group in batch] == [0, 2]
        assert producer.counts.dropped_groups == 1
        assert producer.counts.outcomes[Outcome.INFRASTRUCTURE_FAILURE] == 2
        assert producer.next_position == 0, "nothing of it is trained"
        producer.advance(1)
        assert producer.next_position == 3
        await producer.close()

    asyncio.run(scenario())


def test_one_stale_member_makes_the_whole_group_stale():
    """WS-07: versions 10, 10, 8, 10 at version 11 with bound 2 have lag 3."""

    async def play(task: Task, index: int) -> RolloutGroup:
        versions = [10, 10, 8, 10] if index == 0 else [11] * 4
        return RolloutGroup(task=task, index=index, rollouts=[rollout(task, version) for version in versions])

    async def scenario():
        producer = GroupProducer(
            play,
            PromptStream(TASKS, seed=0),
            ProducerLimits(tasks_per_step=1, staleness=2, min_valid_rollouts=2, max_dropped_groups=3),
        )
        producer.start_at(11)
        batch = await producer.take()
        assert batch[0].index != 0
        assert producer.counts.stale_groups == 1
        await producer.close()

    asyncio.run(scenario())


def test_run_stops_with_the_cause_when_nothing_is_usable():
    async def scenario():
        player = Player(failing=frozenset(range(100)))
        producer = make(player, staleness=0)
        producer.start_at(0)
        with pytest.raises(StoppedError, match="At least one in 3 groups must be usable"):
            await producer.take()
        await producer.close()

    asyncio.run(scenario())


def test_close_leaves_no_task_running():
    async def scenario():
        player = Player(delays=dict.fromkeys(range(100), 30.0))
        producer = make(player, staleness=3)
        producer.start_at(0)
        await asyncio.sleep(0.01)
        await producer.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())


class Graded(Player):
    """Groups whose index is in `flat` have equal rewards."""

    def __init__(self, flat: set[int]):
        super().__init__()
        self.flat = flat

    def has_signal(self, group: RolloutGroup) -> bool:
        return group.index not in self.flat


def filtering(player: Graded, *, staleness: int = 0) -> GroupProducer:
    limits = ProducerLimits(tasks_per_step=2, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=3)
    return GroupProducer(player, PromptStream(TASKS, seed=0), limits, has_signal=player.has_signal)


def test_flat_groups_are_left_out_and_others_played_until_the_batch_is_full():
    """DAPO's dynamic sampling; on-policy, a batch plays no more than it needs."""
    player = Graded({0, 2, 3})
    producer = filtering(player)
    assert asyncio.run(run_batches(player, producer, 2)) == [[1, 4], [5, 6]]
    assert player.started == [0, 1, 2, 3, 4, 5, 6]


def test_a_batch_of_flat_groups_alone_is_taken_in_the_end():
    player = Graded(set(range(1000)))
    producer = filtering(player)
    batches = asyncio.run(run_batches(player, producer, 1))
    assert batches == [[20, 21]]
    assert producer.counts.flat_groups == MAX_FLAT_BATCHES * 2


def test_what_is_played_ahead_stands_in_for_flat_groups_and_stays_in_order():
    """No usable group is thrown away: batches hold the stream's groups in order."""
    player = Graded({1, 6})
    assert asyncio.run(run_batches(player, filtering(player, staleness=1), 3)) == [[0, 2], [3, 4], [5, 7]]


def test_a_flat_group_is_replaced_before_its_turn_comes():
    """Group 0 takes long; group 1, known to be flat by then, has its substitute running already."""
    player = Graded({1})
    player.delays = {0: 0.2}
    producer = filtering(player)

    async def scenario() -> list[int]:
        producer.start_at(0)
        taking = asyncio.create_task(producer.take())
        await asyncio.sleep(0.1)
        started = list(player.started)
        await taking
        await producer.close()
        return started

    assert asyncio.run(scenario()) == [0, 1, 2]


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_resumed_run_has_no_more_in_flight_than_a_new_one(staleness: int):
    """Row 70: at stream position 7 and version 3, in flight and waiting together stay within (S + 1) P."""

    async def scenario():
        player = Player()
        player.version = 3
        limits = ProducerLimits(tasks_per_step=2, staleness=staleness, min_valid_rollouts=2, max_dropped_groups=3)
        producer = GroupProducer(player, PromptStream(TASKS, seed=0, position=7), limits)
        assert producer.next_position == 7
        producer.start_at(3)
        for step in range(3):
            await asyncio.sleep(0.01)
            assert player.started == list(range(7, 7 + 2 * (step + staleness + 1)))
            assert [group.index for group in await producer.take()] == [7 + 2 * step, 8 + 2 * step]
            player.version = 4 + step
            producer.advance(4 + step)
        await producer.close()

    asyncio.run(scenario())


def test_staleness_is_measured_when_a_group_is_taken():
    """Row 63: played at version 0 and held while the engines went on to 5, its lag is 5 and not 0."""

    async def scenario():
        player = Player()
        producer = make(player, staleness=4, max_dropped=20)
        producer.start_at(0)
        await asyncio.sleep(0.01)
        player.version = 5
        for version in range(1, 6):
            producer.advance(version)
        batch = await producer.take()
        assert [group.oldest_version for group in batch] == [5, 5]
        assert producer.counts.stale_groups == 10, "five batches were played before the first push"
        await producer.close()

    asyncio.run(scenario())


def test_every_group_that_was_played_is_handed_over_or_counted():
    """Row 55: groups in are groups out plus counted drops."""
    player = Player(failing=frozenset({1, 4, 5}))
    producer = make(player, staleness=1)

    async def scenario() -> tuple[int, int]:
        producer.start_at(0)
        handed_over = dropped = 0
        for step in range(4):
            handed_over += len(await producer.take())
            dropped += producer.counts.dropped_groups
            player.version = step + 1
            producer.advance(step + 1)
        await producer.close()
        return handed_over, dropped

    assert asyncio.run(scenario()) == (8, 3)
    assert producer.next_position == 8 + 3
