"""Roman numerals."""

import random
from typing import Any

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_STANDARD = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L"), (40, "XL")]
_STANDARD += [(10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]
_WAYS: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "standard": ("4 is IV, 9 is IX, 40 is XL, 90 is XC, 400 is CD, 900 is CM", _STANDARD),
    "additive": (
        "letters are only added, never subtracted: 4 is IIII, 9 is VIIII, 40 is XXXX, 90 is LXXXX, 400 is CCCC, 900 is "
        "DCCCC",
        [(size, letters) for size, letters in _STANDARD if len(letters) == 1],
    ),
    "clock": (
        "fours are added and nines subtracted: 4 is IIII, 9 is IX, 40 is XXXX, 90 is XC, 400 is CCCC, 900 is CM",
        [(size, letters) for size, letters in _STANDARD if letters not in ("IV", "XL", "CD")],
    ),
}
_SIZES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_LETTERS = "The letters are I (1), V (5), X (10), L (50), C (100), D (500) and M (1000)."


def _write(rng: random.Random) -> ToolVariant:
    way = rng.choice(list(_WAYS))
    rule, table = _WAYS[way]
    case, spoken = rng.choice([("upper", "capital"), ("lower", "small")])
    top = rng.choice([999, 1999, 3999])
    pairs = [(size, letters if case == "upper" else letters.lower()) for size, letters in table]
    return ToolVariant(
        name=f"{way}_roman_{case}_up_to_{top}",
        args={"number": "int"},
        returns="str",
        does=(
            f"Write the number as a Roman numeral in {spoken} letters.",
            f"Return the Roman numeral, in {spoken} letters, of the number.",
            f"Convert the number to Roman notation and use {spoken} letters.",
        ),
        behaviour=[f"Larger letters come first, and {rule} (in capitals here)."],
        body=(
            "if not 1 <= number <= config.top:\n    raise ValueError('the number is out of range')\n"
            "text = ''\n"
            f"for size, letters in {pairs}:\n"
            "    text += letters * (number // size)\n"
            "    number %= size\n"
            "return text"
        ),
        draw={
            "number": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": 1, "high": top, "edges": [4, 9, top]},
                    {"kind": "integer", "low": 1, "high": top},
                    {"kind": "choice", "values": [n for n in (949, 494, 444, 999, 1666, 1949, 2494, 888) if n <= top]},
                ],
            }
        },
        edges=[1, 4, 9, 40, 90, 444, 555, 666, 949, top],
        raises="number is less than 1 or more than `top`",
        errors=[0, -5, top + 1],
        options={"top": Option(type="int", default=100, set=top)},
    )


def _read(rng: random.Random) -> ToolVariant:
    name, rule, code = rng.choice(
        [
            (
                "before_larger",
                "a letter is subtracted if the next one is larger, else added",
                "sum(-a if a < b else a for a, b in zip(values, [*values[1:], 0]))",
            ),
            ("added", "all letters are added, whatever their order", "sum(values)"),
            (
                "before_any_larger",
                "a letter is subtracted if any later one is larger, else added",
                "sum(-a if a < max(values[i:]) else a for i, a in enumerate(values))",
            ),
        ]
    )
    case_name, case, text = rng.choice(
        [
            ("any_case", "Small letters count like capitals.", "text.upper()"),
            ("capitals", "Small letters do not count.", "text"),
        ]
    )
    ignored, other, check = rng.choice(
        [
            ("lenient", "Other characters than these are ignored, and without any the answer is 0.", ""),
            ("strict", "Any other character is an error.", "raise"),
        ]
    )
    rejected = f"if not text or set({text}) - set(sizes):\n    raise ValueError('no numeral')\n" if check else ""
    keep = "" if check else " if letter in sizes"
    words = ["XIV", "MCM", "LXX", "IIX", "iv", "CD", "xc", "IM", "VI", "mDc", "XLIX", "IXC"]
    words = words if case_name == "any_case" else [word.upper() if check else word for word in words]
    draw: dict[str, Any] = {"kind": "words", "values": words, "min": 1, "max": 2, "separator": "" if check else " "}
    extra: dict[str, Any] = {
        "kind": "words",
        "values": [*words, "(II)", "X-I", "?"],
        "min": 1,
        "max": 3,
        "separator": " ",
    }
    return ToolVariant(
        name=f"roman_{name}_{case_name}_{ignored}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the value of the Roman letters in the text, where {rule}.",
            f"Read the text as Roman letters: {rule}. Give the resulting number.",
            f"Compute a number from Roman letters; {rule}.",
        ),
        behaviour=[_LETTERS, case, other],
        body=(f"sizes = {_SIZES}\n{rejected}values = [sizes[letter] for letter in {text}{keep}]\nreturn {code}"),
        draw={"text": draw if check else extra},
        edges=["I", "IV", "IX", "XIX", "MCMXCIV", "IIIX", "IXL", "CCD", "VVL", "LDM"]
        + ([] if check else ["", "none", "a I, b V", "xX"])
        + (["ix", "mCm"] if case_name == "any_case" else []),
        raises="the text is empty or has a character that does not count" if check else "",
        errors=["", "X I", "abc", "12", *(["ix"] if case_name == "capitals" else [])] if check else [],
    )


