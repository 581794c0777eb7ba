"""Stop words in sampled tokens: one definition for all engines, so that all end at the same token."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.errors import EngineError


class StopWatch:
    """Watches one completion. It decodes only as many tokens as the longest word can span."""

    def __init__(self, tokenizer: Any, words: Sequence[str]) -> None:
        """Take a Hugging Face tokenizer and at least one word, none of them empty."""
        self._tokenizer = tokenizer
        self._words = tuple(words)
        # A token gives at least one byte; one token more keeps decoders that trim a beginning away from the word.
        self._span = 1 + max(len(word.encode()) for word in words)
        self._tail: list[int] = []

    def completes_word(self, token_id: int) -> bool:
        """Take the next sampled token and return whether the text now contains one of the words."""
        self._tail = [*self._tail[1 - self._span :], token_id]
        text = self._tokenizer.decode(self._tail)
        return any(word in text for word in self._words)

    def num_until_word(self, token_ids: Sequence[int]) -> int | None:
        """Take the next sampled tokens and return how many end with one that completes a word, None if none does."""
        return next((number for number, token in enumerate(token_ids, 1) if self.completes_word(token)), None)


def watch_for(words: Sequence[str], folder: Path) -> StopWatch | None:
    """Return a watch with the tokenizer of a model folder; None of no words, which needs no tokenizer.

    Raises:
        EngineError: The folder has no tokenizer.
    """
    return StopWatch(_read_tokenizer(folder), words) if words else None


@functools.cache
def _read_tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError) as error:
        raise EngineError(
            f"rollout.stop needs a tokenizer in {folder}, found: {error}. Add its files or leave stop words out."
        ) from error
