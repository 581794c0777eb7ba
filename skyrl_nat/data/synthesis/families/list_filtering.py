"""Filtering lists."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_WORDS = ["ant", "Ant", "apple", "bee", "BEE", "bean", "cat", "Cat", "corn", "dodo", "e", "fox", "lynx", "owl", "Oat"]
_ORDER = "The order stays, duplicates stay, and an empty list gives an empty list."


def _band(rng: random.Random) -> ToolVariant:
    low, high = rng.choice([(0, 10), (-5, 5), (3, 20), (12, 30)])
    name, what, other, test = rng.choice(
        [
            ("from", f"from {low} to {high}, both included", f"below {low} or above {high}", f"{low} <= n <= {high}"),
            ("between", f"above {low} and below {high}", f"at most {low} or at least {high}", f"{low} < n < {high}"),
            (
                "outside",
                f"below {low} or above {high}",
                f"from {low} to {high}, both included",
                f"n < {low} or n > {high}",
            ),
        ]
    )
    return ToolVariant(
        name=f"numbers_{name}_{str(low).replace('-', 'minus_')}_to_{high}",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Return the numbers that are {what}.",
            f"Drop every number that is {other}, and return the rest.",
            f"Filter the list: a number stays only if it is {what}.",
        ),
        behaviour=[_ORDER],
        body=f"return [n for n in numbers if {test}]",
        draw={
            "numbers": {
                "kind": "list",
                "item": {"kind": "integer", "low": low - 9, "high": high + 9},
                "min": 3,
                "max": 8,
            }
        },
        edges=[[], [low - 1, low, low + 1, high - 1, high, high + 1], [high, low]],
        laws=[{"kind": "idempotent"}],
    )


def _distinct(rng: random.Random) -> ToolVariant:
    name, what, key = rng.choice(
        [
            ("lower_case", "spelling, where case does not count", "word.lower()"),
            ("first_letter", "first character, where case counts", "word[:1]"),
            ("last_letter", "last character, where case counts", "word[-1:]"),
            ("length_up_to_4", "number of characters, where more than 4 are taken as 4", "min(len(word), 4)"),
        ]
    )
    which, other, source, result = rng.choice(
        [("first", "an earlier", "words", "kept"), ("last", "a later", "words[::-1]", "kept[::-1]")]
    )
    return ToolVariant(
        name=f"{which}_words_of_each_{name}",
        args={"words": "list[str]"},
        returns="list[str]",
        does=(
            f"Of words with the same {what}, keep only the {which} one.",
            f"Drop every word for which {other} word of the list has the same {what}; return the rest.",
            f"Group the words by their {what}, and return the {which} word of each group, ordered as in the list.",
        ),
        behaviour=[
            "The kept words stay in the order of the list.",
            "An empty list gives an empty list; empty words never occur.",
        ],
        body=(
            "seen, kept = set(), []\n"
            f"for word in {source}:\n"
            f"    if {key} not in seen:\n"
            f"        seen.add({key})\n"
            "        kept.append(word)\n"
            f"return {result}"
        ),
        draw={"words": {"kind": "list", "item": {"kind": "choice", "values": _WORDS}, "min": 1, "max": 9}},
        edges=[[], ["bee", "BEE", "bean", "ant"], ["apple", "ant", "Ant", "oat", "owl"]],
        laws=[{"kind": "idempotent"}],
    )


def _length(rng: random.Random) -> ToolVariant:
    default, value = rng.choice([(2, 4), (3, 5), (6, 3), (1, 6)])
    name, what, other, sign = rng.choice(
        [
            ("at_least", "at least `limit` characters", "fewer than `limit` characters", ">="),
            ("below", "fewer than `limit` characters", "`limit` characters or more", "<"),
        ]
    )
    return ToolVariant(
        name=f"words_of_length_{name}_{value}",
        args={"words": "list[str]"},
        returns="list[str]",
        does=(
            f"Return the words that have {what}.",
            f"Leave out all words with {other} and return the others.",
            f"Keep a word only where it has {what}; the result is the list of kept words.",
        ),
        behaviour=["The order and duplicates stay."],
        body=(
            "if not words:\n    raise ValueError('no words')\n"
            f"return [word for word in words if len(word) {sign} config.limit]"
        ),
        draw={
            "words": {
                "kind": "list",
                "item": {"kind": "text", "alphabet": "abcxyz", "min": 1, "max": 8},
                "min": 2,
                "max": 6,
            }
        },
        edges=[["a" * value, "b" * (value - 1), "c" * (value + 1)], [""]],
        raises="words is an empty list",
        errors=[[], []],
        options={"limit": Option(type="int", default=default, set=value)},
    )


def _records(rng: random.Random) -> ToolVariant:
    side, others = rng.choice([("before", "numbers[:place]"), ("after", "numbers[place + 1 :]")])
    name, what, not_what, sign = rng.choice(
        [
            ("above_all", "higher than every number", "at most as high as some number", ">"),
            ("at_least_all", "at least as high as every number", "lower than some number", ">="),
            ("below_all", "lower than every number", "at least as high as some number", "<"),
        ]
    )
    return ToolVariant(
        name=f"numbers_{name}_{side}",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Return those numbers that are {what} {side} them in the list.",
            f"Drop each number that is {not_what} {side} it in the list, and return what is left.",
            f"Keep a number if it is {what} that comes {side} it; numbers that were dropped still count here.",
        ),
        behaviour=[
            "The order stays, and an empty list gives an empty list.",
            f"A number with nothing {side} it is always kept.",
        ],
        body=f"return [n for place, n in enumerate(numbers) if all(n {sign} other for other in {others})]",
        draw={"numbers": {"kind": "list", "item": {"kind": "integer", "low": -9, "high": 9}, "min": 2, "max": 8}},
        edges=[[], [3, 3, 5, 5, 1, 1], [5, 4, 4, 6]],
        laws=[{"kind": "idempotent"}],
    )


def _items(rng: random.Random) -> ToolVariant:
    mark, separator = rng.choice([("comma", ","), ("semicolon", ";"), ("bar", "|"), ("slash", "/")])
    letter = rng.choice("aeo")
    name, what, other, test = rng.choice(
        [
            ("with", f"contain the letter {letter}", f"lack the letter {letter}", f"{letter!r} in item.lower()"),
            (
                "without",
                f"lack the letter {letter}",
                f"contain the letter {letter}",
                f"{letter!r} not in item.lower()",
            ),
        ]
    )
    return ToolVariant(
        name=f"{mark}_items_{name}_{letter}",
        args={"text": "str"},
        returns="str",
        does=(
            f"The text is a list of items separated by '{separator}': return only the items that {what}, separated "
            "in the same way.",
            f"Split the text at every '{separator}', drop the items that {other}, and join the rest with "
            f"'{separator}'.",
            f"Filter the items of a text, between which '{separator}' stands, by those that {what}, and put "
            f"'{separator}' between them again.",
        ),
        behaviour=[
            "White space around an item is removed, and items that are then empty are left out.",
            f"Upper and lower case of {letter} are the same here, but what is kept is not changed.",
            "The order and duplicates stay; nothing left gives the empty string.",
        ],
        body=(
            f"items = [part.strip() for part in text.split({separator!r})]\n"
            f"return {separator!r}.join(item for item in items if item and {test})"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["Ant", "OWL", " corn", "bee ", "fox", "apple", "Eel", "", "dodo", "Kiwi", "tax"],
                "min": 3,
                "max": 8,
                "separator": separator,
            }
        },
        edges=["", separator.join(["bean", "", "Oak", " Alga ", "sky", "EGO"])],
        laws=[{"kind": "idempotent"}],
    )


def _sum_kept(rng: random.Random) -> ToolVariant:
    divisor = rng.choice([2, 3, 4, 5])
    name, what, other, sign = rng.choice(
        [
            (
                "multiples",
                f"can be divided by {divisor} without a rest",
                f"leaves a rest when divided by {divisor}",
                "==",
            ),
            (
                "non_multiples",
                f"leaves a rest when divided by {divisor}",
                f"can be divided by {divisor} without a rest",
                "!=",
            ),
        ]
    )
    return ToolVariant(
        name=f"sum_of_{name}_of_{divisor}_in_text",
        args={"text": "str"},
        returns="int",
        does=(
            f"Add up the numbers among the words of the text of which each {what}.",
            f"Return the sum of those words of the text that are numbers, leaving out each number that {other}.",
            f"Take the numbers out of the text's words, keep a number only if it {what}, and return the total.",
        ),
        behaviour=[
            "Words are separated by white space; a word is a number only if all its characters are digits 0 to 9.",
            "No such number gives 0.",
        ],
        body=(
            "numbers = [int(word) for word in text.split() if word.isascii() and word.isdecimal()]\n"
            f"return sum(n for n in numbers if n % {divisor} {sign} 0)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["12", "7", "30", "45", "8", "101", "16", "-6", "owl", "3.5", "x9", "22", "0", "20", "15"],
                "min": 3,
                "max": 8,
            }
        },
        edges=["", "1 2 3 4 5 6 7 8 9 10", "60 61 -60 a60"],
    )


FAMILY = Family(
    name="list_filtering",
    subject="filtering lists of values",
    tools=(
        ToolTemplate(level=1, make=_band),
        ToolTemplate(level=2, make=_distinct),
        ToolTemplate(level=1, make=_length),
        ToolTemplate(level=3, make=_records),
        ToolTemplate(level=2, make=_items),
        ToolTemplate(level=2, make=_sum_kept),
    ),
)
