"""Palindromes and anagrams."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_LETTER = {"kind": "choice", "values": list("abcxyz")}
_GAP = {"kind": "choice", "values": ["", " ", ", ", "-"]}
_SPOTS = ["stop", "spot", "pots", "tops", "opts", "post", "ptso"]
_READINGS = [
    ("characters", "All characters count, and case does too", "list(text)", ""),
    ("any_case", "All characters count, but the text is lower-cased first", "list(text.lower())", ""),
    ("no_blanks", "White space is left out, and the text is lower-cased first", "''.join(text.lower().split())", " "),
    (
        "letters",
        "Only letters a to z count, after the text was lower-cased",
        "[c for c in text.lower() if c.isascii() and c.isalpha()]",
        "-",
    ),
    (
        "words",
        "It is read word by word (words lie between white space), after lower-casing",
        "text.lower().split()",
        "",
    ),
]
_KNOWN = ["Anna", "No lemon, no melon", "Abc cba", "go on GO", "Otto", "x y", "lemon", "ab c", "Otter sky"]


def _is_palindrome(rng: random.Random) -> ToolVariant:
    unit, wording, code, mark = rng.choice(_READINGS)
    mirrored = "{a}{b}{c}{b}{a}" if unit != "words" else "{a}{b} {c} {a}{b}"
    mixed = f"{{a}}{mark}{{b}}{{b}}{{a}}" if unit != "words" else "{a}b C {a}B"
    broken = "{a}{b}{gap}{c}{a}" if unit != "words" else "{a}{b} {gap}{c}{a}"
    parts = {"a": _LETTER, "b": _LETTER, "c": _LETTER}
    return ToolVariant(
        name=f"is_palindrome_by_{unit}",
        args={"text": "str"},
        returns="bool",
        does=(
            "Return whether the text is a palindrome, the same read forwards and backwards.",
            "Tell if reading the text from its end gives the same as reading it from its start.",
            "Check that the text does not change when it is turned round.",
        ),
        behaviour=[f"{wording}.", "If nothing is left, it is a palindrome."],
        body=f"kept = {code}\nreturn kept == kept[::-1]",
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    {"kind": "template", "pattern": mirrored, "parts": parts},
                    {"kind": "template", "pattern": mixed, "parts": parts},
                    {"kind": "template", "pattern": broken, "parts": {**parts, "gap": _GAP}},
                    {"kind": "template", "pattern": f"{broken}{{b}}", "parts": {**parts, "gap": _GAP}},
                    {"kind": "choice", "values": _KNOWN},
                ],
            }
        },
        edges=["", "ßs", "Aa", "ab{a", "b`Ab", "zyx", "zyz", "one two ONE", "ab ba", "Straße x STRASSE"],
    )


def _are_anagrams(rng: random.Random) -> ToolVariant:
    is_blind, is_spaced, is_other = (rng.random() < 0.5 for _ in range(3))
    name = f"{'any_case' if is_blind else 'by_case'}_{'any_blanks' if is_spaced else 'by_blanks'}"
    lower = ".lower()" if is_blind else ""
    key = f"sorted(''.join({{}}{lower}.split()))" if is_spaced else f"sorted({{}}{lower})"
    differ = "first != second and " if is_other else ""
    others = ["step", "pest", "pots it", "stops"][: 2 * (is_blind + is_spaced)]
    same = [*_SPOTS[: 7 if is_other else 6], "Spot", "to ps", *(["sTop"] if is_blind else [])]
    pool = {"kind": "choice", "values": [*same, *others]}
    return ToolVariant(
        name=f"are_anagrams_{name}{'_not_same' if is_other else ''}",
        args={"first": "str", "second": "str"},
        returns="bool",
        does=(
            "Return whether the two texts are anagrams, that is have the same characters, each equally often.",
            "Tell if the second text can be made by putting the characters of the first in some order, using all.",
            "Check that both texts consist of the same characters with the same frequencies.",
        ),
        behaviour=[
            "Both are lower-cased before they are compared." if is_blind else "Upper and lower case differ.",
            "White space is left out." if is_spaced else "White space counts like any other character.",
            "Texts that are identical as given, before any change, are not anagrams."
            if is_other
            else "A text is an anagram of itself.",
        ],
        body=(
            "if not first.strip() or not second.strip():\n"
            "    raise ValueError('there must be two texts')\n"
            f"return {differ}{key.format('first')} == {key.format('second')}"
        ),
        draw={"first": pool, "second": pool},
        edges=[
            {"first": "a", "second": "a"},
            {"first": "aab", "second": "abb"},
            {"first": "a b", "second": "ab"},
            {"first": "Ab", "second": "ab"},
            {"first": "sa", "second": "aß"},
            {"first": "ssa", "second": "aß"},
        ],
        raises="one of the texts is empty or only white space",
        errors=[{"first": "", "second": "a"}, {"first": "a", "second": ""}, {"first": "  ", "second": "\t"}],
    )


def _longest(rng: random.Random) -> ToolVariant:
    tie = rng.choice(["first", "last"])
    parity, rule = rng.choice(
        [
            ("any", "It may have any length"),
            ("even", "Only parts with an even number of characters count"),
            ("odd", "Only parts with an odd number of characters count"),
        ]
    )
    tests = {"any": "", "even": " and size % 2 == 0", "odd": " and size % 2 == 1"}
    places = "range(len(text) - size + 1)"
    return ToolVariant(
        name=f"longest_palindrome_{parity}_length_{tie}_tie",
        args={"text": "str"},
        returns="str",
        does=(
            "Return the longest part of the text that reads the same forwards and backwards.",
            "Find the longest palindrome among all runs of neighbouring characters of the text.",
            "Of all substrings of the text that are equal to their reverse, give the longest.",
        ),
        behaviour=[
            f"{rule}; if there is none, the empty text is returned.",
            f"Of several equally long ones, the one that starts {tie} is returned.",
            "All characters count as they are: case matters, blanks are characters.",
        ],
        body=(
            "for size in range(len(text), 0, -1):\n"
            f"    for at in {places if tie == 'first' else f'reversed({places})'}:\n"
            "        part = text[at : at + size]\n"
            f"        if part == part[::-1]{tests[parity]}:\n"
            "            return part\n"
            "return ''"
        ),
        draw={"text": {"kind": "text", "alphabet": "aabbcA ", "min": 3, "max": 14}},
        edges=["", "a", "ab", "abc", "aab bcc", "xabaayyaab", "abcba", "zz"],
        laws=[{"kind": "idempotent"}],
    )


def _mirror(rng: random.Random) -> ToolVariant:
    side, middle, wording, code = rng.choice(
        [
            ("after", "twice", "the text followed by its reverse", "text + text[::-1]"),
            (
                "after",
                "once",
                "the text followed by the reverse of all but its last character",
                "text + text[:-1][::-1]",
            ),
            ("before", "twice", "the reverse of the text followed by the text", "text[::-1] + text"),
            (
                "before",
                "once",
                "the reverse of the text followed by all but its first character",
                "text[::-1] + text[1:]",
            ),
        ]
    )
    glue, word = rng.choice([("", ""), ("|", "_at_bar"), ("-", "_at_dash")])
    code = code.replace(" + ", f" + {glue!r} + ") if glue else code
    put = f', with "{glue}" between the two' if glue else ""
    return ToolVariant(
        name=f"mirror_{side}_middle_{middle}{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return {wording}{put}.",
            f"Make a longer text out of the given one: {wording}{put}.",
            f"Give back {wording}{put}, without any other change.",
        ),
        behaviour=[f'The empty text gives "{glue}".' if glue else "The empty text gives the empty text."],
        body=f"return {code}",
        draw={"text": {"kind": "words", "values": ["ab", "Sky", "level", "x", "lamp", "42"], "min": 1, "max": 3}},
        edges=["", "a", "ab", "abc d"],
    )


def _mismatches(rng: random.Random) -> ToolVariant:
    unit, rule, code = rng.choice(
        [
            ("characters", "All characters count; upper and lower case differ", "text"),
            ("any_case", "All characters count, after the text was lower-cased", "text.lower()"),
            ("no_blanks", "White space is left out; upper and lower case differ", "''.join(text.split())"),
            (
                "letters",
                "Only letters a to z count, after lower-casing",
                "[c for c in text.lower() if c.isascii() and c.isalpha()]",
            ),
        ]
    )
    word = "letters" if unit == "letters" else "characters"
    return ToolVariant(
        name=f"changes_to_palindrome_by_{unit}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return how many {word} must be replaced at least to make the text read the same forwards and backwards.",
            f"Count the pairs of {word} at equal distances from the two ends that differ.",
            f"Give the smallest number of {word} to change so that the text is a palindrome.",
        ),
        behaviour=[f"{rule}."],
        body=f"kept = {code}\nreturn sum(1 for at in range(len(kept) // 2) if kept[at] != kept[-1 - at])",
        draw={"text": {"kind": "text", "alphabet": "aAbBz{ -", "min": 5, "max": 18}},
        edges=["", "ab", "ßs", "a{b", "abcdefgh", "a`b`z", "abca", "a b a c"],
    )


def _groups(rng: random.Random) -> ToolVariant:
    size = rng.choice([1, 2, 3])
    sign, word = rng.choice([("/", "slashes"), ("+", "pluses"), ("=", "equals")])
    order = rng.choice(["given", "sorted"])
    rule = {
        "given": "Words stand in a group in the given order, repeated ones each time",
        "sorted": "Words stand in a group in order of code points, repeated ones each time",
    }[order]
    words = "groups[key]" if order == "given" else "sorted(groups[key])"
    return ToolVariant(
        name=f"anagram_groups_of_{size}_{order}_by_{word}",
        args={"words": "list[str]"},
        returns="list[str]",
        does=(
            "Group words that are anagrams of each other and return each group of at least `size` words joined by "
            f'"{sign}".',
            f'Put words with the same letters, each equally often, into one group; list the groups, "{sign}" between '
            "the "
            "words, without those of fewer than `size` words.",
            f'Return all groups of anagrams that have `size` or more words, each as one text with "{sign}" between '
            "words.",
        ),
        behaviour=[
            "Groups come in the order in which their first words are given.",
            f"{rule}.",
            "Upper and lower case differ.",
        ],
        body=(
            "groups = {}\n"
            "for word in words:\n"
            "    groups.setdefault(str(sorted(word)), []).append(word)\n"
            f"return [{sign!r}.join({words}) for key in groups if len(groups[key]) >= config.size]"
        ),
        draw={
            "words": {
                "kind": "list",
                "item": {"kind": "choice", "values": ["tea", "eat", "ate", "stop", "pots", "Tea", "spot"]},
                "min": 5,
                "max": 10,
            }
        },
        edges=[[], ["a"], ["ba", "ab", "c"], ["tea", "stop", "eat", "pots", "ate", "tops", "x"]],
        options={"size": Option(type="int", default=size + 1, set=size)},
    )


FAMILY = Family(
    name="palindromes_anagrams",
    subject="palindromes and anagrams",
    tools=(
        ToolTemplate(level=2, make=_is_palindrome),
        ToolTemplate(level=2, make=_are_anagrams),
        ToolTemplate(level=3, make=_longest),
        ToolTemplate(level=1, make=_mirror),
        ToolTemplate(level=2, make=_mismatches),
        ToolTemplate(level=3, make=_groups),
    ),
)
