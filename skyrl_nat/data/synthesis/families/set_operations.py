"""Sets and bags of things."""

import random

from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant

_SMALL = {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 9}, "min": 1, "max": 6}
_BAG = {"kind": "list", "item": {"kind": "choice", "values": ["fig", "nut", "oat", "rye"]}, "min": 1, "max": 7}
_VARIED = ["Red", "red", "sky", "SKY", "mint", "bow", "quick", "zap", "jolt", "HUG"]


def _lists(rng: random.Random) -> ToolVariant:
    name, what, how, test = rng.choice(
        [
            ("in_both", "in both lists", "that left and right share", "n in left and n in right and "),
            ("in_either", "in at least one of the lists", "of left and right together", ""),
            ("only_left", "in left but not in right", "of left that right lacks", "n in left and n not in right and "),
            (
                "in_one_only",
                "in exactly one of the lists",
                "that one of left and right has and the other lacks",
                "(n in left) != (n in right) and ",
            ),
        ]
    )
    order, rule, result = rng.choice(
        [
            ("rising", "from the lowest to the highest", "sorted(kept)"),
            ("falling", "from the highest to the lowest", "sorted(kept, reverse=True)"),
            ("as_seen", "in the order in which they first occur, those of left before those of right", "kept"),
        ]
    )
    return ToolVariant(
        name=f"numbers_{name}_{order}",
        args={"left": "list[int]", "right": "list[int]"},
        returns="list[int]",
        does=(
            f"Return the numbers that are {what}, each once, {rule}.",
            f"Give the different numbers {how}; they come {rule}.",
            f"Treat the lists as sets and return those numbers that are {what}, as a list {rule}.",
        ),
        behaviour=["No such number gives an empty list."],
        body=(
            f"kept = []\nfor n in left + right:\n    if {test}n not in kept:\n        kept.append(n)\nreturn {result}"
        ),
        draw={"left": {**_SMALL, "min": 3}, "right": _SMALL},
        edges=[
            {"left": [], "right": [2, 1, 2]},
            {"left": [3, 1, 2, 3, 9], "right": [4, 3, 2, 5]},
            {"left": [7, 7, 1], "right": [1, 7, 1, 8]},
        ],
    )


