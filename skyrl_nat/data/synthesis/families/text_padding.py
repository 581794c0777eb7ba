"""Padding and aligning text."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = ["a", "be", "sky", "lamp", "river", "Über", "42", "x-1", "don't"]
_SENTENCE = {"kind": "words", "values": _VALUES, "min": 0, "max": 5, "separator": " "}
_FILLS = [("*", "stars"), (".", "dots"), ("_", "underscores"), ("0", "zeros"), ("=", "equals_signs")]


def _side(rng: random.Random) -> ToolVariant:
    fill, word = rng.choice(_FILLS)
    width = rng.choice([8, 10, 13, 16])
    side = rng.choice(["left", "right"])
    where, code = {"left": ("before", "rjust"), "right": ("after", "ljust")}[side]
    return ToolVariant(
        name=f"pad_{side}_to_{width}_with_{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text with as many "{fill}" put {where} it as it takes to reach `width` characters.',
            f'Pad the text on the {side} with "{fill}" until it has `width` characters.',
            f'Put "{fill}" {where} the text, once for each character by which it is shorter than `width`.',
        ),
        behaviour=["A text that already has `width` or more characters is returned unchanged."],
        body=f"return text.{code}(config.width, {fill!r})",
        draw={"text": {**_SENTENCE, "max": 4}},
        edges=["", "x" * (width - 1), "y" * width, "z" * (width + 4), " blanks stay "],
        options={"width": Option(type="int", default=width + 5, set=width)},
        laws=[{"kind": "idempotent"}],
    )


def _centre(rng: random.Random) -> ToolVariant:
    fill, word = rng.choice(_FILLS)
    width = rng.choice([9, 12, 15, 20])
    side, rest = rng.choice([("left", " + 1"), ("right", "")])
    return ToolVariant(
        name=f"centre_in_{width}_{word}_odd_{side}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the trimmed text centred among "{fill}", {width} characters in all.',
            f'Trim the text and put "{fill}" before and after it, equally many, so that the result has {width} '
            "characters.",
            f'Remove white space at both ends, then pad with "{fill}" on both sides evenly to a length of {width}.',
        ),
        behaviour=[
            f'If the number of "{fill}" is odd, the {side} side gets one more.',
            f"A trimmed text of {width} or more characters gets none.",
            "An empty or blank text is padded like any other.",
        ],
        body=(
            "text = text.strip()\n"
            f"missing = max({width} - len(text), 0)\n"
            f"left = (missing{rest}) // 2\n"
            f"return {fill!r} * left + text + {fill!r} * (missing - left)"
        ),
        draw={"text": {**_SENTENCE, "max": 4}},
        edges=["", "  ", " odd ", "even", "x" * (width - 1), "y" * (width + 1)],
        laws=[{"kind": "idempotent"}],
    )


def _number(rng: random.Random) -> ToolVariant:
    width = rng.choice([4, 5, 6, 8])
    sign = rng.choice(["plus", "minus", "after", "brackets"])
    wording, plus, minus = {
        "plus": ('a sign, which is "+" for zero and more and "-" for less', "'+' + digits", "'-' + digits"),
        "minus": ('a sign for negative numbers only, "-"', "digits", "'-' + digits"),
        "after": (
            '"-" after the digits of negative numbers and "+" after those of all others',
            "digits + '+'",
            "digits + '-'",
        ),
        "brackets": ("negative numbers in round brackets instead of a sign", "digits", "'(' + digits + ')'"),
    }[sign]
    return ToolVariant(
        name=f"number_in_{width}_digits_sign_{sign}",
        args={"number": "int"},
        returns="str",
        does=(
            f"Return the number with at least {width} digits, zeros put first where it has fewer, and {wording}.",
            f"Write the number with leading zeros up to {width} digits, with {wording}.",
            f"Format the number: {wording}; its digits are filled up with zeros at the left to {width}.",
        ),
        behaviour=[f"Only digits count toward {width}; a longer number keeps all its digits."],
        body=(
            "digits = str(abs(number))\n"
            f"digits = '0' * ({width} - len(digits)) + digits\n"
            f"return {plus} if number >= 0 else {minus}"
        ),
        draw={"number": {"kind": "integer", "low": -99999, "high": 99999, "edges": [-1, -42, 7, 360, -805]}},
        edges=[0, -1, 10**width - 1, 10**width, -(10 ** (width + 1))],
    )


def _column(rng: random.Random) -> ToolVariant:
    fill, word = rng.choice([("*", "stars"), (".", "dots"), ("_", "underscores")])
    where, wording, code = rng.choice(
        [
            ("left", "all aligned at the left", "item.ljust(width, fill)"),
            ("right", "all aligned at the right", "item.rjust(width, fill)"),
            ("by_turns", "the first, third, ... aligned at the left, the others at the right", ""),
            ("digits_right", "those of digits 0 to 9 only aligned at the right, the others at the left", ""),
        ]
    )
    test = "at % 2 == 1" if where == "by_turns" else "item.isdigit()"
    code = code or f"item.rjust(width, fill) if {test} else item.ljust(width, fill)"
    loop = "for at, item in enumerate(items)" if where == "by_turns" else "for item in items"
    return ToolVariant(
        name=f"column_{where}_with_{word}",
        args={"items": "list[str]"},
        returns="list[str]",
        does=(
            f'Return the items, each padded with "{fill}" to the length of the longest one, with {wording}.',
            f'Align the items as a column as wide as its longest item, with {wording}, and fill up with "{fill}".',
            f'Pad every item with "{fill}" so that all are as long as the longest, with {wording}.',
        ),
        behaviour=[
            "An item at the left is padded after it, one at the right before it.",
            "An empty item does not count as digits; no items give an empty list.",
        ]
        if where == "digits_right"
        else ["An item at the left is padded after it, one at the right before it.", "No items give an empty list."],
        body=(f"fill = {fill!r}\nwidth = max(len(item) for item in [*items, ''])\nreturn [{code} {loop}]"),
        draw={
            "items": {"kind": "list", "item": {"kind": "choice", "values": [*_VALUES, "7", "1024"]}, "min": 1, "max": 5}
        },
        edges=[[], [""], ["", "ab", "c", "7"], ["1", "22", "x", "yyyy"], ["same", "size"]],
    )


def _missing(rng: random.Random) -> ToolVariant:
    step = rng.choice([4, 5, 6, 8])
    unit, wording, code = rng.choice(
        [
            ("characters", "characters", "len(text)"),
            ("bytes", "bytes in UTF-8", "len(text.encode())"),
            ("visible", "characters other than white space", "len(''.join(text.split()))"),
        ]
    )
    return ToolVariant(
        name=f"missing_{unit}_to_multiple_of_{step}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return how many {wording} the text lacks to have a multiple of {step} of them.",
            f"Count the {wording} that must be added to the text until their number is divisible by {step}.",
            f"Give the smallest number, 0 or more, which added to the text's number of {wording} is a multiple of "
            f"{step}.",
        ),
        behaviour=["0 is a multiple, so the empty text lacks none."],
        body=f"size = {code}\nreturn ({step} - size % {step}) % {step}",
        draw={"text": {**_SENTENCE, "min": 1, "max": 6}},
        edges=["", "a", "b b", "abcdefgh" * 5, "ÜÜÜ"],
        laws=[{"kind": "bounds", "low": 0, "high": step - 1}],
    )


def _row(rng: random.Random) -> ToolVariant:
    fill, word = rng.choice(_FILLS)
    width = rng.choice([14, 18, 22])
    least = rng.choice([1, 2, 3])
    return ToolVariant(
        name=f"row_of_{width}_with_{least}_or_more_{word}",
        args={"label": "str", "value": "str"},
        returns="str",
        does=(
            f'Return the label, then "{fill}" repeated, then the value, {width} characters in all.',
            f"Write label and value as a row of {width} characters: the label at its left end, the value at its "
            "right end, "
            f'"{fill}" in between.',
            f'Put as many "{fill}" between label and value as it takes to get {width} characters.',
        ),
        behaviour=["Label and value are not trimmed."],
        body=(
            f"gap = {width} - len(label) - len(value)\n"
            f"if gap < {least}:\n"
            "    raise ValueError('the row is too long')\n"
            f"return label + {fill!r} * gap + value"
        ),
        draw={
            "label": {**_SENTENCE, "max": 2},
            "value": {"kind": "choice", "values": ["", "7", "12.50", "none", "n/a"]},
        },
        edges=[
            {"label": "x" * (width - least), "value": ""},
            {"label": "", "value": ""},
            {"label": "to", "value": " 3"},
        ],
        raises=f'label and value leave room for fewer than {least} "{fill}"',
        errors=[
            {"label": "x" * (width - least), "value": "1"},
            {"label": "", "value": "9" * (width + 2)},
            {"label": "long label ", "value": "long value here"},
        ],
    )


FAMILY = Family(
    name="text_padding",
    subject="padding and aligning text",
    tools=(
        ToolTemplate(level=1, make=_side),
        ToolTemplate(level=2, make=_centre),
        ToolTemplate(level=2, make=_number),
        ToolTemplate(level=3, make=_column),
        ToolTemplate(level=1, make=_missing),
        ToolTemplate(level=2, make=_row),
    ),
)
