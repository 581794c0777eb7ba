import asyncio
from typing import Any

import pytest
import skyrl_gym
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput
from skyrl_gym.envs.registration import registry

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.registry import FAMILIES, open_family
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.errors import ConfigError, DeadlineError, WorkerError
from skyrl_nat.types import Task


class CountingEnv(BaseTextEnv):
    """A foreign environment: rewards the text's length, breaks on request."""

    def __init__(self, env_config: Any = None, extras: Any = None) -> None:
        super().__init__()
        self.max_turns = extras["max_turns"]
        assert "hidden" not in extras

    def step(self, action: str) -> BaseTextEnvStepOutput:
        self.turns += 1
        if action == "crash":
            raise RuntimeError("env broke")
        if action == "hang":
            import time

            time.sleep(3)
        is_done = self.turns >= self.max_turns
        observations = [] if is_done else [{"role": "user", "content": "more"}]
        return BaseTextEnvStepOutput(
            observations=observations,
            reward=float(len(action)),
            done=is_done,
            metadata={"n": 3},
            postprocessed_action=None,
        )


@pytest.fixture(autouse=True, scope="module")
def foreign() -> Any:
    skyrl_gym.register("counting_for_tests", entry_point=CountingEnv)
    yield
    registry.pop("counting_for_tests")


TASK = Task(
    task_id="t",
    family="x",
    payload={"prompt": [{"role": "user", "content": "go"}]},
    hidden={"a": 1},
)


def foreign_worker(**settings: Any) -> EnvironmentWorker:
    return EnvironmentWorker("skyrl_gym/counting_for_tests", EnvironmentConfig(), max_turns=2, **settings)


def test_foreign_environment_is_played_with_its_own_rewards() -> None:
    async def work() -> None:
        worker = foreign_worker()
        assert await worker.create("r", TASK) == [{"role": "user", "content": "go"}]
        first = await worker.step("r", "abc")
        assert (first.reward, first.is_done, first.metrics, first.artifact) == (3.0, False, {"n": 3.0}, None)
        assert first.observations == [{"role": "user", "content": "more"}]
        last = await worker.step("r", "ab")
        assert (last.reward, last.is_done, last.observations, last.artifact) == (2.0, True, [], {})
        assert await worker.close("r") == {}

    asyncio.run(work())


def test_one_crash_or_hang_is_one_rollouts_own() -> None:
    async def work() -> None:
        worker = foreign_worker(call_timeout_s=0.4)
        for name in ("a", "b", "c"):
            await worker.create(name, TASK)
        answers = await asyncio.gather(
            worker.step("a", "crash"),
            worker.step("b", "hang"),
            worker.step("c", "ok"),
            return_exceptions=True,
        )
        assert isinstance(answers[0], RuntimeError)
        assert isinstance(answers[1], DeadlineError)
        assert not isinstance(answers[2], BaseException)
        assert await worker.ping()

    asyncio.run(work())


def test_ids_are_unique_and_must_be_open() -> None:
    async def work() -> None:
        worker = foreign_worker()
        await worker.create("r", TASK)
        with pytest.raises(WorkerError, match="unique"):
            await worker.create("r", TASK)
        with pytest.raises(WorkerError, match="must be open"):
            await worker.step("other", "x")
        await worker.shutdown()
        with pytest.raises(WorkerError, match="must be open"):
            await worker.step("r", "x")

    asyncio.run(work())


def test_nat_family_hands_over_its_files() -> None:
    async def work() -> None:
        task = load_tasks(["builtin:nat_agent/validation"])[0]
        worker = EnvironmentWorker("nat_agent", EnvironmentConfig(), max_turns=2)
        prompt = await worker.create("r", task)
        assert "triple_number" in prompt[-1]["content"]
        reply = await worker.step("r", "```python agent/register.py\nx\n```<function=finish></function>")
        assert reply.is_done
        assert reply.artifact == {"files": {"agent/register.py": "x\n"}}
        assert reply.metrics == {
            "num_malformed_turns": 0.0,
            "num_validate_calls": 0.0,
            "num_test_calls": 0.0,
            "num_bash_calls": 0.0,
            "is_finished": 1.0,
            "num_turns": 1.0,
            "num_files": 1.0,
        }
        assert await worker.close("r") == {}, "it is closed already"
        await worker.shutdown()

    asyncio.run(work())


def test_unknown_families_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="nat_agent"):
        open_family("no_such", EnvironmentConfig())
    with pytest.raises(ConfigError, match="counting_for_tests"):
        open_family("skyrl_gym/no_such", EnvironmentConfig())


def test_every_family_can_be_opened() -> None:
    for name in FAMILIES:
        open_family(name, EnvironmentConfig()).close()
