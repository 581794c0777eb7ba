"""Plays environments for rollouts: blocking skyrl-gym calls behind asyncio."""

import asyncio
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.environments.base import EnvironmentReply
from skyrl_nat.environments.family import Family
from skyrl_nat.environments.registry import open_family
from skyrl_nat.errors import WorkerError
from skyrl_nat.rewards.deadline import call_in_thread
from skyrl_nat.types import Message, Task


class EnvironmentWorker:
    """Owns the environments of many rollouts. A plain class: the cluster part turns it into an actor.

    What one environment raises is raised to its own rollout only; the others go on.
    """

    def __init__(
        self,
        family: str | Family,
        config: EnvironmentConfig,
        *,
        max_turns: int = 8,
        call_timeout_s: float = 300.0,
        num_threads: int = 64,
    ) -> None:
        """Open the family.

        Args:
            family: Name in `environments.registry`, or a family that is open; it is closed with this worker.
            config: Section `environment`.
            max_turns: Turns of an episode at most.
            call_timeout_s: Deadline of one call of an environment.
            num_threads: Calls at once.
        """
        self._family = family if isinstance(family, Family) else open_family(family, config)
        self._max_turns = max_turns
        self._call_timeout_s = call_timeout_s
        self._slots = asyncio.Semaphore(num_threads)
        self._environments: dict[str, BaseTextEnv] = {}

    async def create(self, rollout_id: str, task: Task) -> list[Message]:
        """Make a rollout's environment and return its first messages.

        Args:
            rollout_id: Unique among the open ones.
            task: Only its visible part reaches the environment.

        Raises:
            WorkerError: The id is in use.
            DeadlineError: The environment did not answer in time.
        """
        if rollout_id in self._environments:
            raise WorkerError(
                f"a rollout id must be unique among the open ones, got {rollout_id!r} again. Close it first"
            )
        visible = task.visible()
        environment = await self._call(rollout_id, self._family.make_environment, visible, self._max_turns)
        self._environments[rollout_id] = environment
        try:
            prompt, _ = await self._call(rollout_id, environment.init, list(visible.payload.get("prompt", [])))
        except BaseException:
            self._environments.pop(rollout_id, None)
            raise
        return _messages(prompt)

    async def step(self, rollout_id: str, action: str) -> EnvironmentReply:
        """Give a completion's text to a rollout's environment; one that is done is closed and hands over its artifact.

        Raises:
            WorkerError: No such rollout is open.
            DeadlineError: The environment did not answer in time.
        """
        environment = self._get(rollout_id)
        output = await self._call(rollout_id, environment.step, action)
        metadata = output.get("metadata") or {}
        is_done = bool(output["done"])
        return EnvironmentReply(
            observations=[] if is_done else _messages(output["observations"]),
            reward=float(output["reward"]),
            is_done=is_done,
            is_policy_failure=bool(metadata.get("is_policy_failure", False)),
            is_truncated=is_done and bool(metadata.get("is_truncated", False)),
            reason=str(metadata.get("reason", "")),
            metrics=_numbers(metadata),
            artifact=await self.close(rollout_id) if is_done else None,
        )

    async def close(self, rollout_id: str) -> dict[str, Any]:
        """End a rollout's environment and return its artifact; a rollout that is not open gives an empty one."""
        environment = self._environments.pop(rollout_id, None)
        if environment is None:
            return {}
        artifact = getattr(environment, "artifact", dict)()
        await self._call(rollout_id, environment.close)
        return dict(artifact)

    def abandon(self, rollout_id: str) -> None:
        """Forget an environment that nobody waits for any more; a call that is under way in it runs to its end."""
        self._environments.pop(rollout_id, None)

    async def ping(self) -> bool:
        """Return True: the worker's loop answers."""
        return True

    async def shutdown(self) -> None:
        """Close every environment and what they share; safe to call twice."""
        for rollout_id in list(self._environments):
            await self.close(rollout_id)
        await call_in_thread(self._family.close, timeout_s=60.0, name="closing the family")

    def _get(self, rollout_id: str) -> BaseTextEnv:
        environment = self._environments.get(rollout_id)
        if environment is None:
            raise WorkerError(f"rollout {rollout_id!r} must be open for this, but it is not. Open it first")
        return environment

    async def _call(self, rollout_id: str, function: Any, *args: object) -> Any:
        async with self._slots:
            return await call_in_thread(
                function, *args, timeout_s=self._call_timeout_s, name=f"environment of {rollout_id}"
            )


def _messages(items: list[Any]) -> list[Message]:
    return [Message(role=str(item["role"]), content=str(item["content"])) for item in items]


def _numbers(values: dict[str, Any]) -> dict[str, float]:
    return {str(key): float(value) for key, value in values.items() if isinstance(value, (int, float))}
