"""Numbers written for readers."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_STYLES = {
    "english": (",", "."),
    "german": (".", ","),
    "french": (" ", ","),
    "swiss": ("'", "."),
}
"""What is between thousands, what is before the decimals."""


def _group(rng: random.Random) -> ToolVariant:
    name, sign = rng.choice(
        [("commas", ","), ("points", "."), ("blanks", " "), ("apostrophes", "'"), ("underscores", "_")]
    )
    size, word = rng.choice([(3, "three"), (4, "four"), (2, "two")])
    least = rng.choice([5, 6, 7])
    sample = "123456789"
    first = len(sample) % size
    parts = [sample[:first], *(sample[i : i + size] for i in range(first, len(sample), size))]
    shown = sign.join(part for part in parts if part)
    return ToolVariant(
        name=f"group_{word}_digits_with_{name}_from_{least}",
        args={"number": "int"},
        returns="str",
        does=(
            f'Write the number with "{sign}" between groups of {word} digits, such as {shown}, if it has at least '
            "`least` digits.",
            f'Separate the digits of the number into groups of {word}, counted from the right, by "{sign}" ({shown}); '
            "numbers of fewer than `least` digits stay whole.",
            f"Return the number as text like {shown}, groups of {word} digits from the right, but without any "
            f'"{sign}" if there are fewer than `least` digits.',
        ),
        behaviour=["The first group may be shorter.", "A negative number has '-' in front, which is no digit."],
        body=(
            "digits = str(abs(number))\n"
            "if len(digits) < config.least:\n    return str(number)\n"
            f"groups = [digits[max(end - {size}, 0) : end] for end in range(len(digits), 0, -{size})]\n"
            f"return ('-' if number < 0 else '') + {sign!r}.join(reversed(groups))"
        ),
        draw={
            "number": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -99999, "high": 99999},
                    {"kind": "integer", "low": -(10**8), "high": 10**10, "edges": [10**6, 10**7]},
                ],
            }
        },
        edges=[0, -1, 10 ** (least - 1), 10 ** (least - 1) - 1, 1 - 10**least, 123456789012],
        options={"least": Option(type="int", default=1, set=least)},
    )


def _fixed(rng: random.Random) -> ToolVariant:
    style = rng.choice(["english", "german"])
    point = _STYLES[style][1]
    digits = rng.choice([1, 2, 3])
    sign_name, sign, plus = rng.choice(
        [
            ("minus", "Only negative numbers have a sign.", ""),
            ("both", "Numbers that are not negative have '+' in front.", "+"),
        ]
    )
    swap = "" if point == "." else f".replace('.', {point!r})"
    zero_name, zeros, cut = rng.choice(
        [
            ("kept", "Zeros at the end stay.", ""),
            (
                "cut",
                f"Zeros after the '{point}' at the end are dropped, and so is '{point}' if nothing follows.",
                "strip",
            ),
        ]
    )
    code = f"f'{{value:{plus}.{{config.decimals}}f}}'"
    start = "import re\n\n" if cut else ""
    result = f"return re.sub('[.]?0+$', '', text){swap}" if cut else f"return text{swap}"
    return ToolVariant(
        name=f"decimal_{'point' if point == '.' else 'comma'}_{digits}_digits_sign_{sign_name}_zeros_{zero_name}",
        args={"value": "float"},
        returns="str",
        does=(
            f"Write the value with `decimals` decimals and '{point}' before them.",
            f"Return the value as text, rounded to `decimals` digits after the '{point}'.",
            f"Format the value as digits, '{point}', and `decimals` decimals.",
        ),
        behaviour=[
            "Rounding is that of Python's format type 'f', and so is '-0' for negative values that become zero.",
            sign,
            zeros,
        ],
        body=f"{start}text = {code}\n{result}",
        draw={
            "value": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -300.0, "high": 900.0, "digits": 4, "edges": [0.0, 10.0, 0.5]},
                    {"kind": "choice", "values": [2.5, 100.0, -7.0, 0.25, 1.25, 3.10, -40.5, 1200.0, 0.999]},
                ],
            }
        },
        edges=[0.0, 1.0, -1.5, 10.0, 99.9999, 0.05, 1234567.891, -0.3],
        options={"decimals": Option(type="int", default=digits + 2, set=digits)},
    )


def _share(rng: random.Random) -> ToolVariant:
    digits = rng.choice([0, 1, 2])
    name, unit, factor = rng.choice(
        [("percent", " %", 100), ("tight_percent", "%", 100), ("permille", " per mille", 1000)]
    )
    kind, what, top = rng.choice(
        [("share", "part / whole", "part"), ("change", "(part - whole) / whole", "(part - whole)")]
    )
    plus = "+" if kind == "change" else ""
    wanted = {"share": "the share of part in whole", "change": "the change from whole to part, relative to whole"}[kind]
    sign = (
        "Numbers that are not negative begin with '+', negative ones with '-'."
        if plus
        else "Only negative numbers have a sign."
    )
    return ToolVariant(
        name=f"{kind}_as_{name}_{digits}_decimals",
        args={"part": "int", "whole": "int"},
        returns="str",
        does=(
            f'Return {wanted} as text with {digits} decimals and "{unit}" behind it.',
            f'Write {what} times {factor} with {digits} decimals, followed by "{unit}".',
            f'Give {wanted}, times {factor}, in text such as "{12.5:{plus}.{digits}f}{unit}" ({digits} decimals).',
        ),
        behaviour=[
            f"It is {factor} * {what}, written by Python's format type '{plus}.{digits}f'.",
            sign,
        ],
        body=(
            "if whole == 0:\n    raise ValueError('whole must not be zero')\n"
            f"return f'{{{factor} * {top} / whole:{plus}.{digits}f}}{unit}'"
        ),
        draw={
            "part": {"kind": "integer", "low": -60, "high": 900, "edges": [1, 50]},
            "whole": {"kind": "choice", "values": [8, 30, 47, 64, 100, 250, 999, -40]},
        },
        edges=[
            {"part": 1, "whole": 3},
            {"part": 5, "whole": 5},
            {"part": 0, "whole": 7},
            {"part": 1, "whole": -3},
            {"part": 1999, "whole": 2000},
        ],
        raises="whole is zero",
        errors=[{"part": 1, "whole": 0}, {"part": 0, "whole": 0}],
    )


_WHOLE = ["0", "7", "42", "999", "1,000", "12,345", "6,543,210"]
_GROUPS = [
    ("grouped", "must be in groups of three", "[0-9]{1,3}(?:{0}[0-9]{3})*"),
    (
        "any",
        "may be in groups of three, or have nothing between them at all",
        "(?:[0-9]{1,3}(?:{0}[0-9]{3})+|[0-9]+)",
    ),
]


def _read(rng: random.Random) -> ToolVariant:
    style = rng.choice(list(_STYLES))
    between, point = _STYLES[style]
    must_name, must, groups = rng.choice(_GROUPS)
    digits = rng.choice([1, 2, 3])
    mark, dot = (f"[{sign}]" if sign == "." else sign for sign in (between, point))
    pattern = f"-?{groups.replace('{0}', mark)}(?:{dot}[0-9]+)?"
    shown = f"1{between}234{point}5"
    return ToolVariant(
        name=f"value_of_{style}_number_{must_name}_{digits}_digits",
        args={"text": "str"},
        returns="float",
        does=(
            f"Return the value of a number written like {shown!r}, rounded to {digits} digits.",
            f"Read text such as {shown!r} or '-12{point}75' as a number, and round it to {digits} digits.",
            f"Convert a number in the manner of {shown!r} to a float with {digits} digits after the point.",
        ),
        behaviour=[
            f"The digits before the decimals {must}, with {between!r} between groups; the first has one to three.",
            f"Decimals, if any, come after {point!r} and have no groups. A '-' may be in front, nothing else.",
            "Rounding is that of Python's round.",
        ],
        body=(
            "import re\n\n"
            f"if not re.fullmatch({pattern!r}, text):\n    raise ValueError('no number')\n"
            f"return round(float(text.replace({between!r}, ''){_replace_point(point)}), {digits})"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{sign}{whole}{rest}",
                "parts": {
                    "sign": {"kind": "choice", "values": ["", "", "-"]},
                    "whole": {"kind": "choice", "values": [text.replace(",", between) for text in _WHOLE]},
                    "rest": {
                        "kind": "choice",
                        "values": ["", *(point + rest for rest in ("5", "25", "0625", "7182", "0"))],
                    },
                },
            }
        },
        edges=[f"0{point}5", f"-1{between}234{point}5678", f"1{between}000{between}000", "007", f"-0{point}1234"]
        + (["1234567", f"4444{point}1"] if must_name == "any" else []),
        raises="the text is not a number of this form",
        errors=[
            "",
            "abc",
            f"1{between}23",
            f"1{point}",
            f"12{between}3456",
            f"{point}5",
            "--1",
            f"1{between}{between}000",
        ],
    )


def _replace_point(point: str) -> str:
    return "" if point == "." else f".replace({point!r}, '.')"


def _powers(rng: random.Random) -> ToolVariant:
    digits = rng.choice([1, 2, 3])
    name, what, code = rng.choice(
        [
            ("e", 'the letter e and the exponent, such as "{0}e3"', "f'{{number}}e{{power}}'"),
            ("power", '"*10^" and the exponent, such as "{0}*10^3"', "f'{{number}}*10^{{power}}'"),
            (
                "letter",
                'one of the letters u (-6), m (-3), k (3), M (6), G (9) for the exponent, none for 0, such as "{0}k"',
                "number + {{-6: 'u', -3: 'm', 0: '', 3: 'k', 6: 'M', 9: 'G'}}[power]",
            ),
        ]
    )
    shown = f"{12.5:.{digits}f}"
    what = what.format(shown)
    code = code.replace("{{", "{").replace("}}", "}")
    return ToolVariant(
        name=f"exponents_of_three_as_{name}_{digits}_decimals",
        args={"value": "float"},
        returns="str",
        does=(
            f"Write the value as a number with {digits} decimals times a power of ten whose exponent is a multiple of "
            f"3: the number, then {what}.",
            f"Return the value in engineering notation with {digits} decimals and, behind it, {what}.",
            f"Divide the value by a power of 1000 and write the result with {digits} decimals, followed by {what}.",
        ),
        behaviour=[
            "The exponent is the largest of -6, -3, 0, 3, 6 and 9 with 10.0 ** exponent <= abs(value), or -6 if there "
            "is none; for zero it is 0.",
            f"The number is value / 10.0 ** exponent, written by Python's format type '.{digits}f'; the exponent is "
            "chosen before that rounding.",
        ],
        body=(
            "power = -6 if value else 0\n"
            "for step in (-3, 0, 3, 6, 9):\n"
            "    if abs(value) >= 10.0**step:\n"
            "        power = step\n"
            f"number = f'{{value / 10.0**power:.{digits}f}}'\n"
            f"return {code}"
        ),
        draw={
            "value": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -3000.0, "high": 3000.0, "digits": 3},
                    {"kind": "number", "low": 0.0, "high": 0.02, "digits": 8},
                    {"kind": "number", "low": -2e6, "high": 9e6, "digits": 1},
                    {"kind": "number", "low": 1e6, "high": 5e10, "digits": 0},
                ],
            }
        },
        edges=[0.0, 1.0, -1.0, 0.001, 0.0009, 1000.0, 999.9996, -1e6, 1e9, 2.5e13, 4e-8, 0.5, -0.0000123],
    )


def _in_text(rng: random.Random) -> ToolVariant:
    name, sign = rng.choice([("comma", ","), ("blank", " "), ("apostrophe", "'"), ("underscore", "_")])
    least = rng.choice([4, 5, 6])
    scope_name, scope, before = rng.choice(
        [
            ("all", "every run", ""),
            ("whole", "every run that does not follow a point", "(?<![0-9.])"),
            ("after_hash", "every run that does not follow '#'", "(?<![0-9#])"),
        ]
    )
    return ToolVariant(
        name=f"text_numbers_{name}_from_{least}_digits_{scope_name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Put {sign!r} between groups of three digits, from the right, in {scope} of {least} or more digits "
            "of the text.",
            f"Return the text in which {scope} of at least {least} digits is split from its right end into groups of "
            f"three by {sign!r}.",
            f"Group the digits in a text: {scope} of {least} digits or more gets {sign!r} before each third digit from "
            "its end, but not at its beginning.",
        ),
        behaviour=[
            "A run is as long as possible and made of the digits 0 to 9, zeros in front included; all else stays.",
        ],
        body=(
            "import re\n\n"
            "def grouped(run: re.Match[str]) -> str:\n"
            "    first = len(run[0]) % 3\n"
            "    parts = re.findall('...', run[0][first:])\n"
            f"    return {sign!r}.join([run[0][:first], *parts] if first else parts)\n\n"
            f"return re.sub('{before}[0-9]{{{least},}}', grouped, text)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    "1234",
                    "98765",
                    "#123456",
                    "0.5000001",
                    "3.14159265",
                    "x2024y",
                    "12",
                    "7654321,",
                    "(000111)",
                    "and",
                ],
                "min": 2,
                "max": 4,
                "separator": " ",
            }
        },
        edges=["", "none", "999", "1000", "12345", "123456 #7654321", "1.000000 .55555", "a1234567b12345678"],
        laws=[{"kind": "idempotent"}],
    )


FAMILY = Family(
    name="number_formats",
    subject="numbers written for readers",
    tools=(
        ToolTemplate(level=2, make=_group),
        ToolTemplate(level=1, make=_fixed),
        ToolTemplate(level=1, make=_share),
        ToolTemplate(level=2, make=_read),
        ToolTemplate(level=3, make=_powers),
        ToolTemplate(level=3, make=_in_text),
    ),
)
