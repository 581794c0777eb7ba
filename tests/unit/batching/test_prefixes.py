"""Equal beginnings are computed once, and every token finds what stands for it."""

import random

import pytest

from skyrl_nat.batching.prefixes import MIN_SHARED_TOKENS, common_prefix, plan_computation


def test_common_prefix_by_hand() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common_prefix([1, 2], [1, 2, 3]) == 2
    assert common_prefix([9], [1]) == 0
    assert common_prefix([], [1]) == 0


def test_a_prompt_of_three_rollouts_is_computed_once() -> None:
    prompt = list(range(20))
    computed, source, borders = plan_computation([[*prompt, 50, 51], [*prompt, 60], [*prompt, 70, 71, 72]])
    assert computed.tolist() == [*range(22), 42, 63, 64, 65]
    assert borders.tolist() == [0, 22, 23, 26]
    assert source.tolist() == [*range(22), *range(20), 22, *range(20), 23, 24, 25]


def test_short_common_beginnings_are_computed_again() -> None:
    prompt = list(range(MIN_SHARED_TOKENS - 1))
    computed, source, _ = plan_computation([[*prompt, 50], [*prompt, 60]])
    assert computed.tolist() == source.tolist() == list(range(2 * MIN_SHARED_TOKENS))


def test_of_equal_sequences_the_last_token_is_computed_each_time() -> None:
    sequence = list(range(30))
    computed, source, borders = plan_computation([sequence, sequence])
    assert computed.tolist() == [*range(30), 59]
    assert source.tolist() == [*range(30), *range(29), 30]
    assert borders.tolist() == [0, 30, 31]


@pytest.mark.parametrize("seed", range(5))
def test_what_stands_for_a_token_has_the_same_token_and_the_same_past(seed: int) -> None:
    """Random branches, each off the one before it: neighbours share beginnings of several lengths."""
    generator = random.Random(seed)
    sequences: list[list[int]] = []
    for _ in range(12):
        stem = sequences[-1] if sequences and generator.random() < 0.8 else []
        stem = stem[: generator.randint(0, len(stem))]
        sequences.append([*stem, *(generator.randint(0, 5) for _ in range(generator.randint(1, 40)))])
    computed, source, borders = plan_computation(sequences)
    places = [(row, i) for row, sequence in enumerate(sequences) for i in range(len(sequence))]
    stands = [places[place] for place in computed.tolist()]
    assert len(stands) < len(places), "something was shared"
    for (row, i), place in zip(places, source.tolist(), strict=True):
        other, j = stands[place]
        assert sequences[row][: i + 1] == sequences[other][: j + 1]
    for row, (start, end) in enumerate(zip(borders.tolist(), borders.tolist()[1:], strict=False)):
        own = [stands[place] for place in range(start, end)]
        length = len(sequences[row])
        assert own == [(row, i) for i in range(length - len(own), length)], "the last tokens, in order"
