"""Asking the policy for one completion: limits, seed and the checks of what comes back."""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import EngineError
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams

GenerateFn = Callable[[GenerationRequest], Awaitable[Completion]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try of playing a rollout."""

    rollout_id: str
    """The same over attempts, so that seeds are too."""
    number: int
    """Counted from 0."""
    temperature: float
    """0 for greedy."""

    @property
    def name(self) -> str:
        """Unique name of the attempt."""
        return f"{self.rollout_id}.{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAccess:
    """What every player needs to ask the policy."""

    generate: GenerateFn
    """One engine call."""
    codec: ChatCodec
    """Messages to tokens."""
    config: RolloutConfig
    seed: int
    """Of all sampling in the run."""

    def room(self, context: list[int]) -> int:
        """Return how many tokens may follow a context; below 1 where it is full."""
        return self.config.max_total_tokens - len(context)

    async def ask(
        self,
        attempt: Attempt,
        turn: int,
        context: list[int],
        *,
        max_new_tokens: int | None = None,
        stop: tuple[str, ...] = (),
    ) -> Completion:
        """Sample one completion.

        Args:
            attempt: Whose.
            turn: Number of the request in the rollout.
            context: All tokens so far; must leave room.
            max_new_tokens: A limit besides those of the config.
            stop: Stop words besides those of the config.

        Raises:
            EngineError, DeadlineError: There is no answer, or none that can be trained on.
        """
        limits = [self.room(context), self.config.max_new_tokens]
        request = GenerationRequest(
            request_id=f"{attempt.name}/{turn}",
            prompt_token_ids=context,
            sampling=SamplingParams(
                max_new_tokens=min(limits if max_new_tokens is None else [*limits, max_new_tokens]),
                temperature=attempt.temperature,
                seed=request_seed(self.seed, attempt.rollout_id, turn),
                stop=tuple(dict.fromkeys([*self.config.stop, *stop])),
            ),
        )
        completion = await self.generate(request)
        _check_completion(request, completion)
        return completion


def request_seed(run_seed: int, rollout_id: str, turn: int) -> int:
    """Return the sampling seed of one request: 56 bits, a function of its arguments only."""
    digest = hashlib.sha256(f"{run_seed}/{rollout_id}/{turn}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _check_completion(request: GenerationRequest, completion: Completion) -> None:
    if completion.finish_reason is FinishReason.ABORT:
        raise EngineError(f"The engine must finish request {request.request_id}, it was aborted. It is retried")
    lengths = (len(completion.token_ids), len(completion.logprobs), len(completion.token_versions))
    if len(set(lengths)) != 1:
        raise EngineError(
            f"The engine must give a log-prob and a version for every token of request {request.request_id}, got "
            f"{lengths[1]} and {lengths[2]} for {lengths[0]} tokens. It is retried"
        )
