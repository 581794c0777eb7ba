"""Any Gymnasium environment with discrete actions as a language task: `environment.family=gymnasium/<id>`.

The first message says what is seen and which actions there are, each later one what was seen then:

    You act in CartPole-v1. Answer with one action and nothing else.      (system)
    Observation: [0.027, -0.007, 0.036, 0.02]                             (user)
    Actions: 0, 1
    Next action?
    1                                                                     (assistant)
    Reward: 1. Observation: [0.027, 0.187, 0.036, -0.262]                 (user)
    Next action?

A task's payload may hold `seed` (int, 0: of the episode), `kwargs` (for `gymnasium.make`), `action_names` (as many as
there are actions; otherwise the environment's own attribute `action_names`, otherwise their numbers),
`observation_names` (one for each number of an array) and `instructions` (text before the first observation).
An answer that is no action's name costs its turn and changes nothing. An episode is a success where its rewards sum up
to what Gymnasium has registered as `reward_threshold`, or to 1 where it has none.
"""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from skyrl_nat.environments.family import Family
from skyrl_nat.environments.gymnasium_import import gymnasium
from skyrl_nat.errors import ConfigError, DataError
from skyrl_nat.types import Message, Task

PREFIX = "gymnasium/"
MAX_NUMBERS = 64
"""Larger observations are refused: as text they would fill a context."""
_OWN_NAMESPACE = "skyrl_nat/"
_NEXT = "Next action?"
_ROUNDING = 1e-9
_spaces = gymnasium.spaces


def open_gymnasium(environment_id: str) -> Family:
    """Return a family around one Gymnasium id; its reward is the sum of the steps' rewards.

    Args:
        environment_id: As `gymnasium.make` takes it, also `module:id`, which imports the module first.

    Raises:
        ConfigError: The id is unknown, or its spaces cannot be played as text.
    """
    if environment_id.startswith(_OWN_NAMESPACE):
        importlib.import_module("skyrl_nat.environments.jira.env")
    make(environment_id, {}).close()

    def make_environment(task: Task, max_turns: int) -> GymnasiumTextEnv:
        return GymnasiumTextEnv({"environment_id": environment_id}, {"payload": task.payload, "max_turns": max_turns})

    return Family(make_environment=make_environment, make_validator=lambda: None, close=lambda: None)


def make_tasks(environment_id: str, num_tasks: int, *, first_seed: int = 0, **payload: Any) -> list[Task]:
    """Return one task for each of `num_tasks` seeds in a row.

    Args:
        environment_id: Gymnasium id.
        num_tasks: At least 1.
        first_seed: Splits need ranges of seeds that do not overlap.
        payload: Further entries, such as `action_names`.
    """
    name = environment_id.replace("/", "-").replace(":", "-")
    return [
        Task(task_id=f"{name}-{seed}", family=PREFIX + environment_id, payload={**payload, "seed": seed})
        for seed in range(first_seed, first_seed + num_tasks)
    ]


class GymnasiumTextEnv(BaseTextEnv):
    """A skyrl-gym environment around a Gymnasium environment.

    A time limit of the environment and `max_turns` both truncate the episode: in the metrics `is_truncated` is 1 and
    `is_terminated` 0.
    """

    def __init__(self, env_config: Mapping[str, Any], extras: Mapping[str, Any]) -> None:
        """Make the environment.

        Args:
            env_config: `environment_id`.
            extras: `payload` (see the head of this file), `max_turns` (100).

        Raises:
            ConfigError: The environment cannot be made or played as text.
            DataError: A name in the payload does not fit.
        """
        super().__init__()
        self._id = str(env_config["environment_id"])
        payload: Mapping[str, Any] = extras.get("payload", {})
        self._environment = make(self._id, payload.get("kwargs", {}))
        self._actions = _action_names(self._environment, payload)
        self._observation_names = list(payload.get("observation_names", []))
        self._instructions = str(payload.get("instructions", ""))
        self._seed = int(payload.get("seed", 0))
        self.max_turns = int(extras.get("max_turns", 100))
        self._metrics: dict[str, int] = {"num_turns": 0, "num_broken": 0, "is_terminated": 0, "is_truncated": 0}
        self._total = 0.0
        self._enough = self._environment.spec.reward_threshold
        """Sum of rewards that is a success; None where Gymnasium does not say."""

    def init(self, prompt: list[Message]) -> tuple[list[Message], dict[str, Any]]:
        """Begin the episode of the task's seed and return the first messages: those given, or this file's own."""
        observation, _ = self._environment.reset(seed=self._seed)
        lines = [
            *([self._instructions] if self._instructions else []),
            f"Observation: {self._describe(observation)}",
            f"Actions: {', '.join(self._actions)}",
            _NEXT,
        ]
        system = f"You act in {self._id.rpartition(':')[2]}. Answer with one action and nothing else."
        own = [Message(role="system", content=system), Message(role="user", content="\n".join(lines))]
        return (list(prompt) or own), {}

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Do one turn.

        Args:
            action: The completion's text; blanks around the name do not matter.
        """
        self.turns += 1
        self._metrics["num_turns"] = self.turns
        reward, reason = 0.0, ""
        terminated = truncated = False
        if (name := action.strip()) in self._actions:
            number = int(getattr(self._environment.action_space, "start", 0)) + self._actions.index(name)
            observation, value, terminated, truncated, _ = self._environment.step(np.int64(number))
            reward = float(value)
            text = f"Reward: {reward:g}. Observation: {self._describe(observation)}"
        else:
            self._metrics["num_broken"] += 1
            reason = "not an action"
            text = f"Not understood. Actions: {', '.join(self._actions)}"
        self._total += reward
        if self._enough is not None:
            self._metrics["is_success"] = int(self._total > self._enough - _ROUNDING)
        is_done = bool(terminated or truncated) or self.turns >= self.max_turns
        self._metrics["is_terminated"] = int(terminated)
        self._metrics["is_truncated"] = int(is_done and not terminated)
        return BaseTextEnvStepOutput(
            observations=[] if is_done else [{"role": "user", "content": f"{text}\n{_NEXT}"}],
            reward=reward,
            done=is_done,
            metadata={**self._metrics, "reason": reason},
            postprocessed_action=name if not reason else None,
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return counts of the episode so far."""
        return dict(self._metrics)

    def close(self) -> None:
        """Close the environment."""
        self._environment.close()

    def _describe(self, observation: Any) -> str:
        return describe(observation, self._environment.observation_space, self._observation_names)


