"""A chat loop around the task's own environment, with the real OpenAI client."""

import uuid
from typing import Any

from skyrl_nat.errors import ConfigError
from skyrl_nat.rollouts.environment_player import Environments
from skyrl_nat.rollouts.gateway_session import LENGTH_CODE, LIMIT_CODE
from skyrl_nat.rollouts.harness import HarnessContext
from skyrl_nat.types import Task


class OpenAIClientHarness:
    """`Harness` that plays what `EnvironmentPlayer` plays, over HTTP."""

    def __init__(self, environments: Environments, timeout_s: float) -> None:
        """Take the environment workers and the deadline of one request."""
        self._environments = environments
        self._timeout_s = timeout_s

    async def play(self, *, task: Task, base_url: str, api_key: str, model: str) -> dict[str, Any]:
        """Play one episode; see `Harness`."""
        from openai import AsyncOpenAI

        name = f"harness-{uuid.uuid4().hex}"
        summary: dict[str, Any] = {"environment_reward": 0.0}
        messages: list[Any] = [*await self._environments.create(name, task)]
        try:
            async with AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=self._timeout_s) as client:
                await self._chat(client, model, name, messages, summary)
        finally:
            artifact = await self._environments.close(name)
        return {**artifact, **summary}

    async def _chat(self, client: Any, model: str, name: str, messages: list[Any], summary: dict[str, Any]) -> None:
        """Ask and step in turn until the environment is done or the gateway names a limit."""
        from openai import BadRequestError

        while True:
            try:
                answer = await client.chat.completions.create(model=model, messages=messages)
            except BadRequestError as error:
                if error.code not in (LIMIT_CODE, LENGTH_CODE):
                    raise
                return
            choice = answer.choices[0]
            reply = await self._environments.step(name, choice.message.content or "")
            summary["environment_reward"] += reply.reward
            summary["is_done"] = reply.is_done
            if reply.is_policy_failure:
                summary["policy_failure"] = reply.reason
            if reply.is_done or reply.is_policy_failure or choice.finish_reason == "length":
                return
            messages += [{"role": "assistant", "content": choice.message.content}, *reply.observations]


def make_harness(context: HarnessContext) -> OpenAIClientHarness:
    """Return the harness for `rollout.harness=skyrl_nat.rollouts.harnesses.openai_client:make_harness`.

    Raises:
        ConfigError: The client is not installed.
    """
    try:
        import openai  # noqa: F401
    except ImportError as error:
        raise ConfigError("rollout.harness needs the openai package, found none. Install skyrl-nat[openai]") from error
    return OpenAIClientHarness(context.environments, context.rollout.rollout_timeout_s)
