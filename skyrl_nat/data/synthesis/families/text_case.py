"""Changing the case of text."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_WORDS = ["Red", "green", "BLUE", "sKy", "x", "Y2k", "don't", "a1", "two-fold", "Über"]
_SENTENCE = {"kind": "words", "values": _WORDS, "min": 0, "max": 6, "separator": " "}


def _swap(rng: random.Random) -> ToolVariant:
    step, which = rng.choice([(2, "second"), (3, "third"), (4, "fourth")])
    return ToolVariant(
        name=f"raise_every_{which}_letter",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the text with every {which} character in upper case and all others in lower case.",
            f"Lower-case the text, then upper-case every {which} character of it.",
            f"Give back the text in lower case, except that each {which} character is upper case.",
        ),
        behaviour=[f"Counting starts at 1, blanks count: the first upper-case character is number {step}."],
        body=(
            "return ''.join(\n"
            f"    c.upper() if position % {step} == 0 else c.lower() for position, c in enumerate(text, 1)\n"
            ")"
        ),
        draw={"text": _SENTENCE},
        edges=["", "abcdefgh", "ABCDEFGH"],
    )


def _title(rng: random.Random) -> ToolVariant:
    small = rng.choice([("of", "and"), ("the", "a"), ("in", "on", "at")])
    return ToolVariant(
        name=f"title_case_without_{'_'.join(small)}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the words with their first letter in upper case and the rest in lower case, but "
            f"{', '.join(small)} wholly in lower case.",
            f"Write the text as a title: every word capitalised, only {', '.join(small)} stay lower case.",
            f"Capitalise each word of the text and leave {', '.join(small)} small.",
        ),
        behaviour=[
            "Words are separated by white space and joined by one blank.",
            "The first word is always capitalised.",
        ],
        body=(
            f"small = {small!r}\n"
            "words = text.lower().split()\n"
            "return ' '.join(w if w in small and i > 0 else w[:1].upper() + w[1:] for i, w in enumerate(words))"
        ),
        draw={"text": {"kind": "words", "values": [*_WORDS, *small, small[0].upper()], "min": 1, "max": 7}},
        edges=["", small[0], f"{small[0]} end {small[0]} TOP"],
        laws=[{"kind": "idempotent"}],
    )


def _limit(rng: random.Random) -> ToolVariant:
    value = rng.choice([3, 5, 8, 10, 12])
    return ToolVariant(
        name=f"shout_up_to_{value}",
        args={"text": "str"},
        returns="str",
        does=(
            "Return the text in upper case, cut to at most `limit` characters.",
            "Upper-case the text and keep only its first `limit` characters.",
            "Give the first `limit` characters of the text, in capital letters.",
        ),
        body="if not text.strip():\n    raise ValueError('the text is empty')\nreturn text.upper()[: config.limit]",
        draw={"text": {**_SENTENCE, "min": 1}},
        edges=["a" * value, "b" * (value + 1)],
        raises="the text is empty or only white space",
        errors=["", "   "],
        options={"limit": Option(type="int", default=4, set=value)},
    )


FAMILY = Family(
    name="text_case",
    subject="changing the case of text",
    tools=(
        ToolTemplate(level=2, make=_swap),
        ToolTemplate(level=2, make=_title),
        ToolTemplate(level=1, make=_limit),
    ),
)