def _alike(rng: random.Random) -> ToolVariant:
    unit, what, code = rng.choice(
        [
            ("words", "words (separated by white space)", "set({0}.lower().split())"),
            ("characters", "characters (white space counts)", "set({0}.lower())"),
        ]
    )
    name, ratio, formula = rng.choice(
        [
            (
                "jaccard",
                "the number of shared {0} divided by that of all different {0} of both",
                "len(a & b) / len(a | b)",
            ),
            (
                "dice",
                "twice the number of shared {0} divided by the sum of both texts' numbers of different {0}",
                "2 * len(a & b) / (len(a) + len(b))",
            ),
            (
                "overlap",
                "the number of shared {0} divided by the smaller of both texts' numbers of different {0}",
                "len(a & b) / min(len(a), len(b))",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_similarity_of_{unit}",
        args={"left": "str", "right": "str"},
        returns="float",
        does=(
            f"Return how alike the sets of {what} of both texts are: {ratio.format(unit)}.",
            f"Compare two texts by their different {what}. The answer is {ratio.format(unit)}.",
            f"Take the {what} of each text as a set and compute {ratio.format(unit)}.",
        ),
        behaviour=[
            "Case does not count: both texts are put in lower case first.",
            "The result is rounded to 3 digits.",
            f"If a text has no {unit}, the result is 1.0 where the other one has none either, else 0.0.",
        ],
        body=(
            f"a, b = {code.format('left')}, {code.format('right')}\n"
            "if not a or not b:\n"
            "    return 1.0 if a == b else 0.0\n"
            f"return round({formula}, 3)"
        ),
        draw={
            side: {"kind": "words", "values": _VARIED, "min": low, "max": low + 4}
            for side, low in (("left", 2), ("right", 3))
        },
        edges=[
            {"left": "", "right": ""},
            {"left": "", "right": "red"},
            {"left": "a b c", "right": "B c d e f g"},
            {"left": "sky SKY oak", "right": "ash sky fig Oak"},
        ],
    )


def _bags(rng: random.Random) -> ToolVariant:
    name, what, how = rng.choice(
        [
            ("shared", "the smaller of its counts in left and right", "min({0}, {1})"),
            ("joint", "the larger of its counts in left and right", "max({0}, {1})"),
            ("left_over", "its count in left minus its count in right, but not below 0", "{0} - {1}"),
            ("unmatched", "the difference of its counts in left and right, never negative", "abs({0} - {1})"),
        ]
    )
    order, rule, tail = rng.choice(
        [("sorted", "alphabetical", ""), ("reversed", "reverse alphabetical", ", reverse=True")]
    )
    return ToolVariant(
        name=f"{name}_bag_{order}",
        args={"left": "list[str]", "right": "list[str]"},
        returns="list[str]",
        does=(
            f"Return a list in which every word occurs as often as this says: {what}. It is in {rule} order.",
            f"Treat both lists as bags: a word is in the result with a count that is {what}. Equal words are "
            f"neighbours, the order is {rule}.",
            f"For each different word of the lists, repeat it n times, where n is {what}; sort the result in {rule} "
            "order.",
        ),
        behaviour=["Nothing left gives an empty list.", "All words are in lower case."],
        body=(
            f"counts = {{w: {how.format('left.count(w)', 'right.count(w)')} for w in left + right}}\n"
            f"return sorted((w for w, count in counts.items() for _ in range(count)){tail})"
        ),
        draw={"left": {**_BAG, "max": 8, "min": 4}, "right": {**_BAG, "max": 5}},
        edges=[
            {"left": ["a", "b", "a", "c"], "right": ["b", "a", "b", "d"]},
            {"left": [], "right": ["z", "y", "z"]},
            {"left": ["q", "q", "q"], "right": ["q", "p"]},
        ],
    )


def _relation(rng: random.Random) -> ToolVariant:
    mark, divider = rng.choice([("bar", "|"), ("slash", "/"), ("semicolon", ";"), ("ampersand", "&")])
    small, big = rng.choice([("subset", "superset"), ("part", "whole"), ("inside", "around")])
    return ToolVariant(
        name=f"relation_of_sets_at_{mark}_or_{small}",
        args={"text": "str"},
        returns="str",
        does=(
            f"The words before the first '{divider}' of the text are one set, those after it another. Return the first "
            f"that is true of: 'equal', '{small}' (the other has all words of the first), '{big}' (the first has all "
            "of the other), 'disjoint' (no shared word), 'overlapping'.",
            f"Compare the set of words left of the first '{divider}' with that right of it: 'equal' if they are the "
            f"same; else '{small}' if every left word is also on the right; else '{big}' if every right word is also "
            "on the left; else 'disjoint' if they share none; else 'overlapping'.",
            f"Say how two sets of words, with '{divider}' between them, are related. Try in this order: same words "
            f"('equal'), left words all on the right ('{small}'), right words all on the left ('{big}'), nothing in "
            "common ('disjoint'); what remains is 'overlapping'.",
        ),
        behaviour=[
            "Words are separated by white space; order and duplicates do not matter, but case does.",
            f"Without '{divider}' the second set is empty.",
        ],
        body=(
            f"first, _, second = text.partition({divider!r})\n"
            "a, b = set(first.split()), set(second.split())\n"
            "if a == b:\n    return 'equal'\n"
            f"if a <= b:\n    return {small!r}\n"
            f"if a >= b:\n    return {big!r}\n"
            "return 'overlapping' if a & b else 'disjoint'"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": f"{{left}} {divider} {{right}}",
                "parts": {
                    "left": {"kind": "words", "values": ["a", "b", "c"], "min": 1, "max": 4},
                    "right": {"kind": "words", "values": ["a", "b", "d", "c"], "min": 1, "max": 4},
                },
            }
        },
        edges=[
            "",
            "a b",
            f"a b{divider}b a a",
            f"{divider}x",
            f"a b {divider} c A",
            f"a b {divider} b c",
            f"a {divider} c a",
            f"b a {divider} a",
        ],
    )


def _universe(rng: random.Random) -> ToolVariant:
    name, characters = rng.choice(
        [
            ("vowels", "aeiou"),
            ("first_letters", "abcdefgh"),
            ("top_row", "qwertyuiop"),
            ("hex_digits", "0123456789abcdef"),
        ]
    )
    side, what, other, test = rng.choice(
        [("missing", "does not have", "has", "not in"), ("present", "has", "does not have", "in")]
    )
    return ToolVariant(
        name=f"{side}_{name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return those characters of '{characters}' that the text {what}, without anything between them.",
            f"Start with '{characters}', strike out every character that the text {other}, and return what is left.",
            f"Write as one word all characters of '{characters}' but those that the text {other}.",
        ),
        behaviour=[
            f"They come in the order of '{characters}', each once.",
            "The text is put in lower case first.",
        ],
        body=(f"small = text.lower()\nreturn ''.join(c for c in {characters!r} if c {test} small)"),
        draw={
            "text": {
                "kind": "words",
                "values": ["Fox", "ABBA", "queue", "dig", "x7", "1984", "tea", "Hoop", "eighty", "c3po", "fade", "wig"],
                "min": 1,
                "max": 3,
                "separator": " ",
            }
        },
        edges=["", "UPPER case", "xyz", characters.upper()],
    )


