"""Gymnasium environments as text families: FrozenLake and CartPole, which come with Gymnasium, and the Jira ids."""

import asyncio
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.specs import load_tasks, write_tasks
from skyrl_nat.environments.gymnasium_text import describe, make_tasks
from skyrl_nat.environments.jira.env import ENVIRONMENT_IDS, JiraEnv
from skyrl_nat.environments.jira.optimum import find_optimum
from skyrl_nat.environments.registry import open_family
from skyrl_nat.environments.worker import EnvironmentWorker
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.types import Task

LAKE = {"kwargs": {"is_slippery": False}, "action_names": ["left", "down", "right", "up"]}
WAY = ["down", "down", "right", "right", "down", "right"]


def open_env(environment_id: str, payload: dict[str, Any], max_turns: int = 100) -> Any:
    family = open_family(f"gymnasium/{environment_id}", EnvironmentConfig())
    assert family.make_validator() is None
    return family.make_environment(Task(task_id="t", family="x", payload=payload), max_turns)


def test_prompt_names_observation_and_actions() -> None:
    environment = open_env("FrozenLake-v1", {**LAKE, "instructions": "Reach tile 15."})
    messages, _ = environment.init([])
    assert messages == [
        {"role": "system", "content": "You act in FrozenLake-v1. Answer with one action and nothing else."},
        {
            "role": "user",
            "content": "Reach tile 15.\nObservation: 0 of 0..15\nActions: left, down, right, up\nNext action?",
        },
    ]
    given = [{"role": "user", "content": "go"}]
    assert environment.init(given)[0] == given


def test_way_over_the_lake_earns_one_and_terminates() -> None:
    environment = open_env("FrozenLake-v1", LAKE)
    environment.init([])
    outputs = [environment.step(f" {name}\n") for name in WAY]
    assert outputs[0]["observations"] == [
        {"role": "user", "content": "Reward: 0. Observation: 4 of 0..15\nNext action?"}
    ]
    assert [output["reward"] for output in outputs] == [0, 0, 0, 0, 0, 1]
    assert [output["done"] for output in outputs] == [False] * 5 + [True]
    assert (outputs[-1]["metadata"]["is_terminated"], outputs[-1]["metadata"]["is_truncated"]) == (1, 0)
    assert outputs[-1]["observations"] == []


def test_broken_answer_costs_a_turn_and_moves_nothing() -> None:
    environment = open_env("FrozenLake-v1", LAKE)
    environment.init([])
    output = environment.step("go down")
    assert output["observations"][0]["content"] == "Not understood. Actions: left, down, right, up\nNext action?"
    assert (output["reward"], output["metadata"]["num_broken"], output["metadata"]["num_turns"]) == (0.0, 1, 1)
    assert output["metadata"]["reason"] == "not an action"
    assert [environment.step(name)["reward"] for name in WAY][-1] == 1.0


def test_time_limit_and_turn_limit_truncate() -> None:
    limited = open_env("FrozenLake-v1", {**LAKE, "kwargs": {"is_slippery": False, "max_episode_steps": 3}})
    turned = open_env("FrozenLake-v1", LAKE, max_turns=3)
    for environment in (limited, turned):
        environment.init([])
        outputs = [environment.step("left") for _ in range(3)]
        assert [output["done"] for output in outputs] == [False, False, True]
        assert (outputs[-1]["metadata"]["is_terminated"], outputs[-1]["metadata"]["is_truncated"]) == (0, 1)


def test_cart_pole_is_described_with_names_and_seeded_by_the_task() -> None:
    names = ["x", "v", "angle", "spin"]
    text = [
        open_env("CartPole-v1", {"seed": seed, "observation_names": names}).init([])[0][1]["content"]
        for seed in (1, 1, 2)
    ]
    assert text[0] == "Observation: x 0.001, v 0.045, angle -0.036, spin 0.045\nActions: 0, 1\nNext action?"
    assert text[0] == text[1] != text[2]


