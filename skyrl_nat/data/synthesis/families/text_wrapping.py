"""Breaking text into lines and joining lines again."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = ["a", "be", "sky", "lamp", "river", "window", "two-fold", "don't", "Über", "42.", "mountains", "so"]
_SENTENCE = {"kind": "words", "values": _VALUES, "min": 2, "max": 10, "separator": " "}
_WORDS = "A word is a run of characters that are not white space."
_FILL = "As many words as fit go on each line, one blank between them, without splitting a word."


def _wrap(rng: random.Random) -> ToolVariant:
    width = rng.choice([7, 9, 12, 15])
    glue, sign = rng.choice([("\n", "line_breaks"), (" | ", "bars"), (" / ", "slashes")])
    is_cut = rng.random() < 0.5
    long, rule = (
        ("cut", "A word longer than `width` is first cut into pieces of `width` characters (the last may be shorter).")
        if is_cut
        else ("whole", "A word longer than `width` stays whole and has a line of its own.")
    )
    cut = "words = [w[at : at + config.width] for w in text.split() for at in range(0, len(w), config.width)]\n"
    shown = "line breaks" if glue == "\n" else f'"{glue}"'
    return ToolVariant(
        name=f"wrap_at_{width}_{long}_with_{sign}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Break the text into lines of at most `width` characters and return them joined by {shown}.",
            f"Wrap the words of the text to lines of up to `width` characters, with {shown} between the lines.",
            f"Return the text as lines that are no longer than `width` characters, put together with {shown}.",
        ),
        behaviour=[
            _WORDS,
            _FILL,
            f"{rule[:-1]}, and each piece counts as a word." if is_cut else rule,
            "A text without words gives the empty text.",
        ],
        body=(
            f"{cut if is_cut else ''}"
            "lines = []\n"
            f"for word in {'words' if is_cut else 'text.split()'}:\n"
            "    if lines and len(lines[-1]) + len(word) < config.width:\n"
            "        lines[-1] += ' ' + word\n"
            "    else:\n"
            "        lines.append(word)\n"
            f"return {glue!r}.join(lines)"
        ),
        draw={"text": _SENTENCE},
        edges=[
            "",
            "  \n ",
            "x" * (2 * width + 3) + " y",
            "a " + "b" * (width - 2),
            "a " + "b" * (width - 1),
            "q\tr\ns  t" * 3,
        ],
        options={"width": Option(type="int", default=width + 20, set=width)},
    )


def _blocks(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4, 5])
    glue, sign = rng.choice([(" ", "blanks"), ("-", "dashes"), (":", "colons"), ("_", "underscores")])
    side = rng.choice(["start", "end"])
    odd = {"start": "last", "end": "first"}[side]
    code = {
        "start": f"text[at : at + {size}] for at in range(0, len(text), {size})",
        "end": f"text[::-1][at : at + {size}] for at in range(0, len(text), {size})",
    }[side]
    turned = "[::-1]" if side == "end" else ""
    return ToolVariant(
        name=f"blocks_of_{size}_from_{side}_by_{sign}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Remove all white space from the text and return it in blocks of {size} characters with "{glue}" '
            "between them, "
            f"counted from the {side}.",
            f'Drop the white space, then put "{glue}" after every {size} characters, counted from the {side} of the '
            "text, "
            "but not at its ends.",
            f"Group the characters that are not white space into blocks of {size}, beginning at the {side}, and join "
            "the "
            f'blocks by "{glue}".',
        ),
        behaviour=[f"Only the {odd} block may be shorter.", "The order of the characters does not change."],
        body=f"text = ''.join(text.split())\nreturn {glue!r}.join([{code}]){turned}",
        draw={"text": {**_SENTENCE, "min": 1, "max": 4}},
        edges=["", "  ", "abcdef", "1234567890123", "a b"],
    )


def _lengths(rng: random.Random) -> ToolVariant:
    width = rng.choice([9, 12, 15, 18])
    what, wording, code = rng.choice(
        [
            ("lengths", "the length of each line", "[len(line) for line in lines]"),
            (
                "room",
                f"for each line how many characters it has less than {width} (negative for longer ones)",
                f"[{width} - len(line) for line in lines]",
            ),
            ("words", "the number of words of each line", "[len(line.split()) for line in lines]"),
        ]
    )
    return ToolVariant(
        name=f"{what}_of_lines_wrapped_at_{width}",
        args={"text": "str"},
        returns="list[int]",
        does=(
            f"Wrap the text at {width} characters and return {wording}.",
            f"Break the words of the text into lines of at most {width} characters and list {wording}.",
            f"Give {wording} after the text was broken into lines of up to {width} characters.",
        ),
        behaviour=[
            _WORDS,
            _FILL,
            "A word that is too long for a line stays whole and has a line of its own.",
            "A text without words gives an empty list.",
        ],
        body=(
            "lines = []\n"
            "for word in text.split():\n"
            f"    if lines and len(lines[-1]) + len(word) < {width}:\n"
            "        lines[-1] += ' ' + word\n"
            "    else:\n"
            "        lines.append(word)\n"
            f"return {code}"
        ),
        draw={"text": _SENTENCE},
        edges=[
            "",
            "x" * (width + 2) + " y",
            "a " + "b" * (width - 2),
            "a " + "b" * (width - 1),
            "q\tr\n s t u v w x y z",
        ],
    )


def _unwrap(rng: random.Random) -> ToolVariant:
    glue, sign = rng.choice([(" ", "blanks"), (" / ", "slashes"), ("; ", "semicolons")])
    hyphen, rule, code = rng.choice(
        [
            ("kept", "A hyphen at the end of a line is kept like any character.", "part.split('\\n')"),
            (
                "glued",
                "A hyphen at the very end of a line that is not the last of its paragraph is removed together with the "
                "line break.",
                "part.replace('-\\n', '').split('\\n')",
            ),
        ]
    )
    between, mark = rng.choice([("\n", "lines"), ("\n\n", "paragraphs")])
    shown = "one line break" if between == "\n" else "two line breaks"
    return ToolVariant(
        name=f"unwrap_to_{mark}_by_{sign}_hyphens_{hyphen}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Join the lines of each paragraph by "{glue}" and the paragraphs by {shown}.',
            f'Undo line breaking: lines of a paragraph are put together with "{glue}", paragraphs with {shown} in '
            "between.",
            f'Return each paragraph of the text as one line, "{glue}" in place of its line breaks, with {shown} '
            "between "
            "paragraphs.",
        ),
        behaviour=[
            "The text is split into paragraphs at every two line breaks in a row, from left to right.",
            rule,
            "White space at both ends of a line is removed before lines are joined; empty lines are joined like "
            "others.",
        ],
        body=(
            "paragraphs = []\n"
            "for part in text.split('\\n\\n'):\n"
            f"    lines = [line.strip() for line in {code}]\n"
            f"    paragraphs.append({glue!r}.join(lines))\n"
            f"return {between!r}.join(paragraphs)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["So it\nis", "moun-\ntains", " end- ", "red\n sky ", "x", "a\nb-\nc", "two-fold\nlamp"],
                "min": 1,
                "max": 4,
                "separator": "\n\n",
            }
        },
        edges=["", "a-\n\nb", "a\nb\n\nc-\nd", "- \n-", "one\n"],
    )


def _justify(rng: random.Random) -> ToolVariant:
    fill, word = rng.choice([(" ", "blanks"), (".", "dots"), ("_", "underscores")])
    shown = {" ": "blanks"}.get(fill, f'"{fill}"')
    side = rng.choice(["left", "right"])
    test = "at < wide" if side == "left" else "at >= gaps - wide"
    return ToolVariant(
        name=f"justify_with_{word}_wide_{side}",
        args={"text": "str", "width": "int"},
        returns="str",
        does=(
            f"Return the words of the text on one line of exactly `width` characters, with {shown} in the gaps "
            "between them.",
            f"Justify the words of the text to `width` characters by filling the gaps between words with {shown}.",
            "Spread the words of the text over a line of `width` characters; the gaps between words consist of "
            f"{shown}.",
        ),
        behaviour=[
            _WORDS,
            f"The gaps are equally wide; if that does not come out even, the gaps further {side} get one more each.",
            f"A single word is followed by {shown} up to `width`.",
        ],
        body=(
            "words = text.split()\n"
            "gaps = len(words) - 1\n"
            "spare = width - len(''.join(words))\n"
            "if not words or spare < gaps:\n"
            "    raise ValueError('the words do not fit')\n"
            "if gaps == 0:\n"
            f"    return words[0] + {fill!r} * spare\n"
            "line, wide = words[0], spare % gaps\n"
            "for at, word in enumerate(words[1:]):\n"
            f"    line += {fill!r} * (spare // gaps + (1 if {test} else 0)) + word\n"
            "return line"
        ),
        draw={
            "text": {"kind": "words", "values": ["a", "be", "sky", "lamp", "river", "two"], "min": 1, "max": 5},
            "width": {"kind": "integer", "low": 20, "high": 34},
        },
        edges=[
            {"text": "a b c", "width": 5},
            {"text": "a b c d", "width": 9},
            {"text": " one ", "width": 3},
            {"text": "one", "width": 6},
        ],
        raises="the text has no words, or they do not fit into `width` with at least one character in each gap",
        errors=[
            {"text": "", "width": 5},
            {"text": "ab cd", "width": 4},
            {"text": "abc", "width": 2},
            {"text": " ", "width": 0},
        ],
    )


def _count(rng: random.Random) -> ToolVariant:
    width = rng.choice([5, 6, 8, 10])
    what, wording, code = rng.choice(
        [
            ("rows", "rows", "sum(max((len(line) + {w} - 1) // {w}, 1) for line in lines)"),
            (
                "extra_characters",
                "characters that stand after the first {w} of their line",
                "sum(max(len(line) - {w}, 0) for line in lines)",
            ),
            ("room", "unused places on the last rows of the lines", "sum(-len(line) % {w} for line in lines)"),
        ]
    )
    rows = f"Each line is shown in rows of {width} characters, as many as it needs; an empty line needs one row"
    rule = {
        "rows": f"{rows}.",
        "extra_characters": "A line of that length or less has none.",
        "room": f"Each line is shown in rows of {width} characters, of which only the last may have unused places; an "
        "empty line needs no row.",
    }[what]
    wording = wording.format(w=width)
    return ToolVariant(
        name=f"count_{what}_at_width_{width}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the number of {wording} if lines are {width} characters wide.",
            f"Count the {wording} when the text is shown {width} characters wide.",
            f"At a width of {width} characters, tell the number of {wording}.",
        ),
        behaviour=["Lines are what lies between line breaks; the empty text is one empty line.", rule],
        body=f"lines = text.split('\\n')\nreturn {code.format(w=width)}",
        draw={
            "text": {
                "kind": "words",
                "values": [
                    "",
                    "a",
                    "lamp",
                    "two words",
                    "x" * width,
                    "y" * (width + 1),
                    "mountains, rivers",
                    "z" * (width + 3),
                ],
                "min": 2,
                "max": 5,
                "separator": "\n",
            }
        },
        edges=["", "\n", "z" * width, "z" * (width + 1), "one line"],
    )


FAMILY = Family(
    name="text_wrapping",
    subject="wrapping text into lines",
    tools=(
        ToolTemplate(level=3, make=_wrap),
        ToolTemplate(level=1, make=_blocks),
        ToolTemplate(level=2, make=_lengths),
        ToolTemplate(level=2, make=_unwrap),
        ToolTemplate(level=3, make=_justify),
        ToolTemplate(level=1, make=_count),
    ),
)