def make(environment_id: str, kwargs: Mapping[str, Any]) -> Any:
    """Return a Gymnasium environment that can be played as text.

    Raises:
        ConfigError: It cannot be made, or its spaces do not fit.
    """
    try:
        environment = gymnasium.make(environment_id, **kwargs)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ConfigError(
            f"environment.family must name a Gymnasium environment that can be made here, got {environment_id!r} "
            f"({type(error).__name__}: {error}). Write gymnasium/<id>, or gymnasium/<module>:<id>"
        ) from error
    action_space, size = environment.action_space, _size(environment.observation_space)
    if not isinstance(action_space, _spaces.Discrete) or not 0 < size <= MAX_NUMBERS:
        environment.close()
        raise ConfigError(
            f"environment.family must name one with Discrete actions and 1 to {MAX_NUMBERS} observed values, "
            f"{environment_id} has {action_space} and {environment.observation_space}. Wrap it or choose another"
        )
    return environment


def describe(value: Any, space: Any, names: Sequence[str] = ()) -> str:
    """Return an observation as text, numbers to three digits after the point.

    Args:
        value: Of the space.
        space: Discrete, Box, MultiDiscrete, MultiBinary, Text, or a Dict or Tuple of such.
        names: One for each number of an array; empty for a plain list.
    """
    if isinstance(space, _spaces.Dict):
        return ", ".join(f"{key}: {describe(value[key], part)}" for key, part in space.spaces.items())
    if isinstance(space, _spaces.Tuple):
        return "; ".join(describe(item, part) for item, part in zip(value, space.spaces, strict=True))
    if isinstance(space, _spaces.Discrete):
        return f"{int(value)} of {int(space.start)}..{int(space.start + space.n) - 1}"
    if isinstance(space, _spaces.Text):
        return str(value)
    numbers = [f"{round(float(number), 3):g}" for number in np.asarray(value).ravel()]
    if names and len(names) != len(numbers):
        raise DataError(
            f"observation_names must name each of the {len(numbers)} numbers, got {len(names)}. Correct the payload"
        )
    if names:
        return ", ".join(f"{name} {number}" for name, number in zip(names, numbers, strict=True))
    return f"[{', '.join(numbers)}]"


def _size(space: Any) -> int:
    """Return how many values an observation has; 0 where it cannot be described."""
    if isinstance(space, (_spaces.Dict, _spaces.Tuple)):
        parts = space.spaces.values() if isinstance(space, _spaces.Dict) else space.spaces
        sizes = [_size(part) for part in parts]
        return sum(sizes) if all(sizes) else 0
    if isinstance(space, (_spaces.Discrete, _spaces.Text)):
        return 1
    is_array = isinstance(space, (_spaces.Box, _spaces.MultiDiscrete, _spaces.MultiBinary))
    return int(np.prod(space.shape)) if is_array else 0


def _action_names(environment: Any, payload: Mapping[str, Any]) -> list[str]:
    space = environment.action_space
    numbers = [str(int(space.start) + index) for index in range(int(space.n))]
    own = getattr(environment.unwrapped, "action_names", numbers)
    names = [str(name) for name in payload.get("action_names", own)]
    if len(names) != len(numbers) or len(set(names)) != len(names) or any(not n or n != n.strip() for n in names):
        raise DataError(
            f"action_names must be {len(numbers)} different names without blanks around them, got {names}. Correct the "
            "payload, or leave them out for numbers"
        )
    return names
