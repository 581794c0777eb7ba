"""The harness of `examples/openai_client` plays."""

from pathlib import Path
from typing import Any

import pytest
from open_gateway import NumberCodec, ScriptedEngine, completion, open_gateway, run

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.rollouts.harness import HarnessContext, find_harness
from skyrl_nat.rollouts.harness_player import HarnessPlayer
from skyrl_nat.rollouts.policy_access import Attempt
from skyrl_nat.types import Message, Rollout, Task

TASK = Task(task_id="t", family="f", payload={})


class WordCodec(NumberCodec):
    """A message without numbers is a 0."""

    def _numbers(self, messages: list[Any]) -> list[int]:
        return [int(m["content"]) if m["content"].isdigit() else 0 for m in messages]


class OneStep:
    """An environment that keeps what it is told."""

    said = ""

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        return [Message(role="user", content="50")]

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        self.said = action
        return EnvironmentReply(observations=[], reward=0.0, is_done=True)

    async def close(self, rollout_id: str) -> dict[str, Any]:
        return {"said": self.said}


def test_both_answers_are_trained_and_the_second_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "examples/openai_client"))
    context = HarnessContext(environments=OneStep(), environment=EnvironmentConfig(), rollout=RolloutConfig())
    harness = find_harness("revise_harness:make_harness")(context)
    engine = ScriptedEngine(completion([7, 0]), completion([8, 0]))
    found: list[Rollout] = []

    async def scenario() -> None:
        async with open_gateway(engine, WordCodec()) as gateway:
            attempt = Attempt(rollout_id="train-3-0", number=0, temperature=1.0)
            found.append(await HarnessPlayer(harness, gateway, 20.0).play(TASK, attempt))

    run(scenario())
    assert found[0].token_ids == [100, 50, 102, 7, 0, 201, 0, 8, 0]
    assert [int(bit) for bit in found[0].loss_mask] == [0, 0, 0, 1, 1, 0, 0, 1, 1]
    assert found[0].artifact == {"said": "8", "num_sampled_tokens": 4}
