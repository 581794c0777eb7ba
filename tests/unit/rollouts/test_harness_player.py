"""Rollouts that a harness plays: tokens from the gateway, outcome, artifact, reward."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from open_gateway import NumberCodec, ScriptedEngine, completion, open_gateway, run
from openai import APIStatusError, AsyncOpenAI

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.errors import ConfigError, EngineError, WorkerError
from skyrl_nat.rollouts import deadline
from skyrl_nat.rollouts.environment_player import EnvironmentPlayer
from skyrl_nat.rollouts.harness import HarnessContext, find_harness
from skyrl_nat.rollouts.harness_player import HarnessPlayer
from skyrl_nat.rollouts.policy_access import Attempt, PolicyAccess
from skyrl_nat.rollouts.runner import GroupRunner
from skyrl_nat.types import Completion, FinishReason, Message, Outcome, Rollout, Task

TASK = Task(task_id="t", family="f", payload={"x": 1}, hidden={"secret": 2})
ATTEMPT = Attempt(rollout_id="train-3-0", number=0, temperature=1.0)
OPENAI_CLIENT = "skyrl_nat.rollouts.harnesses.openai_client:make_harness"
Act = Callable[[AsyncOpenAI], Awaitable[dict[str, Any]]]


class Acting:
    """A harness that does what a test says with a real client."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.tasks: list[Task] = []

    async def play(self, *, task: Task, base_url: str, api_key: str, model: str) -> dict[str, Any]:
        self.tasks.append(task)
        async with AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=30) as client:
            return await self.act(client)


async def ask(client: AsyncOpenAI, content: str = "50") -> Any:
    return await client.chat.completions.create(model="m", messages=[{"role": "user", "content": content}])


async def ask_once(client: AsyncOpenAI) -> dict[str, Any]:
    await ask(client)
    return {"files": {"a": "b"}}


async def ask_for_ever(client: AsyncOpenAI) -> dict[str, Any]:
    while True:
        await ask(client)


async def ask_nothing(client: AsyncOpenAI) -> dict[str, Any]:
    return {}


async def hang(client: AsyncOpenAI) -> dict[str, Any]:
    await ask(client)
    await asyncio.sleep(60)
    return {}


async def wrap_up(client: AsyncOpenAI) -> dict[str, Any]:
    try:
        return await ask_for_ever(client)
    except APIStatusError:
        return {"files": {"part": "x"}}


async def blame_policy(client: AsyncOpenAI) -> dict[str, Any]:
    return {**await ask_once(client), "policy_failure": "nonsense"}


def play(act: Act, engine: Any = None, *, timeout_s: float = 20.0, **settings: Any) -> tuple[Rollout, Acting]:
    harness = Acting(act)
    found: list[Rollout] = []

    async def scenario() -> None:
        async with open_gateway(engine or ScriptedEngine(completion([7, 0])), NumberCodec(), **settings) as gateway:
            player = HarnessPlayer(harness, gateway, timeout_s, grace_s=0.2)
            found.append(await player.play(TASK, ATTEMPT))
            assert gateway._sessions == {}
        assert len(asyncio.all_tasks()) <= 2, "this one and the deadline's"

    run(scenario())
    return found[0], harness


def test_what_was_asked_through_the_gateway_is_the_rollout() -> None:
    rollout, harness = play(ask_once)
    assert rollout.token_ids == [100, 50, 102, 7, 0]
    assert [int(bit) for bit in rollout.loss_mask] == [0, 0, 0, 1, 1]
    assert (rollout.outcome, rollout.reason) == (Outcome.FINISHED, "")
    assert rollout.artifact == {"files": {"a": "b"}, "num_sampled_tokens": 2}
    assert rollout.prompt == [Message(role="user", content="50")]
    assert rollout.rollout_id == "train-3-0"
    assert [task.hidden for task in harness.tasks] == [{}], "a harness never sees the hidden part"