def _groups(rng: random.Random) -> ToolVariant:
    mark, separator = rng.choice([("semicolon", ";"), ("slash", "/"), ("bar", "|")])
    name, what, rest, test, size = rng.choice(
        [
            ("one", "exactly one group", "no or several groups", "== 1", 7),
            ("several", "at least two groups", "fewer than two groups", ">= 2", 6),
            ("all", "all groups", "only some groups", "== len(groups)", 5),
        ]
    )
    return ToolVariant(
        name=f"count_of_words_in_{name}_at_{mark}",
        args={"text": "str"},
        returns="int",
        does=(
            f"'{separator}' cuts the text into groups of words; return how many different words are in {what}.",
            f"Split the text into groups at every '{separator}' and each group into words; count the different words "
            f"that occur in {what}.",
            f"Count the different words of the text, leaving out those in {rest}, where groups of words have "
            f"'{separator}' between them.",
        ),
        behaviour=[
            "Words are separated by white space; case counts; a word twice in one group counts once there.",
            "A group without words is a group too.",
        ],
        body=(
            f"groups = [set(part.split()) for part in text.split({separator!r})]\n"
            "words = set().union(*groups)\n"
            f"return len([w for w in words if len([g for g in groups if w in g]) {test}])"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": f"{{a}} {separator} {{b}}{separator}{{c}}",
                "parts": {
                    part: {
                        "kind": "words",
                        "values": ["oak", "ash", "elm", "Oak", "yew", "fir", "bay"][:size],
                        "min": 1,
                        "max": 10,
                    }
                    for part in "abc"
                },
            }
        },
        edges=["", "a b a", f"a b{separator}b c{separator}b d", f"a{separator}", f"{separator}x y{separator}y"],
        laws=[{"kind": "bounds", "low": 0}],
    )


FAMILY = Family(
    name="set_operations",
    subject="sets and bags",
    tools=(
        ToolTemplate(level=1, make=_lists),
        ToolTemplate(level=2, make=_alike),
        ToolTemplate(level=3, make=_bags),
        ToolTemplate(level=2, make=_relation),
        ToolTemplate(level=1, make=_universe),
        ToolTemplate(level=3, make=_groups),
    ),
)
