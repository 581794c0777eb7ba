"""Changing and judging the order of words."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = ["Red", "green", "BLUE", "sky", "a", "apple", "don't", "to", "river", "42", "Kite", "x_ray", "_id", "to_"]
_SENTENCE = {"kind": "words", "values": _VALUES, "min": 2, "max": 7, "separator": " "}
_RULE = "A word is a run of characters that are not white space; punctuation belongs to it."
_JOINED = "The words of the result are joined by one blank; no words give the empty text."


def _reverse(rng: random.Random) -> ToolVariant:
    sign, word = rng.choice(
        [("-", "dashes"), ("/", "slashes"), (",", "commas"), (".", "dots"), ("|", "bars"), (" ", "blanks")]
    )
    return ToolVariant(
        name=f"reverse_parts_between_{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Split the text at every "{sign}" and return the parts in reverse order, joined by "{sign}".',
            f'Return the text with its parts, which are separated by "{sign}", from last to first.',
            f'Turn round the order of what "{sign}" separates in the text, and keep "{sign}" between the parts.',
        ),
        behaviour=["Parts may be empty and are not changed themselves, nor trimmed."],
        body=f"return {sign!r}.join(text.split({sign!r})[::-1])",
        draw={"text": {**_SENTENCE, "separator": sign}},
        edges=["", f"a{sign}{sign}b c", f"{sign}end", "no sign"],
        laws=[{"kind": "involution"}],
    )


def _rotate(rng: random.Random) -> ToolVariant:
    steps = rng.choice([1, 2, 3, 4])
    side = rng.choice(["left", "right"])
    moved, target, sign = {"left": ("first", "end", ""), "right": ("last", "beginning", "-")}[side]
    return ToolVariant(
        name=f"rotate_words_{side}_by_{steps}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the words of the text after moving the {moved} word to the {target}, `steps` times in a row.",
            f"Rotate the words of the text to the {side} by `steps` places.",
            f"Move the {moved} word to the {target} and repeat that until it was done `steps` times.",
        ),
        behaviour=[
            _RULE,
            f"Rotating to the {side} by one place moves the {moved} word to the {target}.",
            "With fewer words than `steps` it goes round more than once.",
            _JOINED,
        ],
        body=(
            "words = text.split()\n"
            "if not words:\n"
            "    return ''\n"
            f"at = {sign}config.steps % len(words)\n"
            "return ' '.join(words[at:] + words[:at])"
        ),
        draw={"text": {**_SENTENCE, "min": 1}},
        edges=["", " \t ", "one", "one two", "one  two\tthree", "1 2 3 4 5"],
        options={"steps": Option(type="int", default=steps + 1, set=steps)},
    )


def _swap(rng: random.Random) -> ToolVariant:
    what, does, body = rng.choice(
        [
            (
                "neighbours",
                (
                    "Swap the first word with the second, the third with the fourth and so on.",
                    "Exchange the two words of each pair of neighbours, counting pairs from the start.",
                    "Return the words with every odd-numbered one (counting from 1) exchanged with its successor.",
                ),
                "for at in range(0, len(words) - 1, 2):\n    words[at], words[at + 1] = words[at + 1], words[at]",
            ),
            (
                "ends",
                (
                    "Exchange the first and the last word and keep all others in place.",
                    "Return the text with its first and last words swapped.",
                    "Put the last word first and the first word last; the words between them stay where they are.",
                ),
                "if words:\n    words[0], words[-1] = words[-1], words[0]",
            ),
            (
                "halves",
                (
                    "Move the first half of the words behind the second half.",
                    "Return the second half of the words, then the first half.",
                    "Exchange the two halves of the words, keeping the order within each.",
                ),
                "at = (len(words) + 1) // 2\nwords = words[at:] + words[:at]",
            ),
            (
                "odd_even",
                (
                    "Return the words at even positions, then those at odd positions, counting from 1.",
                    "Put the second, fourth, sixth ... word before the first, third, fifth ... one.",
                    "Take every other word beginning with the second, then every other one beginning with the first.",
                ),
                "words = words[1::2] + words[::2]",
            ),
        ]
    )
    extra = {
        "neighbours": "A last word without a partner stays.",
        "halves": "Of an odd number of words, the first half is the longer one.",
    }
    return ToolVariant(
        name=f"swap_words_{what}",
        args={"text": "str"},
        returns="str",
        does=does,
        behaviour=[_RULE, *([extra[what]] if what in extra else []), _JOINED],
        body=f"words = text.split()\n{body}\nreturn ' '.join(words)",
        draw={"text": _SENTENCE},
        edges=["", "one", "one two", "1 2  3", "a b c d", "v w x y z"],
    )


def _sort(rng: random.Random) -> ToolVariant:
    by, wording, key = rng.choice(
        [
            ("length", "their number of characters", "len(w)"),
            ("last_letter", "their last character in lower case", "w[-1].lower()"),
            ("second_letter", "their second character in lower case (words of one character first)", "w[1:2].lower()"),
            (
                "vowels",
                "how many vowels (a, e, i, o, u in either case) they have",
                "len([c for c in w if c.lower() in 'aeiou'])",
            ),
        ]
    )
    tie, ending, code = rng.choice(
        [
            ("stable", "Words that are equal in this keep their order in the text.", f"key=lambda w: {key}"),
            (
                "alphabetical",
                "Words that are equal in this are put in alphabetical order (code points of the words in lower case); "
                "if these are equal too, they keep their order in the text.",
                f"key=lambda w: ({key}, w.lower())",
            ),
        ]
    )
    return ToolVariant(
        name=f"sort_words_by_{by}_{tie}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the words of the text sorted by {wording}, the smallest first.",
            f"Sort the words of the text in ascending order of {wording}.",
            f"Put the words of the text in order, from small to great, by {wording}.",
        ),
        behaviour=[_RULE, ending, _JOINED],
        body=f"return ' '.join(sorted(text.split(), {code}))",
        draw={"text": _SENTENCE},
        edges=[
            "",
            "bb aa c",
            "Za yB xb A",
            "eau Ai to IO up",
            "b2 a1 c1 B1 a",
            "a_ ba x_ xa aC a0 a_z aaz",
            "_b ab _c",
            "xab xa_ xaB",
            "ab_ abz ABC AB_",
        ],
        laws=[{"kind": "idempotent"}],
    )


def _position(rng: random.Random) -> ToolVariant:
    what, wording, pick, key = rng.choice(
        [
            ("longest", "longest word", "max", "len(words[i])"),
            ("shortest", "shortest word", "min", "len(words[i])"),
            ("alphabetically_first", "alphabetically first word (code points, lower case)", "min", "words[i].lower()"),
            ("alphabetically_last", "alphabetically last word (code points, lower case)", "max", "words[i].lower()"),
        ]
    )
    tie = rng.choice(["first", "last"])
    order = "range(len(words))" if tie == "first" else "reversed(range(len(words)))"
    return ToolVariant(
        name=f"position_of_{what}_{tie}_tie",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return at which position, counting words from 1, the {wording} of the text stands.",
            f"Find the {wording} and give its number in the text; the first word has number 1.",
            f"Give the number of words up to and including the {wording} of the text.",
        ),
        behaviour=[_RULE, f"Of several such words the {tie} one counts.", "Without words the answer is 0."],
        body=f"words = text.split()\nreturn {pick}({order}, key=lambda i: {key}, default=-1) + 1",
        draw={
            "text": {
                "kind": "words",
                "values": ["sky", "Sky", "be", "Apple", "river", "zoo", "ZOO", "a", "A"],
                "min": 3,
                "max": 9,
            }
        },
        edges=["", " ", "x", "bb aa bb aa", "b B a A", "aa b aa b", "au _u av", "A _"],
    )


def _ranks(rng: random.Random) -> ToolVariant:
    tie, rule, code = rng.choice(
        [
            ("shared", "Equal words share the rank of the first of them.", "ordered.index(w) + 1"),
            (
                "dense",
                "Equal words share a rank, and the next greater word has the next number.",
                "sorted(set(words)).index(w) + 1",
            ),
            (
                "numbered",
                "Of equal words, the one further left has the smaller rank.",
                "ordered.index(w) + words[:at].count(w) + 1",
            ),
            ("highest", "Equal words share the rank of the last of them.", "ordered.index(w) + ordered.count(w)"),
        ]
    )
    is_blind = rng.random() < 0.5
    loop = "for at, w in enumerate(words)" if "at]" in code else "for w in words"
    first = "" if tie == "dense" else "ordered = sorted(words)\n"
    return ToolVariant(
        name=f"alphabetical_ranks_{tie}_{'any_case' if is_blind else 'by_case'}",
        args={"text": "str"},
        returns="list[int]",
        does=(
            "Return for each word of the text, in its order, which rank it has among the words in alphabetical order.",
            "Number the words as if sorted alphabetically, from 1, and list these ranks in the order of the text.",
            "For every word, from left to right, give its place (from 1) in the alphabetically sorted list of all "
            "words.",
        ),
        behaviour=[
            _RULE,
            rule,
            f"Words are compared by code points{', after lower-casing them' if is_blind else '; case counts'}.",
            "Without words the list is empty.",
        ],
        body=f"words = text{'.lower()' if is_blind else ''}.split()\n{first}return [{code} {loop}]",
        draw={
            "text": {"kind": "words", "values": ["sky", "Sky", "be", "apple", "zoo", "ZOO", "a"], "min": 3, "max": 7}
        },
        edges=["", "b a b a c", "B a b A", "x x x y", "_u au Ab"],
    )


FAMILY = Family(
    name="word_order",
    subject="the order of words",
    tools=(
        ToolTemplate(level=1, make=_reverse),
        ToolTemplate(level=2, make=_rotate),
        ToolTemplate(level=1, make=_swap),
        ToolTemplate(level=2, make=_sort),
        ToolTemplate(level=2, make=_position),
        ToolTemplate(level=3, make=_ranks),
    ),
)