def test_worker_sums_the_rewards_of_cart_pole() -> None:
    async def play() -> float:
        worker = EnvironmentWorker("gymnasium/CartPole-v1", EnvironmentConfig(), max_turns=5)
        await worker.create("a", make_tasks("CartPole-v1", 1)[0])
        replies = [await worker.step("a", "0") for _ in range(5)]
        assert replies[-1].is_done
        assert (replies[-1].is_truncated, replies[0].is_truncated) == (True, False)
        assert replies[-1].metrics["is_success"] == 0.0, "475 would be enough"
        await worker.shutdown()
        return sum(reply.reward for reply in replies)

    assert asyncio.run(play()) == 5.0


@pytest.mark.parametrize("environment_id", ENVIRONMENT_IDS)
def test_jira_environment_is_played_to_its_optimum_by_tool_names(environment_id: str) -> None:
    environment = open_env(environment_id, {"seed": 3})
    content = environment.init([])[0][1]["content"]
    inner = gymnasium.make(environment_id).unwrapped
    assert isinstance(inner, JiraEnv)
    assert f"Actions: {', '.join(inner.action_names)}\n" in content
    optimum = find_optimum(inner.issues[0])
    outputs = [environment.step(name) for name in optimum.tools]
    assert sum(output["reward"] for output in outputs) == pytest.approx(optimum.value)
    assert [output["metadata"]["is_success"] for output in outputs] == [0] * (len(outputs) - 1) + [1]
    assert outputs[-1]["done"]
    environment.close()


def test_tasks_have_their_seeds_and_go_through_a_file(tmp_path: Any) -> None:
    tasks = make_tasks(ENVIRONMENT_IDS[0], 3, first_seed=7, instructions="Work.")
    write_tasks(tasks, tmp_path / "tasks.parquet")
    read = load_tasks([str(tmp_path / "tasks.parquet")], family=f"gymnasium/{ENVIRONMENT_IDS[0]}")
    assert read == tasks
    assert [task.task_id for task in read] == [f"skyrl_nat-JiraIssueResolution-v0-{seed}" for seed in (7, 8, 9)]
    assert read[0].payload == {"instructions": "Work.", "seed": 7}


@pytest.mark.parametrize(
    ("value", "space", "text"),
    [
        (3, spaces.Discrete(5, start=2), "3 of 2..6"),
        (np.array([0.12345, -2.0]), spaces.Box(-5, 5, (2,)), "[0.123, -2]"),
        (np.array([1, 0]), spaces.MultiBinary(2), "[1, 0]"),
        (np.array([2, 1]), spaces.MultiDiscrete([3, 2]), "[2, 1]"),
        ("hello", spaces.Text(10), "hello"),
        ((1, np.array([0.5])), spaces.Tuple((spaces.Discrete(2), spaces.Box(0, 1, (1,)))), "1 of 0..1; [0.5]"),
        (
            {"a": 0, "b": 1},
            spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Discrete(3)}),
            "a: 0 of 0..1, b: 1 of 0..2",
        ),
        (np.array([1e-9]), spaces.Box(0, 1, (1,)), "[0]"),
    ],
)
def test_observations_of_every_space_become_text(value: Any, space: Any, text: str) -> None:
    assert describe(value, space) == text


def test_actions_that_start_elsewhere_keep_their_numbers() -> None:
    environment = open_env("FrozenLake-v1", {"kwargs": {"is_slippery": False}})
    assert environment.init([])[0][1]["content"].splitlines()[1] == "Actions: 0, 1, 2, 3"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("gymnasium/Nowhere-v0", "must name a Gymnasium environment that can be made here, got 'Nowhere-v0'"),
        ("gymnasium/Pendulum-v1", "must name one with Discrete actions and 1 to 64 observed values"),
    ],
)
def test_environment_that_cannot_be_played_is_refused_at_the_start(name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        open_family(name, EnvironmentConfig())


@pytest.mark.parametrize("names", [["left"], ["a", "a", "b", "c"], [" a", "b", "c", "d"], ["", "b", "c", "d"]])
def test_action_names_that_do_not_fit_are_refused(names: list[str]) -> None:
    with pytest.raises(DataError, match="action_names must be 4 different names"):
        open_env("FrozenLake-v1", {"action_names": names})


def test_observation_names_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="must name each of the 4 numbers, got 1"):
        open_env("CartPole-v1", {"observation_names": ["x"]}).init([])