_NEIGHBOURS = [
    ("CCC", "C"),
    ("DCCC", "C"),
    ("LXX", "XX"),
    ("XXX", "X"),
    ("V", "IV"),
    ("D", "C"),
    ("M", "C"),
    ("C", "X"),
]
_NEIGHBOURS += [
    ("L", "X"),
    ("X", "I"),
    ("V", "I"),
    ("C", "IV"),
    ("CCC", "III"),
    ("XXX", "III"),
    ("III", "III"),
    ("XX", "II"),
]


_OPERATIONS = [
    ("sum", "the sum of left and right", "value(left) + value(right)"),
    ("difference", "the larger of left and right minus the smaller", "abs(value(left) - value(right))"),
    ("product", "the product of left and right", "value(left) * value(right)"),
    ("rest", "the remainder of left divided by right", "value(left) % value(right)"),
]


def _combine(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(_OPERATIONS)
    nothing_name, nothing = rng.choice([("n", "N"), ("nulla", "nulla")]) if name in ("difference", "rest") else ("", "")
    way = rng.choice(["standard", "additive"])
    rule, table = _WAYS[way]
    high = ["IX", "XIV", "LXXXVIII", "XLIX", "CDXLIV", "MCMXC", "VI", "DCCC", "III", "XCIX"]
    right = ["IV", "XII", "VII", "XIX", "XXX", "III"] if name == "product" else [*high, "MM"]
    left = high[:5] if name == "product" else high
    zero = f" Zero is {nothing}." if nothing else ""
    too_much = {"sum": [("MMM", "M"), ("MMMCMXCIX", "I")], "product": [("M", "IV"), ("CC", "XX")]}.get(name, [])
    bad = [*too_much, ("", "I"), ("X", "ten"), ("iv", "I"), ("IIX", "II")]
    return ToolVariant(
        name=f"roman_{name}_{way}{f'_zero_{nothing_name}' if nothing else ''}",
        args={"left": "str", "right": "str"},
        returns="str",
        does=(
            f"Return {what}, both Roman numerals, as a Roman numeral.",
            f"Read two Roman numerals and write {what} in Roman letters.",
            f"Calculate with Roman numerals: give {what} as another one.",
        ),
        behaviour=[
            "Both are standard numerals from I to MMMCMXCIX in capitals, such as XIV for 14.",
            f"In the answer larger letters come first, and {rule}.{zero}",
        ],
        body=(
            "import re\n\n"
            f"letter_sizes = {_SIZES}\n\n"
            "def value(text: str) -> int:\n"
            "    form = 'M{0,3}(CM|CD|D?C{0,3})(XC|XL|L?X{0,3})(IX|IV|V?I{0,3})'\n"
            "    if not text or not re.fullmatch(form, text):\n        raise ValueError('no numeral')\n"
            "    sizes = [letter_sizes[letter] for letter in text]\n"
            "    return sum(-a if a < b else a for a, b in zip(sizes, [*sizes[1:], 0]))\n\n"
            f"number, text = {code}, ''\n"
            + (
                f"if number == 0:\n    return {nothing!r}\n"
                if nothing
                else "if number > 3999:\n    raise ValueError('too large')\n"
            )
            + f"for size, letters in {table}:\n"
            "    text += letters * (number // size)\n"
            "    number %= size\n"
            "return text"
        ),
        draw={"left": {"kind": "choice", "values": left}, "right": {"kind": "choice", "values": right}},
        edges=[
            *({"left": left, "right": right} for left, right in _NEIGHBOURS),
            {"left": "I", "right": "I"},
            {"left": "MDCLXVI", "right": "II"},
            {"left": "MMMCM", "right": "I"},
        ],
        raises="left or right is no such numeral" + (", or the result is more than 3999" if not nothing else ""),
        errors=[{"left": a, "right": b} for a, b in bad],
    )


def _in_text(rng: random.Random) -> ToolVariant:
    top = rng.choice([20, 39, 89])
    way = rng.choice(["standard", "clock"])
    rule, table = _WAYS[way]
    case, spoken = rng.choice([("upper", "capital"), ("lower", "small")])
    pairs = [(size, letters if case == "upper" else letters.lower()) for size, letters in table if size <= top]
    rule = "4 is IV, 9 is IX" if way == "standard" else "4 is IIII, 9 is IX"
    rule += (", 40 is XL" if way == "standard" else ", 40 is XXXX") if top > 39 else ""
    return ToolVariant(
        name=f"{way}_roman_in_text_{case}_up_to_{top}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Replace every number from 1 to {top} in the text by its Roman numeral in {spoken} letters.",
            f"Return the text with its numbers from 1 to {top} written in Roman notation, in {spoken} letters.",
            f"Rewrite the numbers of a text as Roman numerals ({spoken} letters) where they are from 1 to {top}.",
        ),
        behaviour=[
            "A number is a longest possible run of the digits 0 to 9, also inside a word; zeros in front do not count.",
            f"Other numbers stay as they are written. Larger letters come first, and {rule} (in capitals here).",
        ],
        body=(
            "import re\n\n"
            "def roman(run: re.Match[str]) -> str:\n"
            "    number, text = int(run[0]), ''\n"
            f"    if not 1 <= number <= {top}:\n        return run[0]\n"
            f"    for size, letters in {pairs}:\n"
            "        text += letters * (number // size)\n"
            "        number %= size\n"
            "    return text\n\n"
            "return re.sub('[0-9]+', roman, text)"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{word} {first}{mark} {second}",
                "parts": {
                    "word": {"kind": "choice", "values": ["Louis", "chapter", "page3", "No.", "v2.", ""]},
                    "first": {"kind": "integer", "low": 0, "high": top + 5, "edges": [4, 9, top, 14]},
                    "mark": {"kind": "choice", "values": [",", "", " of", "-"]},
                    "second": {"kind": "choice", "values": ["19", "6", "04", "1999", "16th", "8", "00", "x"]},
                },
            }
        },
        edges=["", "none", f"{top} {top + 1}", "1 4 5 9 10 14 19 20", "0", "40 49 50 89", "a12b007"],
    )


