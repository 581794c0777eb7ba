"""A rollout that nobody waits for any more, or that takes longer than it may, for whatever reason."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import DeadlineError, SilentWorkerError
from skyrl_nat.rollouts import deadline
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.types import Outcome, Rollout, Task


class World:
    """Environments that are open until they are closed."""

    def __init__(self) -> None:
        self.open: set[str] = set()

    async def create(self, rollout_id: str, task: Task) -> list[dict[str, str]]:
        self.open.add(rollout_id)
        return [{"role": "user", "content": "go"}]

    async def close(self, rollout_id: str) -> dict[str, Any]:
        self.open.remove(rollout_id)
        return {}

    def abandon(self, rollout_id: str) -> None:
        self.open.remove(rollout_id)


class Codec:
    """Two tokens for any prompt."""

    def prompt_tokens(self, messages: Any) -> list[int]:
        return [1, 2]


def player_of(generate: Callable[[Any], Awaitable[Any]], world: World, timeout_s: float = 600.0) -> EnvironmentPlayer:
    config = RolloutConfig(max_turns=2, max_new_tokens=8, max_total_tokens=64, rollout_timeout_s=timeout_s)
    policy = PolicyAccess(generate=generate, codec=Codec(), config=config, seed=0)  # type: ignore[arg-type]
    return EnvironmentPlayer(policy, world)  # type: ignore[arg-type]


TASK = Task(task_id="t", family="f", payload={})
ATTEMPT = Attempt(rollout_id="train-3-1", number=0, temperature=1.0)


def test_a_rollout_that_is_given_up_leaves_no_environment_behind():
    async def scenario() -> None:
        asked = asyncio.Event()

        async def generate(request: Any) -> None:
            asked.set()
            await asyncio.sleep(60)

        playing = asyncio.create_task(player_of(generate, world).play(TASK, ATTEMPT))
        await asked.wait()
        assert len(world.open) == 1
        playing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await playing

    world = World()
    asyncio.run(scenario())
    assert world.open == set()


def play(generate: Callable[[Any], Awaitable[Any]], timeout_s: float) -> Rollout:
    world = World()
    rollout = asyncio.run(player_of(generate, world, timeout_s).play(TASK, ATTEMPT))
    assert world.open == set()
    return rollout


@pytest.mark.parametrize("error", [DeadlineError, SilentWorkerError])
def test_the_deadline_of_a_worker_is_no_deadline_of_the_rollout(error: type[Exception]):
    async def generate(request: Any) -> None:
        raise error("engine 0 must answer within 600 s")

    rollout = play(generate, 600.0)
    assert rollout.outcome is Outcome.INFRASTRUCTURE_FAILURE
    assert rollout.reason == "engine 0 must answer within 600 s"


@pytest.mark.parametrize(
    ("late_s", "outcome"), [(0.01, Outcome.INFRASTRUCTURE_FAILURE), (60.0, Outcome.TRUNCATED)], ids=["frozen", "slow"]
)
def test_a_deadline_in_a_time_in_which_the_controller_stood_still_is_not_held_against_the_rollout(
    late_s: float, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
):
    async def generate(request: Any) -> None:
        time.sleep(0.3)  # noqa: ASYNC251 - the whole controller
        await asyncio.sleep(60)

    monkeypatch.setattr(deadline, "LATE_S", late_s)
    assert play(generate, 0.1).outcome is outcome
