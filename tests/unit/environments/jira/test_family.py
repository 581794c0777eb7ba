"""The family as the trainer uses it: opened by name, played by the worker, judged by the reward worker."""

import asyncio
import subprocess
import sys

import pytest

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.config.load import load_config
from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.jira.catalogue import read_issue
from skyrl_nat.environments.jira.optimum import find_optimum
from skyrl_nat.environments.judge import has_validator, make_reward_worker
from skyrl_nat.environments.registry import open_family
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.types import Outcome, Rollout, Task

TASKS = load_tasks(["builtin:jira/validation"], family="jira")
CONFIG = EnvironmentConfig(family="jira")


async def play(task: Task, answers: list[str]) -> Rollout:
    """Play one rollout and have it judged."""
    worker = EnvironmentWorker("jira", CONFIG, max_turns=10)
    judge = make_reward_worker("jira", CONFIG, timeout_s=10.0, num_threads=1)
    prompt = await worker.create("train-0-0", task)
    assert prompt[0]["role"] == "system"
    replies = [await worker.step("train-0-0", answer) for answer in answers]
    assert [reply.is_done for reply in replies] == [False] * (len(answers) - 1) + [True]
    assert not any(reply.is_policy_failure for reply in replies)
    artifact = replies[-1].artifact
    assert artifact is not None
    rollout = Rollout(
        rollout_id="train-0-0",
        task=task,
        prompt=prompt,
        turns=[],
        token_ids=[1],
        loss_mask=[False],
        rollout_logprobs=[0.0],
        token_versions=[0],
        outcome=Outcome.FINISHED,
        artifact=artifact,
        metrics={"environment_reward": sum(reply.reward for reply in replies)},
    )
    scored = await judge.score(task, rollout)
    await judge.close()
    await worker.shutdown()
    return scored


@pytest.mark.parametrize("task", TASKS[:6], ids=lambda task: task.task_id)
def test_optimal_dialogue_gets_the_full_reward(task: Task) -> None:
    optimum = find_optimum(read_issue(task.payload["issue"]))
    rollout = asyncio.run(play(task, list(optimum.tools)))
    assert rollout.reward is not None
    assert (rollout.outcome, rollout.reward.total, rollout.reward.is_success) == (Outcome.FINISHED, 1.0, True)
    assert rollout.metrics["environment_reward"] == pytest.approx(optimum.value)


def test_dialogue_without_a_tool_ends_at_the_turn_limit_with_nothing() -> None:
    rollout = asyncio.run(play(TASKS[0], ["Sure, let me see."] * 10))
    assert rollout.reward is not None
    assert rollout.reward.total == 0.0
    assert rollout.metrics["environment_reward"] == pytest.approx(-1.1)


def test_family_has_a_validator() -> None:
    assert has_validator("jira", CONFIG)
    assert open_family("jira", CONFIG).make_validator() is not None


def test_preset_names_the_family_its_files_and_a_turn_limit() -> None:
    config = load_config(["environment=jira"])
    assert (config.environment.family, config.rollout.max_turns, config.rollout.stop) == ("jira", 10, ["\n"])
    assert load_tasks(config.environment.train_files) and load_tasks(config.environment.validation_files)


def test_language_task_needs_no_gymnasium_and_the_environments_say_so() -> None:
    program = """
import sys
sys.modules["gymnasium"] = None
from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.registry import open_family
open_family("jira", EnvironmentConfig())
try:
    open_family("gymnasium/CartPole-v1", EnvironmentConfig())
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("ConfigError gymnasium must be installed for Gymnasium environments")
    assert "pip install 'skyrl-nat[gymnasium]'" in done.stdout
