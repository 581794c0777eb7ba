"""Shortening text."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = ["a", "be", "sky", "lamp", "river", "window", "two-fold", "don't", "Über", "42", "mountains", "extraordinary"]
_SENTENCE = {"kind": "words", "values": _VALUES, "min": 0, "max": 8, "separator": " "}
_MARKS = [("...", "dots"), ("~", "tilde"), (">>", "arrows"), ("[cut]", "cut_note"), ("-", "dash")]
_WORDS = "A word is a run of characters that are not white space."


def _end(rng: random.Random) -> ToolVariant:
    mark, word = rng.choice(_MARKS)
    width = rng.choice([9, 12, 16, 20, 24])
    return ToolVariant(
        name=f"shorten_to_{width}_ending_in_{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text unchanged if it has at most `width` characters; otherwise cut its end and put "{mark}" '
            "there, so that the result has `width` characters.",
            f'Cut the text to `width` characters in all, of which the last are "{mark}"; a text of `width` characters '
            "or fewer stays as it is.",
            f'If the text is longer than `width` characters, replace its end by "{mark}" such that exactly `width` '
            "characters are left, else leave it alone.",
        ),
        behaviour=["No white space is removed, not even before the mark."],
        body=(
            f"mark = {mark!r}\n"
            "if len(text) <= config.width:\n"
            "    return text\n"
            "return text[: config.width - len(mark)] + mark"
        ),
        draw={"text": {**_SENTENCE, "max": 7}},
        edges=["", "x" * width, "y" * (width + 1), "b c " * 9],
        options={"width": Option(type="int", default=width + 16, set=width)},
        laws=[{"kind": "idempotent"}],
    )


def _middle(rng: random.Random) -> ToolVariant:
    mark, word = rng.choice(_MARKS)
    head, tail = rng.choice([(3, 3), (5, 2), (2, 5), (6, 4), (4, 2)])
    longest = head + len(mark) + tail
    return ToolVariant(
        name=f"keep_{head}_and_{tail}_around_{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the first {head} and the last {tail} characters of the text with "{mark}" between them, or the '
            f"whole text if it has at most {longest} characters.",
            f'Replace the middle of a text of more than {longest} characters by "{mark}", so that {head} characters '
            f"are left before and {tail} after it; return shorter ones unchanged.",
            f"Texts of up to {longest} characters stay as they are; of longer ones keep {head} characters at the start "
            f'and {tail} at the end and join them with "{mark}".',
        ),
        behaviour=["Blanks count as characters and are not trimmed."],
        body=(
            f"mark = {mark!r}\n"
            f"if len(text) <= {head} + len(mark) + {tail}:\n"
            "    return text\n"
            f"return text[:{head}] + mark + text[-{tail}:]"
        ),
        draw={"text": _SENTENCE},
        edges=[
            "",
            "0123456789abcdefghij"[:longest],
            "0123456789abcdefghij"[: longest + 1],
            " spaced out  at both ends ",
        ],
        laws=[{"kind": "idempotent"}],
    )


def _whole_words(rng: random.Random) -> ToolVariant:
    limit = rng.choice([8, 11, 14, 19, 23])
    is_cut = rng.random() < 0.5
    rule = f"is cut to its first {limit} characters" if is_cut else "gives the empty text"
    rest = f"return kept or ' '.join(text.split())[:{limit}]" if is_cut else "return kept"
    return ToolVariant(
        name=f"words_within_{limit}_{'cut' if is_cut else 'drop'}_long_first",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return as many whole words from the start of the text as fit into {limit} characters when joined by one "
            "blank.",
            f"Join the words of the text by one blank and shorten the result to at most {limit} characters without "
            "splitting a word: all words from the first that does not fit are dropped.",
            f"Keep the words of the text, one blank between them, up to and without the first one that would make the "
            f"result longer than {limit} characters.",
        ),
        behaviour=[
            _WORDS,
            f"A first word that alone is too long {rule}.",
            "A text without words gives the empty text.",
        ],
        body=(
            "kept = ''\n"
            "for word in text.split():\n"
            "    longer = kept + ' ' + word if kept else word\n"
            f"    if len(longer) > {limit}:\n"
            "        break\n"
            "    kept = longer\n"
            f"{rest}"
        ),
        draw={"text": {**_SENTENCE, "min": 1}},
        edges=[
            "",
            "   ",
            "z" * (limit + 3) + " end",
            "z" * limit,
            "a  b",
            "x " + "w" * (limit - 2),
            "extraordinary " * 3,
        ],
        laws=[{"kind": "idempotent"}],
    )


def _lost(rng: random.Random) -> ToolVariant:
    limit = rng.choice([2, 3, 4])
    unit, code, rule, joiner = rng.choice(
        [
            ("words", "text.split()", _WORDS, " "),
            (
                "lines",
                "text.split('\\n')",
                "Lines are what lies between line breaks; the empty text is one line.",
                "\n",
            ),
            ("items", "text.split(',')", "Items are what lies between commas; the empty text is one item.", ","),
        ]
    )
    size, glue = ("characters", "''") if rng.random() < 0.6 else (unit, "")
    kept = f"[{limit}:]"
    answer = f"len({glue}.join({code}{kept}))" if glue else f"len({code}{kept})"
    return ToolVariant(
        name=f"{size}_lost_after_{limit}_{unit}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return how many {size} are lost if only the first {limit} {unit} of the text are kept.",
            f"Count the {size} {'in all' if glue else 'among the'} {unit} of the text after the first {limit}.",
            f"Shortening the text to its first {limit} {unit} drops some {size}: return their number.",
        ),
        behaviour=[
            rule,
            *(["What separates them is not counted."] if glue else []),
            f"With {limit} or fewer {unit} the answer is 0.",
        ],
        body=f"return {answer}",
        draw={"text": {**_SENTENCE, "min": limit, "max": limit + 7, "separator": joiner}},
        edges=["", joiner.join("abcdefg"), joiner.join(["one", "two", "three", "four"][:limit])],
    )


def _long_words(rng: random.Random) -> ToolVariant:
    limit = rng.choice([3, 4, 5, 6])
    mark = rng.choice([".", "'", "-", "*"])
    kind = {".": "dot", "'": "apostrophe", "-": "dash", "*": "star"}[mark]
    return ToolVariant(
        name=f"abbreviate_words_over_{limit}_with_{kind}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the words of the text, each with more than {limit} characters cut to its first {limit} and "
            f'"{mark}" '
            "added.",
            f'Replace all characters after the first {limit} of each longer word by one "{mark}".',
            f'Abbreviate every word of more than {limit} characters to {limit} characters followed by "{mark}" and '
            "keep "
            "the shorter ones.",
        ),
        behaviour=[_WORDS, "The resulting words are joined by one blank."],
        body=f"return ' '.join(w[:{limit}] + {mark!r} if len(w) > {limit} else w for w in text.split())",
        draw={"text": _SENTENCE},
        edges=["", "a  bc\tdef ghij klmno pqrstu vwxyzab", "1234567890"],
    )


def _first_items(rng: random.Random) -> ToolVariant:
    glue, sign = rng.choice([(", ", "comma"), ("; ", "semicolon"), (" + ", "plus"), ("/", "slash")])
    rest = rng.choice(["more", "others", "left out"])
    return ToolVariant(
        name=f"list_with_{sign}_and_{rest.replace(' ', '_')}",
        args={"items": "list[str]", "most": "int"},
        returns="str",
        does=(
            f'Return the first `most` items joined by "{glue}", followed by " and N {rest}" if N items remain.',
            f'Join the items by "{glue}", but name only the first `most` of them and end with " and N {rest}", where N '
            "is the number of the unnamed ones, unless that is 0.",
            f'List at most `most` items with "{glue}" between them; if that leaves out N > 0 items, append " and N '
            f'{rest}".',
        ),
        behaviour=["No items give the empty text."],
        body=(
            "if most < 1:\n"
            "    raise ValueError('most must be positive')\n"
            f"shown = {glue!r}.join(items[:most])\n"
            "rest = len(items) - most\n"
            f"return f'{{shown}} and {{rest}} {rest}' if rest > 0 else shown"
        ),
        draw={
            "items": {"kind": "list", "item": {"kind": "choice", "values": _VALUES}, "min": 1, "max": 7},
            "most": {"kind": "integer", "low": 1, "high": 5},
        },
        edges=[
            {"items": [], "most": 1},
            {"items": ["a", "b", "c"], "most": 3},
            {"items": ["a", "b", "c"], "most": 2},
            {"items": ["a", "b", "c"], "most": 1},
        ],
        raises="most is less than 1",
        errors=[{"items": ["a"], "most": 0}, {"items": ["b", "c"], "most": -2}],
    )


FAMILY = Family(
    name="text_shortening",
    subject="shortening text",
    tools=(
        ToolTemplate(level=2, make=_end),
        ToolTemplate(level=2, make=_middle),
        ToolTemplate(level=3, make=_whole_words),
        ToolTemplate(level=1, make=_lost),
        ToolTemplate(level=1, make=_long_words),
        ToolTemplate(level=3, make=_first_items),
    ),
)
