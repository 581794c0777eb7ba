"""Who wrote each token of a rollout: the policy, the environment, or the chat template around their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any


class Author(StrEnum):
    """Who wrote a token."""

    POLICY = "policy"
    """Sampled, or an earlier answer that a new context repeats (then outside the loss)."""
    ENVIRONMENT = "environment"
    """Words of a message: task, system prompt, observation."""
    TEMPLATE = "template"
    """What the chat template puts around messages."""


@dataclass(frozen=True, slots=True)
class Span:
    """Neighbouring tokens that were all sampled, or all given."""

    start: int
    end: int
    is_sampled: bool


def spans_of(mask: Sequence[bool], segment_starts: Sequence[int]) -> list[Span]:
    """Return the spans of a rollout, in order; a new context begins a new one."""
    borders = frozenset(segment_starts)
    found: list[Span] = []
    for is_sampled, run in groupby(enumerate(mask), key=lambda item: item[1]):
        places = [place for place, _ in run]
        starts = [place for place in places if place == places[0] or place in borders]
        found += [Span(a, b, is_sampled) for a, b in zip(starts, [*starts[1:], places[-1] + 1], strict=True)]
    return found


def turns_of(mask: Sequence[bool], sizes: Sequence[int]) -> list[int]:
    """Return the turn of every token, from 0: given tokens belong to the turn that they lead to.

    What follows the last sampled token belongs to the last turn.

    Args:
        mask: True on sampled tokens.
        sizes: How many were sampled in each turn.
    """
    turn, left = 0, list(sizes) or [0]
    found: list[int] = []
    for is_sampled in mask:
        while is_sampled and not left[turn] and turn + 1 < len(left):
            turn += 1
        leads_on = not is_sampled and not left[turn] and turn + 1 < len(left)
        found.append(turn + leads_on)
        left[turn] -= is_sampled and left[turn] > 0
    return found


def authors_of(
    record: dict[str, Any], mask: Sequence[bool], pieces: Sequence[str], markup: Sequence[bool]
) -> list[Author]:
    """Return the author of every token.

    The words of each message are looked for in the text of the tokens that were given, in order; where a template
    has changed them, all of a span but its markup counts as the environment's.

    Args:
        record: The rollout's line.
        mask: True on sampled tokens.
        pieces: Text of every token.
        markup: Whether a token is one that only templates write.
    """
    authors = [Author.POLICY if is_sampled else Author.TEMPLATE for is_sampled in mask]
    starts = frozenset(record["segment_starts"])
    turns = turns_of(mask, [turn["num_completion_tokens"] for turn in record["turns"]])
    for span in spans_of(mask, record["segment_starts"]):
        if span.is_sampled:
            continue
        told = _messages(record, turns[span.start], is_whole=span.start in starts)
        places = range(span.start, span.end)
        found = _in_span(told, [pieces[place] for place in places])
        for place in places:
            if found is not None:
                authors[place] = found.get(place - span.start, Author.TEMPLATE)
            elif not markup[place]:
                authors[place] = Author.ENVIRONMENT
    return authors


def _messages(record: dict[str, Any], turn: int, *, is_whole: bool) -> list[tuple[Author, str]]:
    """Return what a span before a turn holds: the whole dialogue so far where a context begins, or what is new."""
    turns = record["turns"]
    told = [(Author.ENVIRONMENT, str(message["content"])) for message in record["prompt"]] if is_whole else []
    first = 0 if is_whole else max(turn - 1, 0)
    for earlier in turns[first:turn]:
        if is_whole:
            told.append((Author.POLICY, str(earlier["completion"])))
        told += [(Author.ENVIRONMENT, str(message["content"])) for message in earlier["observations"]]
    return told


def _in_span(told: Sequence[tuple[Author, str]], pieces: Sequence[str]) -> dict[int, Author] | None:
    """Return the authors of the tokens of a span that hold words of messages; None where some words are not there."""
    text, cursor, place, end = "".join(pieces), 0, 0, 0
    found: dict[int, Author] = {}
    for author, content in told:
        words = content if content in text[cursor:] else content.strip()
        begin = text.find(words, cursor)
        if begin < 0:
            return None
        cursor = begin + len(words)
        while place < len(pieces) and end < cursor:
            start, end = end, end + len(pieces[place])
            if end > begin and start < cursor:
                found[place] = author
            place += 1
    return found