@pytest.mark.parametrize(
    ("act", "engine", "how", "outcome", "reason"),
    [
        (wrap_up, None, {"max_turns": 2}, Outcome.TRUNCATED, "turn limit"),
        (
            ask_once,
            ScriptedEngine(completion([7], FinishReason.LENGTH)),
            {},
            Outcome.TRUNCATED,
            "token limit of a turn",
        ),
        (blame_policy, None, {}, Outcome.POLICY_FAILURE, "nonsense"),
        (ask_nothing, None, {}, Outcome.INFRASTRUCTURE_FAILURE, "must ask the policy at least once"),
        (ask_for_ever, None, {"max_turns": 2}, Outcome.INFRASTRUCTURE_FAILURE, "harness: BadRequestError"),
        (hang, None, {"timeout_s": 2.5}, Outcome.INFRASTRUCTURE_FAILURE, "must return within 0.2 s after the deadline"),
        (
            ask_once,
            ScriptedEngine(completion([7]), error=EngineError("gone")),
            {},
            Outcome.INFRASTRUCTURE_FAILURE,
            "gone",
        ),
        (
            wrap_up,
            ScriptedEngine(completion([7]), error=EngineError("gone")),
            {},
            Outcome.INFRASTRUCTURE_FAILURE,
            "gone",
        ),
    ],
)
def test_whatever_happens_becomes_the_outcome(
    act: Act, engine: Any, how: dict[str, Any], outcome: Outcome, reason: str
) -> None:
    """Row 18: a failure of engine or harness is never a reward of 0."""
    rollout, _ = play(act, engine, **how)
    assert rollout.outcome is outcome
    assert reason in rollout.reason


def test_at_the_deadline_the_gateway_refuses_and_the_harness_returns_what_exists() -> None:
    engine = ScriptedEngine(completion([7, 0]))

    async def slow_down(client: AsyncOpenAI) -> dict[str, Any]:
        await ask(client)
        engine.delay_s = 60
        return await wrap_up(client)

    rollout, _ = play(slow_down, engine, timeout_s=2.5, max_turns=99)
    assert (rollout.outcome, rollout.reason) == (Outcome.TRUNCATED, "rollout deadline of 2.5 s")
    assert rollout.artifact == {"files": {"part": "x"}, "num_sampled_tokens": 2}
    assert rollout.num_loss_tokens == 2, "the request that was cut off left nothing"
    assert engine.num_cancelled == 1


class Counting:
    """Environments that end after some turns."""

    def __init__(self, turns: int, *, fails: bool = False, is_policy_failure: bool = False) -> None:
        self.turns = turns
        self.fails = fails
        self.is_policy_failure = is_policy_failure
        self.actions: dict[str, list[str]] = {}

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        self.actions[rollout_id] = []
        return [Message(role="user", content="50")]

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        if self.fails:
            raise WorkerError("environment 0 died")
        self.actions[rollout_id].append(action)
        is_done = len(self.actions[rollout_id]) >= self.turns
        observations = [] if is_done else [Message(role="user", content="51")]
        return EnvironmentReply(
            observations=observations,
            reward=0.25,
            is_done=is_done,
            is_policy_failure=self.is_policy_failure,
            reason="bad" if self.is_policy_failure else "",
        )

    async def close(self, rollout_id: str) -> dict[str, Any]:
        return {"said": self.actions.pop(rollout_id)}


