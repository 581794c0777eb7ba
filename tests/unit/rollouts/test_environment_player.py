"""A rollout that nobody waits for any more."""

import asyncio
from typing import Any

import pytest

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.types import Task


class World:
    """Environments that are open until they are closed."""

    def __init__(self) -> None:
        self.open: set[str] = set()

    async def create(self, rollout_id: str, task: Task) -> list[dict[str, str]]:
        self.open.add(rollout_id)
        return [{"role": "user", "content": "go"}]

    def abandon(self, rollout_id: str) -> None:
        self.open.remove(rollout_id)


class Codec:
    """Two tokens for any prompt."""

    def prompt_tokens(self, messages: Any) -> list[int]:
        return [1, 2]


def test_a_rollout_that_is_given_up_leaves_no_environment_behind():
    async def scenario() -> None:
        asked = asyncio.Event()

        async def generate(request: Any) -> None:
            asked.set()
            await asyncio.sleep(60)

        config = RolloutConfig(max_turns=2, max_new_tokens=8, max_total_tokens=64)
        policy = PolicyAccess(generate=generate, codec=Codec(), config=config, seed=0)  # type: ignore[arg-type]
        player = EnvironmentPlayer(policy, world)  # type: ignore[arg-type]
        task = Task(task_id="t", family="f", payload={})
        playing = asyncio.create_task(player.play(task, Attempt(rollout_id="train-3-1", number=0, temperature=1.0)))
        await asked.wait()
        assert len(world.open) == 1
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    world = World()
    asyncio.run(scenario())
    assert world.open == set()
