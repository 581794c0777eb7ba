"""Requests in flight at vLLM's front end, and which version sampled each of their tokens.

vLLM hands an answer over once, when it is finished: an output per token would cost more CPU time than the sampling of
a small model. At every change of weights its own counts say how far each answer was; stop words alone need each token.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from skyrl_nat.engines.stop_words import watch_for
from skyrl_nat.errors import EngineError
from skyrl_nat.types import Completion, FinishReason, GenerationRequest
from skyrl_nat.weight_sync.adapters import ADAPTER_ID

_STOP_WORD = "stop_word"
_FINISH_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, _STOP_WORD: FinishReason.STOP_WORD}
_POLL_S = 0.001


class VllmRequests:
    """Samples completions with one `AsyncLLM`.

    Args:
        llm: A started `AsyncLLM`.
        folder: The model's, for the tokenizer of stop words.
        stop_token_ids: End tokens.
        has_adapter: Whether requests go through the adapter that is pushed apart from the weights.
    """

    def __init__(self, llm: Any, folder: Path, stop_token_ids: Sequence[int], *, has_adapter: bool = False) -> None:
        self._llm = llm
        self._folder = folder
        self._stop_token_ids = list(stop_token_ids)
        self._options = {"lora_request": _adapter_request()} if has_adapter else {}
        self._num_requests = 0
        self._starts: dict[str, list[tuple[int, int]]] = {}
        """For each request (first token, version), by vLLM's external id."""
        self._entering: set[str] = set()
        self.version = 0
        """Version of the weights in service."""

    async def serve_as(self, version: int) -> None:
        """Say that tokens from now on come from other weights. Only while vLLM is paused."""
        await self._wait_until_counted()
        states = self._llm.output_processor.request_states.values()
        counts = {state.external_req_id: state.detokenizer.num_output_tokens() for state in states}
        for name, starts in self._starts.items():
            if name in counts or name in self._entering:  # others are finished and only wait to be picked up
                starts.append((counts.get(name, 0), version))
        self.version = version

    async def sample(self, request: GenerationRequest, *, max_tokens: int, seed: int) -> Completion:
        """Sample one completion.

        Raises:
            EngineError: vLLM failed, or left out log-probs.
        """
        self._num_requests += 1
        # Retried rollouts come with the same id; vLLM wants it unique.
        name = f"{request.request_id}#{self._num_requests}"
        self._starts[name] = [(0, self.version)]
        self._entering.add(name)
        try:
            token_ids, logprobs, reason = await self._run(name, request, max_tokens, seed)
            versions = _versions(self._starts[name], len(token_ids))
        except Exception as error:
            raise EngineError(
                f"vLLM must answer request {request.request_id}, found {type(error).__name__}: {error}. "
                "Retry on another engine; restart this one if it is dead."
            ) from error
        finally:
            self._entering.discard(name)
            del self._starts[name]
        if len(logprobs) != len(token_ids):
            raise EngineError(
                f"Every token must come with its log-prob, found {len(logprobs)} for {len(token_ids)} tokens "
                f"in request {request.request_id}. Retry the request."
            )
        return Completion(
            token_ids=token_ids,
            logprobs=logprobs,
            finish_reason=_FINISH_REASONS.get(reason or "", FinishReason.ABORT),
            token_versions=versions,
        )

    async def _run(
        self, name: str, request: GenerationRequest, max_tokens: int, seed: int
    ) -> tuple[list[int], list[float], str | None]:
        """Return tokens, log-probs and why it ended; a call that is left early ends the request in vLLM too."""
        from vllm import SamplingParams, TokensPrompt
        from vllm.sampling_params import RequestOutputKind

        words = request.sampling.stop
        # vLLM's own stop strings need a tokenizer inside vLLM, and it withholds text at incomplete characters.
        watch = watch_for(words, self._folder)
        sampling = SamplingParams(
            max_tokens=max_tokens,
            temperature=request.sampling.temperature,
            seed=seed,
            stop_token_ids=self._stop_token_ids,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA if watch else RequestOutputKind.FINAL_ONLY,
        )
        # The salt keeps KV of other weights out of the prefix cache's reach, whatever was dropped from it.
        prompt = TokensPrompt(prompt_token_ids=request.prompt_token_ids, cache_salt=str(self.version))
        outputs = await self._llm.add_request(name, prompt, sampling, **self._options)
        self._entering.discard(name)
        token_ids: list[int] = []
        logprobs: list[float] = []
        is_finished = False
        try:
            while not is_finished:
                output = outputs.get_nowait() or await outputs.get()
                is_finished = output.finished
                part = output.outputs[0]
                ids = list(part.token_ids)
                # An end token belongs to no word.
                num_kept = watch and watch.num_until_word(ids[:-1] if part.finish_reason == "stop" else ids)
                token_ids.extend(ids[:num_kept])
                logprobs.extend(_sampled_logprobs(ids, part.logprobs)[:num_kept])
                if num_kept:
                    return token_ids, logprobs, _STOP_WORD
            return token_ids, logprobs, part.finish_reason
        finally:
            if not is_finished:
                await self._llm.abort(outputs.request_id, internal=True)
            outputs.close()

    async def _wait_until_counted(self) -> None:
        """Wait until vLLM's front end has taken in every output of its core: it then waits for the next one."""
        handler = self._llm.output_handler
        queue = self._llm.engine_core.outputs_queue
        while handler is not None and not handler.done() and not queue._getters:  # noqa: ASYNC110 - not ours to signal
            await asyncio.sleep(_POLL_S)


def _adapter_request() -> Any:
    from vllm.lora.request import LoRARequest

    # Nobody reads the path: the adapter of this number is always there.
    return LoRARequest(lora_name="policy", lora_int_id=ADAPTER_ID, lora_path="pushed")


def _versions(starts: Sequence[tuple[int, int]], num_tokens: int) -> list[int]:
    """Return each token's version."""
    borders = [min(first, num_tokens) for first, _ in starts] + [num_tokens]
    found: list[int] = []
    for (start, end), (_, version) in zip(pairwise(borders), starts, strict=True):
        found += [version] * (end - start)
    return found


def _sampled_logprobs(token_ids: Sequence[int], logprobs: Any) -> list[float]:
    """Return the log-prob of each sampled token; vLLM's flat records may hold others beside it."""
    if logprobs is None:
        return []
    if logprobs.token_ids == token_ids:
        return logprobs.logprobs
    found: list[float] = []
    for token, start, end in zip(token_ids, logprobs.start_indices, logprobs.end_indices, strict=False):
        found.append(float(logprobs.logprobs[logprobs.token_ids.index(token, start, end)]))
    return found
