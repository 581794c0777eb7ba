"""Counting letters, words and parts of text."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = [
    "Red",
    "green",
    "BLUE",
    "a",
    "Y2k",
    "don't",
    "two-fold",
    "banana",
    "no.",
    "7",
    "so,",
    "Otto",
    "window!",
    "(b)",
]
_SENTENCE = {"kind": "words", "values": _VALUES, "min": 0, "max": 7, "separator": " "}
_WORDS = "A word is a run of characters that are not white space."
_KINDS = [
    ("vowels", "vowels (a, e, i, o, u in either case)", "c.lower() in 'aeiou'"),
    (
        "consonants",
        "consonants (letters a to z in either case, without a, e, i, o, u)",
        "c.lower() in 'bcdfghjklmnpqrstvwxyz'",
    ),
    ("capitals", "capital letters A to Z", "'A' <= c <= 'Z'"),
    ("punctuation", "punctuation marks (any of . , ; : ! ? and the apostrophe)", 'c in ".,;:!?\'"'),
    ("letters", "letters a to z in either case", "'a' <= c.lower() <= 'z'"),
]


def _annotated(rng: random.Random) -> ToolVariant:
    before, after, sign = rng.choice(
        [("(", ")", "brackets"), ("/", "", "slash"), (":", "", "colon"), ("[", "]", "square")]
    )
    unit, wording, code = rng.choice(
        [
            ("length", "its number of characters", "len(w)"),
            ("vowels", "its number of vowels (a, e, i, o, u in either case)", "sum(c in 'aeiou' for c in w.lower())"),
            ("repeats", "how often exactly this word occurs in the text", "words.count(w)"),
        ]
    )
    return ToolVariant(
        name=f"words_with_{unit}_in_{sign}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text with "{before}N{after}" added to each word, where N is {wording}.',
            f'Write behind every word of the text, without a blank, "{before}N{after}"; N is {wording}.',
            f'Replace each word by the word itself and "{before}N{after}" directly after it, with N being {wording}.',
        ),
        behaviour=[_WORDS, "The resulting words are joined by one blank."],
        body=f"words = text.split()\nreturn ' '.join(f'{{w}}{before}{{{code}}}{after}' for w in words)"
        if unit != "vowels"
        else (
            "counts = [(w, sum(1 for c in w if c.lower() in 'aeiou')) for w in text.split()]\n"
            f"return ' '.join(f'{{w}}{before}{{count}}{after}' for w, count in counts)"
        ),
        draw={"text": {**_SENTENCE, "min": 1}},
        edges=["", "a  b\ta", "to TO to you", "UOIEA xyz"],
    )


def _long_words(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4])
    how, code = rng.choice([("at_least", ">="), ("at_most", "<="), ("exactly", "=="), ("not", "!=")])
    phrase = {"not": "a number of characters other than"}.get(how, how.replace("_", " "))
    tail = "" if how == "not" else " characters"
    return ToolVariant(
        name=f"count_words_of_{how}_{size}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return how many words of the text have {phrase} `size`{tail}.",
            f"Count the words of the text with {phrase} `size`{tail}.",
            f"Of all words of the text, give the number of those that have {phrase} `size`{tail}.",
        ),
        behaviour=[_WORDS, "Punctuation belongs to the word; repeated words count each time."],
        body=f"return sum(1 for word in text.split() if len(word) {code} config.size)",
        draw={
            "text": {
                "kind": "words",
                "values": ["a", "of", "sky", "lamp", "river", "of", "cat.", "abc"],
                "min": 2,
                "max": 12,
            }
        },
        edges=["", "a bb ccc dddd eeeee ffffff", "  x\ty  "],
        options={"size": Option(type="int", default=size + 3, set=size)},
    )


def _part(rng: random.Random) -> ToolVariant:
    is_overlapping, is_blind = rng.choice([(True, True), (True, False), (False, True), (False, False)])
    lower = ".lower()" if is_blind else ""
    case = "Upper and lower case are the same." if is_blind else "Upper and lower case differ."
    how = (
        "Occurrences may overlap" if is_overlapping else "Occurrences that overlap an earlier counted one do not count"
    )
    example = 'in "aaaa" there are 3 of "aa"' if is_overlapping else 'in "aaaa" there are 2 of "aa"'
    code = (
        "return sum(1 for at in range(len(text)) if text[at:].startswith(part))"
        if is_overlapping
        else "return text.count(part)"
    )
    return ToolVariant(
        name=f"count_part_{'overlapping' if is_overlapping else 'apart'}_{'any_case' if is_blind else 'same_case'}",
        args={"text": "str", "part": "str"},
        returns="int",
        does=(
            "Return how often the part occurs in the text.",
            "Count the occurrences of the part within the text, inside of words too.",
            "Give the number of places of the text at which the part stands.",
        ),
        behaviour=[case, f"{how}: {example}."],
        body=f"if not part:\n    raise ValueError('nothing to count')\ntext, part = text{lower}, part{lower}\n{code}",
        draw={
            "text": {"kind": "text", "alphabet": "aaAb", "min": 8, "max": 30},
            "part": {"kind": "choice", "values": ["a", "aa", "aba", "Ab", "b", "aA", "ba"]},
        },
        edges=[
            {"text": "", "part": "a"},
            {"text": "aaaaa", "part": "aa"},
            {"text": "AaAaA", "part": "aa"},
            {"text": "ab", "part": "ab"},
        ],
        raises="the part is empty",
        errors=[{"text": "abc", "part": ""}, {"text": "", "part": ""}],
    )


def _most_common(rng: random.Random) -> ToolVariant:
    unit = rng.choice(["character", "word"])
    tie, order, best = rng.choice(
        [
            ("first", "the one that occurs first in the text", "max(parts, key=parts.count, default='')"),
            ("last", "the one whose last occurrence is last", "max(reversed(parts), key=parts.count, default='')"),
            ("lowest", "the alphabetically first one", "max(sorted(parts), key=parts.count, default='')"),
            ("highest", "the alphabetically last one", "max(sorted(parts)[::-1], key=parts.count, default='')"),
        ]
    )
    split = "text.lower().split()" if unit == "word" else "[c for c in text.lower() if not c.isspace()]"
    words = ["Sky", "sky", "lamp", "red", "RED", "box", "up", "Elk"]
    return ToolVariant(
        name=f"most_common_{unit}_{tie}_of_ties",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the most frequent {unit} of the text, in lower case.",
            f"Lower-case the text and give the {unit} that occurs most often in it.",
            f"Find which {unit} the text has most often, whatever the case, and return it in lower case.",
        ),
        behaviour=[
            f"Of several equally frequent ones, {order} is returned.",
            _WORDS if unit == "word" else "White space does not count as a character here.",
            "If there is none, the empty text is returned.",
            *(["Alphabetical order is that of code points."] if "alpha" in order else []),
        ],
        body=f"parts = {split}\nreturn {best}",
        draw={
            "text": {"kind": "words", "values": words, "min": 2, "max": 7}
            if unit == "word"
            else {"kind": "text", "alphabet": "aAbBcd eE f?", "min": 2, "max": 9}
        },
        edges=["", "  ", "b a b a c", "a b b a", "x", "Z a z A m"],
    )


def _share(rng: random.Random) -> ToolVariant:
    kind, wording, test = rng.choice(_KINDS)
    digits = rng.choice([1, 2, 3])
    return ToolVariant(
        name=f"share_of_{kind}_to_{digits}_digits",
        args={"text": "str"},
        returns="float",
        does=(
            f"Return the share of {wording} among the characters of the text that are not white space, as a "
            "percentage.",
            f"Give how many percent of the text's characters, white space left out, are {wording}.",
            f"Return 100 times the number of {wording}, divided by the number of characters that are not white space.",
        ),
        behaviour=[f"Round with Python's round() to {digits} digits.", "Without such characters the answer is 0.0."],
        body=(
            "kept = ''.join(text.split())\n"
            "if not kept:\n"
            "    return 0.0\n"
            f"return round(100 * sum(1 for c in kept if {test}) / len(kept), {digits})"
        ),
        draw={"text": {**_SENTENCE, "min": 2, "max": 8}},
        edges=["", "  \t", "a B c", "AZaz09!", "x.y,z;1:2!3?'", "bcdfghjklmnpqrstvwxyz AEIOU 1"],
    )


def _frequencies(rng: random.Random) -> ToolVariant:
    sign, word = rng.choice([("=", "equals"), (":", "colon"), ("x", "times"), ("#", "hash")])
    order, wording, key = rng.choice(
        [
            ("by_word", "in alphabetical order", "key=str"),
            (
                "by_count",
                "the most frequent first, equally frequent ones in alphabetical order",
                "key=lambda w: (-words.count(w), w)",
            ),
            (
                "rare_first",
                "the rarest first, equally frequent ones in alphabetical order",
                "key=lambda w: (words.count(w), w)",
            ),
        ]
    )
    return ToolVariant(
        name=f"word_counts_{order}_with_{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return "word{sign}count" for each different word of the lower-cased text, {wording}.',
            f'Count the words of the text without regard to case and name them in lower case as "word{sign}count", '
            f"{wording}.",
            f'Give every distinct word (in lower case) with how often it occurs, as "word{sign}count", {wording}.',
        ),
        behaviour=[
            _WORDS,
            "The entries are joined by one blank; a text without words gives the empty text.",
            "Alphabetical order is that of code points.",
        ],
        body=(
            "words = text.lower().split()\n"
            f"return ' '.join(f'{{w}}{sign}{{words.count(w)}}' for w in sorted(set(words), {key}))"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["Sky", "sky", "lamp", "red", "RED", "box", "up", "2"],
                "min": 1,
                "max": 9,
            }
        },
        edges=["", "b a b", "c b a A", "zebra ant Zebra bee ant ANT"],
    )


FAMILY = Family(
    name="text_counting",
    subject="counting letters and words",
    tools=(
        ToolTemplate(level=1, make=_annotated),
        ToolTemplate(level=1, make=_long_words),
        ToolTemplate(level=2, make=_part),
        ToolTemplate(level=2, make=_most_common),
        ToolTemplate(level=2, make=_share),
        ToolTemplate(level=3, make=_frequencies),
    ),
)