def both_ways(make_environments: Callable[[], Counting], *answers: Completion) -> tuple[Rollout, Rollout]:
    """Return the scored rollouts of one task, by the environment and by the OpenAI client around it."""
    found: list[Rollout] = []

    async def scenario() -> None:
        config = RolloutConfig(max_turns=3, max_new_tokens=8, max_total_tokens=64, max_retries=0)
        engine = ScriptedEngine(*answers)
        policy = PolicyAccess(generate=engine.generate, codec=NumberCodec(), config=config, seed=5)  # type: ignore[arg-type]
        engine_again = ScriptedEngine(*answers)
        environments = make_environments()
        context = HarnessContext(environments=environments, environment=EnvironmentConfig(), rollout=config)
        settings = {"max_turns": 3, "max_new_tokens": 8, "max_total_tokens": 64}
        async with open_gateway(engine_again, NumberCodec(), **settings) as gateway:
            harness = HarnessPlayer(find_harness(OPENAI_CLIENT)(context), gateway, 20.0)
            for player in (EnvironmentPlayer(policy, make_environments()), harness):
                runner = GroupRunner(player=player, score=None, config=config)
                group = await runner.play_group(TASK, 3, num_rollouts=1, temperature=1.0)
                found.extend(group.rollouts)
        assert environments.actions == {}, "no environment is left open"
        seeds = [[request.sampling for request in e.requests] for e in (engine, engine_again)]
        assert seeds[0] == seeds[1]

    run(scenario())
    return found[0], found[1]


@pytest.mark.parametrize(
    ("how", "answers", "outcome"),
    [
        ({"turns": 2}, [completion([7, 0])], Outcome.FINISHED),
        ({"turns": 9}, [completion([7, 0])], Outcome.TRUNCATED),
        ({"turns": 2}, [completion([7, 8], FinishReason.STOP_WORD)], Outcome.FINISHED),
        ({"turns": 9}, [completion([7, 0]), completion([8], FinishReason.LENGTH)], Outcome.TRUNCATED),
        ({"turns": 2}, [completion([7, 0]), completion([8], FinishReason.LENGTH)], Outcome.FINISHED),
        ({"turns": 9, "is_policy_failure": True}, [completion([7, 0])], Outcome.POLICY_FAILURE),
        ({"turns": 9}, [completion([7, 0]), completion([8] * 54 + [0])], Outcome.TRUNCATED),
        ({"turns": 9, "fails": True}, [completion([7, 0])], Outcome.INFRASTRUCTURE_FAILURE),
    ],
)
def test_the_openai_client_plays_what_the_environment_plays(
    how: dict[str, Any], answers: list[Completion], outcome: Outcome
) -> None:
    """Rows 42, 44, 46 and 56: same tokens, mask, log-probs, versions, outcome and reward either way."""
    one, two = both_ways(lambda: Counting(**how), *answers)
    assert one.outcome is two.outcome is outcome
    if outcome is Outcome.INFRASTRUCTURE_FAILURE:
        assert "environment 0 died" in two.reason
        return
    num = len(two.token_ids)
    assert two.num_loss_tokens == one.num_loss_tokens
    for name in ("token_ids", "loss_mask", "rollout_logprobs", "token_versions"):
        # The environment's player keeps an observation that fills the context; nothing is sampled after it.
        assert getattr(one, name)[:num] == getattr(two, name), name
    assert one.reward == two.reward
    assert one.artifact == two.artifact
    assert (one.reason, one.segment_starts) == (two.reason, two.segment_starts)


@pytest.mark.parametrize("name", ["nowhere:make", "skyrl_nat.rollouts.harness:nothing"])
def test_a_harness_that_cannot_be_found_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.harness must be module:function"):
        find_harness(name)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"stop": ["a", ""]}, "rollout.stop"),
        ({"stop": list("abcdefghi")}, "rollout.stop"),
        ({"harness": "module"}, "rollout.harness"),
        ({"gateway_port": 70000}, "rollout.gateway_port"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        RolloutConfig(**settings)


def test_a_controller_that_stood_still_is_not_held_against_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    async def freeze(client: AsyncOpenAI) -> dict[str, Any]:
        time.sleep(1.0)  # noqa: ASYNC251 - all of it
        return await hang(client)

    monkeypatch.setattr(deadline, "LATE_S", 0.1)
    rollout, _ = play(freeze, None, timeout_s=0.3)
    assert rollout.outcome is Outcome.INFRASTRUCTURE_FAILURE
    assert "the controller stood still" in rollout.reason
