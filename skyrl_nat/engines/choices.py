"""A small model as a policy over given answers: the likeliest of them, by one batched forward pass.

Letters: C choices, P tokens of the prompt, L tokens of the longest choice, V vocabulary.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from skyrl_nat.engines.model_folder import require_folder
from skyrl_nat.errors import EngineError
from skyrl_nat.types import Message

Rule = Callable[[Sequence[Message], Sequence[str]], str]
"""(messages, choices) -> one of the choices."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One decision."""

    best: str
    scores: Mapping[str, float]
    """Choice -> summed log-prob of its tokens, or their mean; empty where the rule decided."""
    is_fallback: bool = False
    """True where the rule decided, not the model."""


class ChoicePolicy:
    """Scores strings as answers to a chat prompt.

    Choices are tokenized apart from the prompt, as tokens are that a model samples after it. With `has_end` the end of
    the turn counts as a token of every choice: otherwise a choice that another one begins with would always win.
    """

    def __init__(
        self,
        model_path: str,
        *,
        is_length_normalised: bool = False,
        has_end: bool = True,
        device: str = "cpu",
        fallback: Rule | None = None,
    ) -> None:
        """Load the model.

        Args:
            model_path: Local folder of a transformers model with a chat template.
            is_length_normalised: Score by the mean in place of the sum of log-probs.
            has_end: Whether the tokenizer's end token is scored as the last one of every choice.
            device: torch device.
            fallback: Decides where the model cannot be loaded or used, with a warning each time; None raises.

        Raises:
            EngineError: The model cannot be loaded, and there is no fallback.
        """
        self.num_fallbacks = 0
        """Decisions that the rule made."""
        self._model_path = model_path
        self._is_length_normalised = is_length_normalised
        self._has_end = has_end
        self._device = device
        self._fallback = fallback
        self._model: Any = None
        self._tokenizer: Any = None
        self._fault = ""
        try:
            self._load()
        except EngineError as error:
            if fallback is None:
                raise
            self._fault = str(error)

    def choose(self, messages: Sequence[Message], choices: Sequence[str]) -> Choice:
        """Return the choice of the highest score, the first of equal ones.

        Args:
            messages: The chat so far; the answer follows.
            choices: At least one, none empty, all different.

        Raises:
            ValueError: The choices are not so.
            EngineError: The model cannot score them, and there is no fallback.
        """
        if not choices or len(set(choices)) < len(choices) or not all(choices):
            raise ValueError(f"choices must be different strings that are not empty, got {list(choices)}. Correct them")
        try:
            if self._model is None:
                raise EngineError(self._fault)
            scores = self.score(messages, choices)
        except EngineError as error:
            if self._fallback is None:
                raise
            return self._fall_back(self._fallback, messages, choices, str(error))
        return Choice(best=max(choices, key=scores.__getitem__), scores=scores)

    def score(self, messages: Sequence[Message], choices: Sequence[str]) -> dict[str, float]:
        """Return the score of every choice.

        Raises:
            EngineError: Prompt and choice are longer than the model's context, or a score is not finite.
        """
        prompt = self._prompt_ids(messages)
        tails = [self._choice_ids(choice) for choice in choices]
        self._require_room(len(prompt) + max(map(len, tails)))
        logprobs = self._logprobs(prompt, tails)
        lengths = [len(tail) if self._is_length_normalised else 1 for tail in tails]
        scores = {
            choice: total / length for choice, total, length in zip(choices, logprobs.tolist(), lengths, strict=True)
        }
        if not all(map(math.isfinite, scores.values())):
            raise EngineError(f"scores must be finite, got {scores} of {self._model_path}. Check the model's weights")
        return scores

    @torch.inference_mode()
    def _logprobs(self, prompt: list[int], tails: list[list[int]]) -> Tensor:
        """Return `[C]` summed log-probs of each tail after the prompt, fp32.

        Rows differ in their tails only, so padding stands at the right of all that counts, and only the last L + 1
        positions need logits.
        """
        longest = max(map(len, tails))
        filler = prompt[-1]
        rows = torch.tensor([prompt + tail + [filler] * (longest - len(tail)) for tail in tails], device=self._device)
        lengths = torch.tensor([[len(tail)] for tail in tails], device=self._device)
        is_tail = torch.arange(longest, device=self._device) < lengths
        attention = torch.cat([torch.ones(len(tails), len(prompt), dtype=torch.bool, device=self._device), is_tail], 1)
        output = self._model(
            input_ids=rows, attention_mask=attention.long(), use_cache=False, logits_to_keep=longest + 1
        )
        # Logits at a position are those of the next token: `[C, L, V]`.
        logprobs = output.logits[:, -longest - 1 : -1].float().log_softmax(-1)
        picked = logprobs.gather(-1, rows[:, len(prompt) :, None])[..., 0]
        return torch.where(is_tail, picked, 0.0).sum(-1)

    def _prompt_ids(self, messages: Sequence[Message]) -> list[int]:
        ids = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
        return [int(token) for token in ids]

    def _choice_ids(self, choice: str) -> list[int]:
        ids = self._tokenizer(choice, add_special_tokens=False)["input_ids"]
        return [*ids, self._tokenizer.eos_token_id] if self._has_end else list(ids)

    def _require_room(self, num_tokens: int) -> None:
        limit = getattr(self._model.config, "max_position_embeddings", None)
        if limit is not None and num_tokens > limit:
            raise EngineError(
                f"prompt and choice must fit into the model's context of {limit} tokens, got {num_tokens}. Shorten it"
            )

    def _load(self) -> None:
        folder = require_folder(self._model_path)
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder)
            model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        except Exception as error:
            raise EngineError(
                f"transformers must load {folder}, found {type(error).__name__}: {error}. Check the folder"
            ) from error
        if not self._tokenizer.chat_template or self._tokenizer.eos_token_id is None:
            raise EngineError(f"the tokenizer of {folder} must have a chat template and an end token. Use a chat model")
        self._model = model.to(self._device).eval()

    def _fall_back(self, rule: Rule, messages: Sequence[Message], choices: Sequence[str], fault: str) -> Choice:
        self.num_fallbacks += 1
        _logger.warning("RULE IN PLACE OF THE MODEL, decision %d: %s", self.num_fallbacks, fault)
        best = rule(messages, choices)
        if best not in choices:
            raise EngineError(f"a fallback must return one of {list(choices)}, got {best!r}. Correct the rule")
        return Choice(best=best, scores={}, is_fallback=True)
