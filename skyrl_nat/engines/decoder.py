"""Decode loop of the embedded engine: continuous batches over `KvSlots`, one step at a time.

No threads and no asyncio here; `engines/hf.py` owns the thread that calls `step`.
Letters: R active rows, V vocabulary, T tokens.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from skyrl_nat.engines.kv_slots import KvSlots
from skyrl_nat.engines.stop_words import StopWatch
from skyrl_nat.types import Completion, FinishReason


@dataclass(slots=True, kw_only=True, eq=False)
class DecodingRequest:
    """One request on its way."""

    tokens: list[int]
    """Prompt and what has been sampled so far."""
    num_prompt_tokens: int
    max_tokens: int
    """Length at which sampling ends; above the prompt's."""
    temperature: float
    """0 is greedy."""
    stream: random.Random
    """The request's own random numbers: what it samples depends on nothing else."""
    watch: StopWatch | None = None
    """Looks for stop words, where there are any."""
    logprobs: list[float] = field(default_factory=list)
    token_versions: list[int] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    """None while tokens are missing."""

    def completion(self) -> Completion:
        """Return the answer."""
        return Completion(
            token_ids=self.tokens[self.num_prompt_tokens :],
            logprobs=self.logprobs,
            finish_reason=self.finish_reason or FinishReason.ABORT,
            token_versions=self.token_versions,
        )


class Decoder:
    """Samples for many requests at once; new ones join at any step, finished ones leave at once.

    Args:
        model: A transformers causal LM with `slot_attention`, in eval mode.
        slots: Its KV rows.
        stop_token_ids: Tokens that end a completion; they are returned.
        shares_prefixes: Reuse the KV of common prefixes, of finished requests too.
        is_alone: Compute one request at a time.
    """

    def __init__(
        self,
        model: Any,
        slots: KvSlots,
        stop_token_ids: Sequence[int],
        *,
        shares_prefixes: bool,
        is_alone: bool,
    ) -> None:
        self.model = model
        self.slots = slots
        self.stop_token_ids = frozenset(stop_token_ids)
        self.shares_prefixes = shares_prefixes and not is_alone
        self.is_alone = is_alone
        self.version = 0
        self.active: list[DecodingRequest] = []
        """In the order of the KV rows."""
        self.waiting: deque[DecodingRequest] = deque()

    @property
    def has_work(self) -> bool:
        """Whether a step would sample anything."""
        return bool(self.active or self.waiting)

    @torch.inference_mode()
    def step(self) -> list[DecodingRequest]:
        """Admit what fits, sample one token for each active request; returns the finished ones."""
        self._admit()
        finished = self._retire()
        if self.active:
            self._decode()
            finished += self._retire()
        return finished

    @torch.inference_mode()
    def cancel(self, request: DecodingRequest) -> None:
        """Drop a request wherever it is."""
        request.finish_reason = FinishReason.ABORT
        if request in self.waiting:
            self.waiting.remove(request)
        elif request in self.active:
            self._remove(self.active.index(request))

    def restart(self, version: int) -> None:
        """Go on with new weights: no KV survives, running requests keep their tokens."""
        self.version = version
        self.slots.clear()
        self.waiting.extendleft(reversed(self.active))
        self.active = []

    def _admit(self) -> None:
        while self.waiting and self._fits(self.waiting[0]):
            first = self.waiting.popleft()
            row, start = self.slots.admit(first.tokens, first.max_tokens, may_reuse=self.shares_prefixes)
            self.active.append(first)
            self.slots.begin_prefill(row, start, first.tokens)
            logits = self._forward([first.tokens[start:]], torch.arange(start, len(first.tokens)))
            group = [first]
            for other in self._same_sequence(first):
                if not self._fits(other):
                    break
                self.waiting.remove(other)
                self.slots.fork(row, other.max_tokens)
                self.active.append(other)
                group.append(other)
            self._sample(group, logits.expand(len(group), -1))
            if any(request.finish_reason for request in group):
                return  # rows must leave before others take their places

    def _fits(self, request: DecodingRequest) -> bool:
        if self.is_alone:
            return not self.active
        return self.slots.can_admit(request.max_tokens)

    def _same_sequence(self, first: DecodingRequest) -> list[DecodingRequest]:
        """Return the waiting requests with the very tokens of `first`: the other rollouts of its group."""
        if self.is_alone:
            return []
        prefix = first.tokens
        return [other for other in self.waiting if other.tokens == prefix]

    def _decode(self) -> None:
        new_tokens = [request.tokens[-1] for request in self.active]
        positions = self.slots.begin_decode(new_tokens)
        logits = self._forward([[token] for token in new_tokens], positions[:, None])
        self._sample(self.active, logits)

    def _forward(self, tokens: list[list[int]], positions: Tensor) -> Tensor:
        """Return `[R, V]` logits of the last position, fp32."""
        device = self.slots.shape.device
        output = self.model(
            input_ids=torch.tensor(tokens, device=device),
            position_ids=positions.to(device).reshape(len(tokens), -1),
            use_cache=False,
            logits_to_keep=1,
            kv_slots=self.slots,
        )
        return output.logits[:, -1].float()

    def _sample(self, requests: Sequence[DecodingRequest], logits: Tensor) -> None:
        """Append one token to each request.

        Args:
            requests: R requests.
            logits: `[R, V]` fp32.
        """
        temperatures = [request.temperature for request in requests]
        if any(t not in (0.0, 1.0) for t in temperatures):
            divisors = torch.tensor([t or 1.0 for t in temperatures], device=logits.device)
            logits = logits / divisors[:, None]
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = self._choose(requests, logprobs, temperatures)
        chosen_logprobs = logprobs.gather(1, chosen[:, None])[:, 0].tolist()
        for request, token, logprob in zip(requests, chosen.tolist(), chosen_logprobs, strict=True):
            request.tokens.append(token)
            request.logprobs.append(logprob)
            request.token_versions.append(self.version)
            if token in self.stop_token_ids:
                request.finish_reason = FinishReason.STOP
            elif request.watch is not None and request.watch.completes_word(token):
                request.finish_reason = FinishReason.STOP_WORD
            elif len(request.tokens) >= request.max_tokens:
                request.finish_reason = FinishReason.LENGTH

    def _choose(self, requests: Sequence[DecodingRequest], logprobs: Tensor, temperatures: list[float]) -> Tensor:
        """Return `[R]` token ids: the most likely one, or by inversion of the distribution function."""
        if not any(temperatures):
            return logprobs.argmax(dim=-1)
        draws = [request.stream.random() for request in requests]
        # In double precision: over a large vocabulary fp32 sums would bias the tail.
        distribution = logprobs.exp().to(torch.float64).cumsum(dim=-1)
        targets = torch.tensor(draws, dtype=torch.float64, device=logprobs.device)
        targets = (targets * distribution[:, -1])[:, None]
        sampled = torch.searchsorted(distribution, targets, right=True)[:, 0]
        sampled = sampled.clamp_(max=logprobs.shape[-1] - 1)
        if all(temperatures):
            return sampled
        is_greedy = torch.tensor([t == 0 for t in temperatures], device=logprobs.device)
        return torch.where(is_greedy, logprobs.argmax(dim=-1), sampled)

    def _retire(self) -> list[DecodingRequest]:
        finished = []
        for row in range(len(self.active) - 1, -1, -1):
            if self.active[row].finish_reason is not None:
                finished.append(self._remove(row))
        return finished

    def _remove(self, row: int) -> DecodingRequest:
        self.slots.release(row)
        request = self.active[row]
        last = self.active.pop()
        if request is not last:
            self.active[row] = last
        return request
