"""Asking the policy for one completion: limits, seed and the checks of what comes back."""

import hashlib
import math
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import NoReturn

from skyrl_nat.config.rollout import RolloutConfig
from skyrl_nat.errors import EngineError
from skyrl_nat.monitoring import spans
from skyrl_nat.rollouts.chat import ChatCodec
from skyrl_nat.types import Completion, FinishReason, GenerationRequest, SamplingParams

_ROUNDED_ONE = 1e-3
"""A probability of one, as the log of a low-precision softmax may have it."""
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
    on_answer: Callable[[], None] = lambda: None
    """Called when the policy has answered a turn."""
    trace: str | None = None
    """Span of the rollout (`spans.carried`), for requests that come from outside."""

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
    vocab_size: int = sys.maxsize
    """Of the model: token ids are below it."""

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
        with spans.span("generate", parent=attempt.trace, turn=turn, prompt_tokens=len(context)) as span:
            completion = await self.generate(request)
            _check_completion(request, completion, self.vocab_size)
            span["completion_tokens"] = len(completion.token_ids)
        attempt.on_answer()
        return completion


def request_seed(run_seed: int, rollout_id: str, turn: int) -> int:
    """Return the sampling seed of one request: 56 bits, a function of its arguments only."""
    digest = hashlib.sha256(f"{run_seed}/{rollout_id}/{turn}".encode()).digest()
    return int.from_bytes(digest[:7], "big")


def _check_completion(request: GenerationRequest, completion: Completion, vocab_size: int) -> None:
    """Refuse what cannot be a sample of the policy: it would be scored and trained as if it were."""
    if not isinstance(completion, Completion):
        _refuse(request, "answer", f"{completion!r:.80}")
    if completion.finish_reason is FinishReason.ABORT:
        _refuse(request, "finish", "it aborted")
    tokens, logprobs = completion.token_ids, completion.logprobs
    lengths = (len(tokens), len(logprobs), len(completion.token_versions))
    if len(set(lengths)) != 1:
        _refuse(request, "give a log-prob and a version for every token of", f"{lengths[1:]} for {lengths[0]} tokens")
    if strange := [token for token in tokens if not 0 <= token < vocab_size]:
        _refuse(request, f"sample tokens below {vocab_size} for", f"{strange[:5]}")
    if any(not -math.inf < logprob <= _ROUNDED_ONE for logprob in logprobs):
        _refuse(request, "give log-probs of probabilities above 0 for", f"{logprobs[:5]}")


def _refuse(request: GenerationRequest, must: str, found: str) -> NoReturn:
    raise EngineError(f"The engine must {must} request {request.request_id}, got {found}. It is retried")
