"""Sorting by a key, with a rule for ties."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_WORDS = ["axe", "bee", "cocoa", "eel", "idea", "lynx", "mammal", "oak", "pi", "radio", "sky", "tax", "toto", "xylem"]
_WORD_LIST = {"kind": "list", "item": {"kind": "choice", "values": _WORDS}, "min": 2, "max": 7}


def _words(rng: random.Random) -> ToolVariant:
    name, what, key = rng.choice(
        [
            ("length", "number of characters", "len(word)"),
            ("vowels", "number of vowels (a, e, i, o, u)", "sum(c in 'aeiou' for c in word)"),
            ("variety", "number of different characters", "len(set(word))"),
        ]
    )
    direction, first, last, sign = rng.choice([("up", "smallest", "largest", ""), ("down", "largest", "smallest", "-")])
    ties, rule, code = rng.choice(
        [
            ("alphabetical", "Words that tie are put in alphabetical order.", f"({sign}{key}, word)"),
            ("stable", "Words that tie stay in the order that they came in.", f"{sign}{key}"),
        ]
    )
    count, number = rng.choice([(2, "two"), (3, "three"), (4, "four")])
    return ToolVariant(
        name=f"{number}_words_by_{name}_{direction}_{ties}",
        args={"words": "list[str]"},
        returns="list[str]",
        does=(
            f"Sort the words by their {what}, {first} first, and return the first {count} of them.",
            f"Return the {count} words with the {first} {what}, ordered by it so that the {first} comes first.",
            f"Put the words in order from the {first} to the {last} {what} and keep only the {count} at the front.",
        ),
        behaviour=[
            rule,
            "Words are lower-case letters a to z, and duplicates stay.",
            f"Fewer than {count} words are all returned.",
        ],
        body=f"return sorted(words, key=lambda word: {code})[:{count}]",
        draw={"words": _WORD_LIST},
        edges=[[], ["lynx", "axe", "oak", "sky", "xylem", "idea"], ["toto", "mammal", "bee", "cocoa", "pi"]],
        laws=[{"kind": "idempotent"}, *([{"kind": "permutation_invariant"}] if ties == "alphabetical" else [])],
    )


def _numbers(rng: random.Random) -> ToolVariant:
    name, what, key = rng.choice(
        [
            ("last_digits", "sum of the last two decimal digits, without the sign", "abs(n) % 10 + abs(n) // 10 % 10"),
            ("last_digit", "last decimal digit, without the sign", "abs(n) % 10"),
            ("distance_from_50", "distance from 50", "abs(n - 50)"),
        ]
    )
    direction, first, sign = rng.choice([("up", "smallest", ""), ("down", "largest", "-")])
    ties, rule, tie = rng.choice([("low", "the lower number", "n"), ("high", "the higher number", "-n")])
    return ToolVariant(
        name=f"numbers_by_{name}_{direction}_ties_{ties}_first",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Sort the numbers by their {what}, the {first} first.",
            f"Return the same numbers, ordered by {what} so that the {first} comes first.",
            f"Order the list: a number's place depends on its {what}; begin with the {first}.",
        ),
        behaviour=[
            f"If two numbers tie, {rule} itself comes first.",
            "Duplicates stay, and an empty list gives an empty list.",
        ],
        body=f"return sorted(numbers, key=lambda n: ({sign}{key}, {tie}))",
        draw={"numbers": {"kind": "list", "item": {"kind": "integer", "low": -60, "high": 130}, "min": 3, "max": 8}},
        edges=[[], [49, 51, 50, 47, 53], [12, 21, -30, 111, -3, 2], [15, 25, -35, 5, 16, 24]],
        laws=[{"kind": "idempotent"}, {"kind": "permutation_invariant"}],
    )


def _scores(rng: random.Random) -> ToolVariant:
    mark, link = rng.choice([("colon", ":"), ("equals", "="), ("hash", "#")])
    name, first, last, sign = rng.choice([("best", "highest", "lowest", "-"), ("worst", "lowest", "highest", "")])
    ties, order, code = rng.choice(
        [
            ("by_name", "in alphabetical order", f"({sign}int(entry[1]), entry[0])"),
            ("in_order", "in the order of the text", f"{sign}int(entry[1])"),
        ]
    )
    return ToolVariant(
        name=f"{name}_scores_first_with_{mark}_ties_{ties}",
        args={"text": "str"},
        returns="str",
        does=(
            f"The text has entries such as 'ann{link}7', a name and a score; return the names, the one with the "
            f"{first} score first, separated by one blank.",
            f"Read entries 'name{link}score' and list their names from the {first} to the {last} score, with one "
            "blank between names.",
            f"Rank the names of a text of entries like 'bob{link}12' by score and join them with one blank; the name "
            f"with the {last} score comes last.",
        ),
        behaviour=[
            f"A name is one or more letters a to z, a score one or more digits 0 to 9, and '{link}' links them.",
            "Whatever else stands in the text just separates entries.",
            f"Names with equal scores come {order}; a name with several entries is listed for each of them.",
            "No entry gives the empty string.",
        ],
        body=(
            "import re\n\n"
            f"entries = re.findall(r'([a-z]+){link}([0-9]+)', text)\n"
            f"return ' '.join(entry[0] for entry in sorted(entries, key=lambda entry: {code}))"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [f"{name}{link}{score}" for name in ["ann", "bob", "cy", "dee"] for score in [3, 9, 10, 25]],
                "min": 2,
                "max": 6,
                "separator": ", ",
            }
        },
        edges=["", "nobody", f"zoe{link}5, amy{link}5, kim{link}05, lou{link}40", f"x{link}1; y{link}2 z{link}{link}3"],
    )


def _ranks(rng: random.Random) -> ToolVariant:
    first, word, sign = rng.choice([("highest", "higher", ">"), ("lowest", "lower", "<")])
    name, rule, code = rng.choice(
        [
            (
                "with_gaps",
                f"one more than how many numbers of the list, duplicates included, are {word} than it",
                f"1 + sum(other {sign} n for other in numbers)",
            ),
            (
                "without_gaps",
                f"one more than how many different numbers of the list are {word} than it",
                f"1 + len({{other for other in numbers if other {sign} n}})",
            ),
            (
                "in_order",
                f"one more than how many numbers of the list are {word} than it, or equal to it and before it",
                f"1 + sum(other {sign} n or (other == n and j < i) for j, other in enumerate(numbers))",
            ),
        ]
    )
    return ToolVariant(
        name=f"ranks_{name}_{first}_first",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Return each number's rank in the list, the {first} ranking first: {rule}.",
            f"Replace every number by its place in a ranking that begins at 1 with the {first}. The place is {rule}.",
            f"For each number, in the list's order, give {rule}.",
        ),
        behaviour=["An empty list gives an empty list."],
        body=f"return [{code} for i, n in enumerate(numbers)]"
        if "j < i" in code
        else f"return [{code} for n in numbers]",
        draw={"numbers": {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 9}, "min": 2, "max": 7}},
        edges=[[], [5], [3, 3, 1, 3, 8, 8], [1, 2, 2, 2, 3]],
    )


def _alphabet(rng: random.Random) -> ToolVariant:
    name, order = rng.choice(
        [
            ("keyboard", "qwertyuiopasdfghjklzxcvbnm"),
            ("backward", "zyxwvutsrqponmlkjihgfedcba"),
            ("vowels_first", "aeioubcdfghjklmnpqrstvwxyz"),
            ("common_first", "etaoinshrdlucmfwypvbgkjqxz"),
        ]
    )
    return ToolVariant(
        name=f"sort_words_in_{name}_alphabet",
        args={"text": "str"},
        returns="str",
        does=(
            "Sort the words of the text by the alphabet `order`, in which the letters come in an order of their own.",
            "Return the text's words as a dictionary would list them whose alphabet is `order` instead of a to z.",
            "Order the words letter by letter, where an earlier letter of `order` comes before a later one.",
        ),
        behaviour=[
            "The words are separated by white space, put in lower case, and joined by one blank.",
            "Characters that `order` lacks count as equal to each other and come before all that it has.",
            "A word that another one begins with comes first; words that tie stay in the order of the text.",
        ],
        body=(
            "words = text.lower().split()\n"
            "return ' '.join(sorted(words, key=lambda word: [config.order.find(c) for c in word]))"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    "Ear",
                    "east",
                    "tea",
                    "ten",
                    "quay",
                    "zoo",
                    "Wax",
                    "apple",
                    "app",
                    "Map",
                    "mat",
                    "it's",
                    "a1",
                ],
                "min": 2,
                "max": 6,
            }
        },
        edges=["", "b a  c z Y", "it-s it's its", "abc Abe"],
        options={"order": Option(type="str", default="abcdefghijklmnopqrstuvwxyz", set=order)},
        laws=[{"kind": "idempotent"}],
    )


def _letters(rng: random.Random) -> ToolVariant:
    name, first, last, sign = rng.choice([("most", "most", "least", "-"), ("least", "least", "most", "")])
    ties, rule, code = rng.choice(
        [
            ("alphabetical", "in alphabetical order", "c"),
            ("as_seen", "in the order in which they first occur", "letters.index(c)"),
            ("backward", "in reverse alphabetical order", "-ord(c)"),
        ]
    )
    return ToolVariant(
        name=f"letters_by_{name}_frequent_ties_{ties}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return every letter that the text has, once, the {first} frequent first.",
            f"List the different letters of the text without anything between them, sorted by how often they occur; "
            f"the {last} frequent comes last.",
            f"Sort the text's different letters by their count, from {first} to {last} frequent, and write them as one "
            "word.",
        ),
        behaviour=[
            "Only the letters a to z count, and upper case is turned to lower case.",
            f"Letters with equal counts come {rule}.",
        ],
        body=(
            "letters = [c for c in text.lower() if c.isascii() and c.isalpha()]\n"
            f"return ''.join(sorted(dict.fromkeys(letters), key=lambda c: ({sign}letters.count(c), {code})))"
        ),
        draw={"text": {"kind": "words", "values": [*_WORDS, "Zoo", "BAZAAR", "a-z", "3x"], "min": 1, "max": 4}},
        edges=["", "Zebra zaza 22!", "baab ccd"],
    )


FAMILY = Family(
    name="sorting_by_keys",
    subject="sorting by keys and ranking",
    tools=(
        ToolTemplate(level=1, make=_words),
        ToolTemplate(level=2, make=_numbers),
        ToolTemplate(level=2, make=_scores),
        ToolTemplate(level=3, make=_ranks),
        ToolTemplate(level=3, make=_alphabet),
        ToolTemplate(level=2, make=_letters),
    ),
)
