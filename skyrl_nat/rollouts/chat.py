"""Messages to tokens, once and in one direction: sampled tokens are recorded, never made again from text."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from skyrl_nat.errors import ConfigError
from skyrl_nat.types import Message

AnyMessage = Mapping[str, Any]
"""A `Message`, or one of an OpenAI client with more keys."""
NUM_KEPT = 256
"""Texts whose tokens are kept: all rollouts of a group begin alike."""
_MARK = "\u2402mark\u2403"


class ChatCodec:
    """Turns the first prompt and every later observation into tokens of one growing sequence.

    A rollout is `prompt_tokens(messages)`, then for each turn the sampled tokens followed by
    `continuation_tokens(observations)`. So the prompt of turn n + 1 starts with the exact tokens of turn n,
    whatever the chat template does to earlier messages.
    """

    def __init__(self, tokenizer: Any) -> None:
        """Take a Hugging Face tokenizer with a chat template.

        Raises:
            ConfigError: If it has no chat template or end token, or the template cannot be continued.
        """
        self._tokenizer = tokenizer
        self._kept_tokens = lru_cache(NUM_KEPT)(self._tokens_of)
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("The model's tokenizer must have a chat template, found none. Use an instruct model")
        if tokenizer.eos_token_id is None:
            raise ConfigError("The model's tokenizer must have an end token, found none. Set eos_token in its files")
        self.eos_token_id: int = tokenizer.eos_token_id
        self._base: list[Message] = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": _MARK},
        ]
        self._base_text = self._render(self._base, add_generation_prompt=False)
        self._continuation_text([{"role": "user", "content": "y"}])

    @classmethod
    def from_folder(cls, folder: Path) -> "ChatCodec":
        """Load the tokenizer of a model folder."""
        from transformers import AutoTokenizer

        return cls(AutoTokenizer.from_pretrained(str(folder)))

    def prompt_tokens(self, messages: Sequence[AnyMessage], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
        """Return the tokens of the first prompt, the opening of the assistant's turn included."""
        return self._encode(self._render(messages, tools, add_generation_prompt=True))

    def continuation_tokens(self, observations: Sequence[AnyMessage], *, is_closed: bool = True) -> list[int]:
        """Return the tokens between two answers.

        Args:
            observations: Messages that follow the answer before.
            is_closed: Whether that answer's last sampled token is an end token; otherwise one comes first here.
        """
        return self._encode(self._continuation_text(observations, is_closed=is_closed))

    def shows_tools(self, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether the chat template writes tools into a prompt."""
        plain = self._render(self._base, add_generation_prompt=True)
        return self._render(self._base, tools, add_generation_prompt=True) != plain

    def encode(self, text: str) -> list[int]:
        """Return the tokens of plain text, for checks; a rollout's tokens never come from here."""
        return self._encode(text)

    def show(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens with special ones visible, for messages."""
        return str(self._tokenizer.decode(list(token_ids)))

    def num_start_tokens(self, token_ids: Sequence[int]) -> int:
        """Return how often the start token occurs; 0 where there is none or it opens every turn (`<|im_start|>`)."""
        start = self._tokenizer.bos_token_id
        once, twice = (
            self._encode(self._render(self._base * times, add_generation_prompt=False)).count(start) for times in (1, 2)
        )
        return 0 if start is None or twice > once else list(token_ids).count(int(start))

    def closing_token(self) -> int:
        """Return the token right after an answer in a rendered dialogue."""
        text = self._render(self._base, add_generation_prompt=False)
        return self._encode(text[text.find(_MARK) + len(_MARK) :])[0]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of sampled tokens without special tokens."""
        # Of a list, transformers looks at every number first.
        return str(self._tokenizer.decode(np.asarray(token_ids, dtype=np.int64), skip_special_tokens=True))

    def _continuation_text(self, observations: Sequence[AnyMessage], *, is_closed: bool = True) -> str:
        full = self._render([*self._base, *observations], add_generation_prompt=True)
        eos = str(self._tokenizer.eos_token)
        start = self._base_text.find(_MARK) + len(_MARK)
        if start < len(_MARK) or not full.startswith(self._base_text[:start]):
            raise ConfigError(
                "The chat template must keep an assistant message as it is when others follow, and does not. "
                "Use a template whose output only grows"
            )
        tail = full[start:]
        at = tail.find(eos)
        if at < 0 or tail[:at].strip():
            raise ConfigError(
                f"The chat template must close an assistant message with the end token {eos!r}, found "
                f"{tail[:40]!r}. Fix eos_token or the template"
            )
        return tail[at + len(eos) :] if is_closed else tail

    def _render(
        self,
        messages: Sequence[AnyMessage],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        add_generation_prompt: bool,
    ) -> str:
        return str(
            self._tokenizer.apply_chat_template(
                list(messages), tools=list(tools) or None, tokenize=False, add_generation_prompt=add_generation_prompt
            )
        )

    def _encode(self, text: str) -> list[int]:
        return list(self._kept_tokens(text))

    def _tokens_of(self, text: str) -> tuple[int, ...]:
        # Templates write their own special tokens; adding more would double the BOS.
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
