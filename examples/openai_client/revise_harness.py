"""A harness of one's own in a few lines: what an OpenAI client says is what the policy is trained on.

Any agent that takes a base URL and a key can stand in the place of `AsyncOpenAI`; it may run in another process.
"""

import uuid
from typing import Any

from openai import AsyncOpenAI, BadRequestError

from skyrl_nat.rollouts.harness import HarnessContext
from skyrl_nat.types import Task

LIMITS = ("rollout_limit", "context_length_exceeded")


class DraftAndRevise:
    """Asks for a draft, then for a better one; the environment makes the first messages and takes the answer."""

    def __init__(self, context: HarnessContext) -> None:
        """Keep what the run lends."""
        self._environments = context.environments

    async def play(self, *, task: Task, base_url: str, api_key: str, model: str) -> dict[str, Any]:
        """Play one episode; see `skyrl_nat.rollouts.harness.Harness`."""
        name = f"revise-{uuid.uuid4().hex}"
        messages: list[Any] = [*await self._environments.create(name, task)]
        try:
            async with AsyncOpenAI(base_url=base_url, api_key=api_key, timeout=600) as client:
                first = await client.chat.completions.create(model=model, messages=messages)
                messages += [first.choices[0].message, {"role": "user", "content": "Say it better, and only that."}]
                second = await client.chat.completions.create(model=model, messages=messages)
            await self._environments.step(name, second.choices[0].message.content or "")
        except BadRequestError as error:
            if error.code not in LIMITS:
                raise
        finally:
            artifact = await self._environments.close(name)
        return artifact


def make_harness(context: HarnessContext) -> DraftAndRevise:
    """Return the harness, for `rollout.harness=revise_harness:make_harness`."""
    return DraftAndRevise(context)