def _outline(rng: random.Random) -> ToolVariant:
    start = rng.choice([1, 3, 8, 37, 85])
    case, spoken = rng.choice([("upper", "capital"), ("lower", "small")])
    style, form, code = rng.choice(
        [
            ("points", "<numeral>. <item>", "f'{roman(number)}. {item}'"),
            ("brackets", "(<numeral>) <item>", "f'({roman(number)}) {item}'"),
            ("behind", "<item> <numeral>", "f'{item} {roman(number)}'"),
        ]
    )
    numbers = range(start, start + 12)
    used = {letters for number in numbers for letters in _parts(number)}
    pairs = [(size, letters if case == "upper" else letters.lower()) for size, letters in _STANDARD if letters in used]
    return ToolVariant(
        name=f"number_items_roman_{case}_{style}_from_{start}",
        args={"items": "list[str]"},
        returns="list[str]",
        does=(
            f'Number the items in Roman numerals ({spoken} letters), from `start` on: "{form}".',
            f'Return each item as "{form}", where the first has the Roman numeral of `start` in {spoken} letters, the '
            "next one that of the number after it, and so on.",
            f'Write a numbered list, every item as "{form}"; numerals are Roman, in {spoken} letters, and begin with '
            "`start`.",
        ),
        behaviour=[
            "Numerals are standard ones: 4 is IV, 9 is IX, 40 is XL, 90 is XC (in capitals here).",
            "Items stay as they are; an empty list gives an empty list.",
        ],
        body=(
            "if len(items) > 12:\n    raise ValueError('too many items')\n\n"
            "def roman(number: int) -> str:\n"
            "    text = ''\n"
            f"    for size, letters in {pairs}:\n"
            "        text += letters * (number // size)\n"
            "        number %= size\n"
            "    return text\n\n"
            f"return [{code} for number, item in enumerate(items, config.start)]"
        ),
        draw={
            "items": {
                "kind": "list",
                "item": {"kind": "choice", "values": ["start", "Look", "", "two words", "IV", "end.", "x"]},
                "min": 2,
                "max": 9,
            }
        },
        edges=[[], ["one"], list("abcdefghijkl"), ["same"] * 5],
        raises="there are more than 12 items",
        errors=[["x"] * 13, list("abcdefghijklmnop")],
        options={"start": Option(type="int", default=start + 1, set=start)},
    )


