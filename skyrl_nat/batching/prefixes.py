"""Equal beginnings of packed sequences, computed once. Letters: N packed tokens, U computed ones, B sequences.

Under causal attention a token's activations depend on the tokens before it and nothing else, so what two
sequences begin with is the same work: the prompt of a group, or the first turns of a conversation.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

MIN_SHARED_TOKENS = 16
"""Shorter common beginnings are not worth their bookkeeping."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common at their beginnings."""
    length = min(len(a), len(b))
    if a[:length] == b[:length]:
        return length
    low, high = 0, length
    while high - low > 1:  # invariant: the first `low` agree, the first `high` do not
        middle = (low + high) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle
    return low


def shared_tokens(sequence: Sequence[int], previous: Sequence[int]) -> int:
    """Return how many first tokens need not be computed after the previous sequence; the last one always is."""
    length = min(common_prefix(sequence, previous), len(sequence) - 1)
    return length if length >= MIN_SHARED_TOKENS else 0


def plan_computation(sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Return which tokens of packed sequences are computed, and which stands for each.

    Only neighbours are compared: groups lie together, and comparing all pairs would take as long as training.

    Args:
        sequences: B token lists, in packing order.

    Returns:
        `computed`: `[U]` int64 places among the N; `source`: `[N]` int64 places among the U;
        `cu_computed`: `[B + 1]` int32 borders of the sequences' own computed tokens.
    """
    computed: list[Tensor] = []
    sources: list[Tensor] = []
    borders = [0]
    start = 0
    for index, sequence in enumerate(sequences):
        shared = shared_tokens(sequence, sequences[index - 1]) if index else 0
        first, own = borders[-1], len(sequence) - shared
        computed.append(torch.arange(start + shared, start + len(sequence)))
        places = torch.arange(first, first + own)
        sources.append(torch.cat([sources[-1][:shared], places]) if shared else places)
        borders.append(first + own)
        start += len(sequence)
    return torch.cat(computed), torch.cat(sources), torch.tensor(borders, dtype=torch.int32)
