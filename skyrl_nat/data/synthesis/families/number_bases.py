"""Whole numbers written in other bases."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAMES = {3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 9: "nine", 12: "twelve", 13: "thirteen", 20: "twenty"}
_NUMBER = {
    "kind": "one_of",
    "of": [
        {"kind": "integer", "low": -60, "high": 300, "edges": [0]},
        {"kind": "integer", "low": 100, "high": 999999},
    ],
}


def _digits_of(base: int) -> str:
    return _DIGITS[:base]


def _range_of(base: int) -> str:
    last = _digits_of(base)[-1]
    return f"0 to {last}" if base <= 10 else f"0 to 9 and {'a' if base == 11 else f'a to {last}'}"


def _to_base(rng: random.Random) -> ToolVariant:
    base = rng.choice(list(_NAMES))
    width = rng.choice([0, 6])
    pad = f"It is filled with zeros on the left to {width} digits, not counting a sign." if width else "No zeros lead."
    return ToolVariant(
        name=f"write_in_base_{_NAMES[base]}{f'_with_{width}_digits' if width else ''}",
        args={"number": "int"},
        returns="str",
        does=(
            f"Write the number in base {base}.",
            f"Return the digits of the number in the number system with base {base}, as text.",
            f"Convert a whole number to base {base} and give the text of its digits.",
        ),
        behaviour=[
            f"Digits are {_range_of(base)}.",
            "A negative number begins with '-'.",
            pad,
            "Zero has the digit 0.",
        ],
        body=(
            "text, rest = '', abs(number)\n"
            "for _ in range(rest.bit_length()):\n"
            "    if rest > 0:\n"
            f"        text = {_digits_of(base)!r}[rest % {base}] + text\n"
            f"        rest //= {base}\n"
            f"return ('-' if number < 0 else '') + text.zfill({max(width, 1)})"
        ),
        draw={"number": _NUMBER},
        edges=[0, 1, -1, base, base - 1, -base, base**6 - 1, base**6],
    )


def _from_base(rng: random.Random) -> ToolVariant:
    base = rng.choice(list(_NAMES))
    side, code = rng.choice([("first", "text"), ("last", "text[::-1]")])
    return ToolVariant(
        name=f"read_base_{_NAMES[base]}_highest_{side}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Read the text as a number in base {base} whose highest digit comes {side}.",
            f"Return the value of the base {base} digits in the text; the {side} one counts most.",
            f"Convert digits of base {base} to a whole number; the digit of the highest power of {base} is the {side} "
            "one.",
        ),
        behaviour=[f"Digits are {_range_of(base)}, letters in either case."],
        body=(
            "if not (text.isascii() and text.isalnum()):\n    raise ValueError('text must be digits')\n"
            f"return int({code}, {base})"
        ),
        draw={
            "text": {"kind": "text", "alphabet": _digits_of(base) + _digits_of(base)[10:].upper(), "min": 1, "max": 7}
        },
        edges=["0", "10", "0012", "21000", _digits_of(base)[-1].upper(), _digits_of(base)],
        raises=f"the text is empty or has a character that is no digit of base {base}",
        errors=["", "-1", "1" + _DIGITS[base], "1_1", "2.0"],
    )


def _bits(rng: random.Random) -> ToolVariant:
    width = rng.choice([8, 10, 12])
    name, what, code, law = rng.choice(
        [
            ("reverse", "in reverse order", "int(bits[::-1], 2)", ""),
            (
                "rotate_left",
                "moved 3 places to the left, where what falls off returns on the right",
                "int(bits[3:] + bits[:3], 2)",
                "",
            ),
            (
                "rotate_right",
                "moved 3 places to the right, where what falls off returns on the left",
                "int(bits[-3:] + bits[:-3], 2)",
                "",
            ),
            (
                "swap_halves_of",
                "with the two halves exchanged",
                f"int(bits[{width // 2}:] + bits[:{width // 2}], 2)",
                "",
            ),
            ("flip", "each turned into its opposite", "int(bits.translate({48: '1', 49: '0'}), 2)", ""),
            ("sort", "sorted, all ones on the right", "int(''.join(sorted(bits)), 2)", "idempotent"),
        ]
    )
    return ToolVariant(
        name=f"{name}_lowest_{width}_bits",
        args={"number": "int"},
        returns="int",
        does=(
            f"Take the lowest {width} bits of the number and return the value of these bits, {what}.",
            f"Write number modulo {2**width} with {width} binary digits and read the digits, {what}, as a number.",
            f"Return the number that the last {width} bits give, {what}; higher bits are dropped.",
        ),
        behaviour=[f"A negative number counts as itself modulo {2**width}, and the answer is never negative."],
        body=f"bits = format(number % 2**{width}, '0{width}b')\nreturn {code}",
        draw={"number": {"kind": "integer", "low": -300, "high": 9000, "edges": [0, 1, 2**width]}},
        edges=[0, 1, -1, 2**width - 2, 2**width + 5, 0b10010110, 0b1101],
        laws=[{"kind": "bounds", "low": 0, "high": 2**width - 1}, *([{"kind": law}] if law else [])],
    )


def _convert(rng: random.Random) -> ToolVariant:
    source, target = rng.sample([3, 4, 5, 6, 7, 9], 2)
    return ToolVariant(
        name=f"from_base_{_NAMES[source]}_to_base_{_NAMES[target]}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Convert a number written in base {source} to base {target}.",
            f"The text is a whole number in base {source}; return the same number written in base {target}.",
            f"Read the digits of the text in base {source} and write the value in base {target}.",
        ),
        behaviour=["The result has no leading zeros, but zero is '0'."],
        body=(
            f"if not text or set(text) - set({_digits_of(source)!r}):\n"
            f"    raise ValueError('not a number in base {source}')\n"
            f"rest, digits = int(text, {source}), ''\n"
            "for _ in range(rest.bit_length()):\n"
            f"    digits = str(rest % {target}) + digits\n"
            f"    rest //= {target}\n"
            "return digits.lstrip('0') or '0'"
        ),
        draw={"text": {"kind": "text", "alphabet": _digits_of(source), "min": 2, "max": 9}},
        edges=["0", "00", "1", "10", str(source - 1) * 5, "0102"],
        raises=f"the text is empty or has a character other than 0 to {source - 1}",
        errors=["", "1" + str(source), "-1", "1 0"],
    )


def _negative_base(rng: random.Random) -> ToolVariant:
    base = rng.choice([2, 3, 4, 5, 7])
    mark_name, mark, rule = rng.choice(
        [
            ("", "", ""),
            ("_reversed", "[::-1]", " Finally the digits are written in reverse order, the lowest place first."),
        ]
    )
    return ToolVariant(
        name=f"write_in_base_minus_{base}{mark_name}",
        args={"number": "int"},
        returns="str",
        does=(
            f"Write the number in base -{base}: the places count 1, -{base}, {base**2}, -{base**3}, ... from the "
            f"right.{rule}",
            f"Return the only text of digits 0 to {base - 1} that gives the number when its digits, from the right, "
            f"are multiplied by the powers of -{base} and added up.{rule}",
            f"Convert the number to the number system with the negative base -{base}, which needs no minus sign; its "
            f"digits are 0 to {base - 1}.{rule}",
        ),
        behaviour=["There are no zeros at the highest places, but zero is '0'."],
        body=(
            "digits = ''\n"
            "for _ in range(99):\n"
            "    if number:\n"
            f"        digits = str(number % {base}) + digits\n"
            f"        number = -(number // {base})\n"
            f"return digits{mark} or '0'"
        ),
        draw={"number": {"kind": "integer", "low": -400, "high": 900, "edges": [0]}},
        edges=[0, 1, -1, base, -base, base**2, 1000, -999, 6],
    )


def _digit_stat(rng: random.Random) -> ToolVariant:
    default, base = rng.choice([(2, 3), (10, 5), (3, 7), (16, 9)])
    name, what, code = rng.choice(
        [
            ("sum", "the sum of the digits", "sum(digits)"),
            (
                "ranked_sum",
                "the sum of each digit times its place, where the last digit has place 1",
                "sum(i * d for i, d in enumerate(digits, 1))",
            ),
            ("squares", "the sum of the squared digits", "sum(d * d for d in digits)"),
            (
                "changes",
                "the sum of the distances between neighbouring digits",
                "sum(abs(a - b) for a, b in zip(digits, digits[1:]))",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_of_digits_in_base_{_NAMES[base]}",
        args={"number": "int"},
        returns="int",
        does=(
            f"Write the number in base `base` and return {what}.",
            f"Of the digits that the number has in the number system with base `base`, give this: {what}.",
            f"For the representation of the number in base `base`, the answer is {what}.",
        ),
        behaviour=["The sign is ignored and no zeros lead.", "Zero gives 0."],
        body=(
            "digits, rest = [], abs(number)\n"
            "for _ in range(rest.bit_length()):\n"
            "    if rest > 0:\n"
            "        digits.append(rest % config.base)\n"
            "        rest //= config.base\n"
            f"return {code}"
        ),
        draw={"number": _NUMBER},
        edges=[0, 1, base, base**2 - 1, -(base**3), 999999, 2 * base, base + 1],
        options={"base": Option(type="int", default=default, set=base)},
        laws=[{"kind": "even"}],
    )


FAMILY = Family(
    name="number_bases",
    subject="numbers in other bases",
    tools=(
        ToolTemplate(level=2, make=_to_base),
        ToolTemplate(level=1, make=_from_base),
        ToolTemplate(level=1, make=_bits),
        ToolTemplate(level=2, make=_convert),
        ToolTemplate(level=3, make=_negative_base),
        ToolTemplate(level=2, make=_digit_stat),
    ),
)