def _parts(number: int) -> list[str]:
    found: list[str] = []
    for size, letters in _STANDARD:
        found += [letters] * (number // size)
        number %= size
    return found


def _length(rng: random.Random) -> ToolVariant:
    kind, what, counts = rng.choice(
        [
            ("letters", "letters", [0, 1, 2, 3, 2, 1, 2, 3, 4, 2]),
            (
                "additive_letters",
                "letters, if no letter is ever subtracted (4 is IIII, 9 is VIIII),",
                [0, 1, 2, 3, 4, 1, 2, 3, 4, 5],
            ),
            ("signs_i_x_c_m", "letters other than V, L and D", [0, 1, 2, 3, 1, 0, 1, 2, 3, 2]),
        ]
    )
    weight_name, weight, code = rng.choice(
        [
            ("sum", "the number of", "sum(counts)"),
            ("square", "the square of the number of", "sum(counts) ** 2"),
            ("tenfold", "10 times the number of", "10 * sum(counts)"),
        ]
    )
    modulo = rng.choice([1000, 4000])
    return ToolVariant(
        name=f"count_{kind}_{weight_name}_below_{modulo}",
        args={"number": "int"},
        returns="int",
        does=(
            f"Return {weight} {what} in the Roman numeral of the number modulo {modulo}.",
            f"Write abs(number) % {modulo} as a Roman numeral and give {weight} {what} in it.",
            f"Take the remainder of the number, without its sign, by {modulo}. The answer is {weight} {what} that its "
            "Roman numeral has.",
        ),
        behaviour=[
            "The sign is ignored: it is the remainder of the number without its sign that counts. Zero has no letters.",
            "Numerals are standard ones (4 is IV, 9 is IX, 40 is XL and so on)."
            if "additive" not in kind
            else _LETTERS,
        ],
        body=(
            f"table = {counts}\ncounts = [table[int(digit)] for digit in str(abs(number) % {modulo})]\nreturn {code}"
        ),
        draw={"number": {"kind": "integer", "low": -5000, "high": 12000, "edges": [0, 1000, 4000, 3888]}},
        edges=[0, 4, 5, 6, 9, 8, 3888, 3999, 4000, -14, 1000],
        laws=[{"kind": "even"}],
    )


FAMILY = Family(
    name="roman_numerals",
    subject="Roman numerals",
    tools=(
        ToolTemplate(level=2, make=_write),
        ToolTemplate(level=2, make=_read),
        ToolTemplate(level=3, make=_combine),
        ToolTemplate(level=3, make=_in_text),
        ToolTemplate(level=2, make=_outline),
        ToolTemplate(level=1, make=_length),
    ),
)
