"""Stop words: the token that completes one is found, whatever the tokens' borders are."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_model import make_tiny_model, make_tiny_tokenizer

from skyrl_nat.engines.stop_words import StopWatch, watch_for
from skyrl_nat.errors import EngineError

TOKENIZER = make_tiny_tokenizer()
TOKENS = st.lists(st.integers(0, 299), max_size=30)
"""Mostly no valid UTF-8, special tokens included."""
WORDS = st.sampled_from(["a", "ag", "agent", "</x>", "\u00e9", "<|im_start|>", "\n\n", "\U0001f600"])


@settings(max_examples=300)
@given(TOKENS, st.lists(WORDS, min_size=1, max_size=3), TOKENS)
def test_the_first_token_at_which_the_whole_text_contains_a_word_is_found(
    before: list[int], words: list[str], after: list[int]
) -> None:
    tokens = [*before, *TOKENIZER(words[0], add_special_tokens=False)["input_ids"], *after]
    texts = [TOKENIZER.decode(tokens[:number]) for number in range(1, len(tokens) + 1)]
    expected = next((n for n, text in enumerate(texts, 1) if any(word in text for word in words)), None)
    assert StopWatch(TOKENIZER, words).num_until_word(tokens) == expected


def test_a_word_may_come_in_several_calls() -> None:
    first, *rest = TOKENIZER("</x>", add_special_tokens=False)["input_ids"]
    watch = StopWatch(TOKENIZER, ["</x>"])
    assert watch.num_until_word([5, first]) is None
    assert watch.num_until_word([*rest, 7, 8]) == len(rest)


def test_a_folder_without_tokenizer_is_refused_only_where_there_are_words(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model")
    assert watch_for([], tmp_path) is None
    assert watch_for(["a"], folder) is not None
    with pytest.raises(EngineError, match=r"rollout\.stop needs a tokenizer"):
        watch_for(["a"], tmp_path)
