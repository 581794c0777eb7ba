"""When and how the rollouts of a group are scored, with a scripted engine and environment."""

import asyncio
from dataclasses import replace

import pytest
from scripted_group import Engine, World, play, score_by_name

from skyrl_nat.errors import WorkerError
from skyrl_nat.types import Outcome


def test_hidden_part_never_reaches_the_environment_or_the_record():
    world = World(turns=1)
    seen = []

    async def score(task, rollout):
        seen.append(task.hidden)
        return await score_by_name(task, rollout)

    group = play(Engine(), world, score=score)
    assert all(task.hidden == {} for task in world.tasks)
    assert all(rollout.task.hidden == {} for rollout in group.rollouts)
    assert seen == [{"secret": 2}]


def test_validator_failure_is_scored_again_and_then_left_out():
    calls = []

    async def score(task, rollout):
        calls.append(rollout.outcome)
        if len(calls) == 1:
            return replace(rollout, outcome=Outcome.VALIDATOR_FAILURE, reason="no verdict")
        return await score_by_name(task, rollout)

    assert play(Engine(), World(turns=1), score=score).rollouts[0].outcome is Outcome.FINISHED

    assert calls == [Outcome.FINISHED] * 2, "a rollout is scored as it was played"

    async def broken(task, rollout):
        raise WorkerError("reward 0 died")

    rollout = play(Engine(), World(turns=1), score=broken).rollouts[0]
    assert (rollout.outcome, rollout.reward, rollout.reason) == (Outcome.VALIDATOR_FAILURE, None, "reward 0 died")


def test_a_rollout_is_scored_while_others_are_played():
    """The slow one, number 1, ends only once number 0 has its verdict."""
    scored = asyncio.Event()

    class Slow(Engine):
        async def generate(self, request):
            if request.request_id.startswith("train-9-1"):
                await asyncio.wait_for(scored.wait(), 10)
            return await super().generate(request)

    async def score(task, rollout):
        if rollout.rollout_id == "train-9-1":
            await asyncio.sleep(0.05)
        else:
            scored.set()
        return await score_by_name(task, rollout)

    group = play(Slow(), World(turns=1), score=score, num_rollouts=2)
    assert [rollout.rollout_id for rollout in group.valid_rollouts] == ["train-9-0", "train-9-1"]
    assert group.score_s >= 0.05, "what was waited for after the last one was played"


@pytest.mark.parametrize(("said", "is_success"), [({}, False), ({"is_success": 1.0}, True)])
def test_without_a_validator_an_environment_may_say_what_is_enough(said: dict[str, float], is_success: bool):
    class Saying(World):
        async def step(self, rollout_id, action):
            return replace(await super().step(rollout_id, action), metrics=said)

    reward = play(Engine(), Saying(turns=3), score=None).rollouts[0].reward
    assert reward is not None
    assert (reward.total, reward.is_success) == (0.75, is_success)


def test_without_a_validator_the_step_rewards_add_up():
    rollout = play(Engine(), World(turns=3), score=None).rollouts[0]
    assert rollout.reward is not None
    assert rollout.reward.total == 0.75
