"""Fractions written as text."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_SMALL = {"kind": "integer", "low": 1, "high": 12}
_FRACTION = {
    "kind": "template",
    "pattern": "{top}/{bottom}",
    "parts": {"top": {"kind": "integer", "low": -9, "high": 40, "edges": [0, 6, 12]}, "bottom": _SMALL},
}
_PROPER = {
    "kind": "template",
    "pattern": "{top}/{bottom}",
    "parts": {"top": {"kind": "integer", "low": 1, "high": 14}, "bottom": {"kind": "integer", "low": 15, "high": 30}},
}
_FORM = "A fraction in the text is two whole numbers with '/' between them, and the first may be negative."
_BOTTOM = "the denominator is not positive, or the text is not two whole numbers with '/' between them"
_READ = (
    "top, _, bottom = text.partition('/')\n"
    "top, bottom = int(top), int(bottom)\n"
    "if bottom < 1:\n    raise ValueError('the denominator must be positive')\n"
)


def _mixed(rng: random.Random) -> ToolVariant:
    joint_name, joint = rng.choice([("blank", " "), ("and", " and "), ("plus", "+"), ("underscore", "_")])
    whole_name, whole_rule, whole = rng.choice(
        [
            ("bare", "without a fraction the whole part stands alone", "str(whole)"),
            ("with_zero", "without a fraction, '{0}0/1' is written after the whole part", "f'{{whole}}{0}0/1'"),
        ]
    )
    whole_rule, whole = whole_rule.format(joint), whole.format(joint)
    return ToolVariant(
        name=f"mixed_number_with_{joint_name}_{whole_name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Write the fraction in the text as a mixed number: the whole part, '{joint}' and the rest as a fraction "
            "in lowest terms.",
            f"Return the fraction as '<w>{joint}<a>/<b>', where <w> is the whole part and <a>/<b> the rest in lowest "
            "terms, which is at least 0 and below 1.",
            f"Split a fraction into its whole part and what is left over (in lowest terms) and join both by '{joint}'.",
        ),
        behaviour=[
            _FORM,
            "The whole part is rounded down, also for negative fractions, so what is left over is never negative.",
            f"The whole part is written even if it is 0, and {whole_rule}.",
        ],
        body=(
            f"from fractions import Fraction\n{_READ}"
            "whole = top // bottom\n"
            "rest = Fraction(top % bottom, bottom)\n"
            f"return f'{{whole}}{joint}{{rest}}' if rest else {whole}"
        ),
        draw={"text": _FRACTION},
        edges=["0/5", "8/4", "-7/3", "7/3", "6/9", "-1/2", "5/1"],
        raises=_BOTTOM,
        errors=["3/0", "1/-2", "half", "3", "1/x"],
    )


def _reduce_all(rng: random.Random) -> ToolVariant:
    name, what, factor, code = rng.choice(
        [
            ("lowest_terms", "the same fraction in lowest terms", "", "f'{{top // g}}{0}{{bottom // g}}'"),
            (
                "lowest_reciprocals",
                "its reciprocal (top and bottom exchanged) in lowest terms",
                "",
                "f'{{bottom // g}}{0}{{top // g}}'",
            ),
            (
                "rest_to_one",
                "1 minus it in lowest terms, a minus sign first if that is negative",
                "",
                "f'{{(bottom - top) // g}}{0}{{bottom // g}}'",
            ),
            ("lowest_halves", "half of it in lowest terms", " * 2", "f'{{top // g}}{0}{{bottom // g}}'"),
        ]
    )
    mark_name, mark, shown = rng.choice(
        [("slash", "/", ""), ("colon", ":", ", with ':' instead of '/'"), ("over", " over ", ", with ' over ' for '/'")]
    )
    return ToolVariant(
        name=f"{name}_in_text_with_{mark_name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Replace every fraction in the text by {what}{shown}.",
            f"Return the text where instead of each fraction there is {what}{shown}.",
            f"Find all fractions in the text; write for each of them {what}{shown}, and leave the rest as it is.",
        ),
        behaviour=[
            "A fraction is two groups of digits 0 to 9 with '/' between them, and neither group begins with 0.",
            "Fractions are found from left to right, the denominator is always written, and a sign before a fraction "
            "is other text.",
        ],
        body=(
            "import math\nimport re\n"
            "def write(match: re.Match[str]) -> str:\n"
            f"    top, bottom = int(match[1]), int(match[2]){factor}\n"
            "    g = math.gcd(top, bottom)\n"
            f"    return {code.format(mark)}\n"
            "return re.sub(r'([1-9][0-9]*)/([1-9][0-9]*)', write, text)"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{start} {a}/{b}{end} {c}/{d}",
                "parts": {
                    "start": {"kind": "choice", "values": ["add", "from", "3 and", "about"]},
                    "end": {"kind": "choice", "values": ["", " of it,", " cup and", " to"]},
                    **{part: {"kind": "integer", "low": 1, "high": 24} for part in "abcd"},
                },
            }
        },
        edges=["", "no fraction", "6/8", "10/4 10/5", "half", "14/21!"],
    )


def _combine(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("sum", "their sum", "a + b"),
            ("difference", "the first minus the second", "a - b"),
            ("product", "their product", "a * b"),
            ("middle", "the number half way between them", "(a + b) / 2"),
            ("distance", "their distance, which is never negative", "abs(a - b)"),
            (
                "mediant",
                "the sum of their numerators over the sum of their denominators, both taken in lowest terms",
                "Fraction(a.numerator + b.numerator, a.denominator + b.denominator)",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_of_two_fractions",
        args={"left": "str", "right": "str"},
        returns="str",
        does=(
            f"Read two fractions from text and return {what}, as a fraction in lowest terms.",
            f"For the fractions left and right (the first and the second), write {what} in lowest terms.",
            f"Take two fractions and compute {what}; the answer is text such as '3/4', in lowest terms.",
        ),
        behaviour=[
            "Each argument is two whole numbers with '/' between them, such as '-6/8'; the second is positive.",
            "A whole result is written without a denominator, such as '2' or '0'.",
        ],
        body=(
            "from fractions import Fraction\n"
            "tops = [int(text.split('/')[0]) for text in (left, right)]\n"
            "bottoms = [int(text.split('/')[1]) for text in (left, right)]\n"
            "if min(bottoms) < 1:\n    raise ValueError('the denominators must be positive')\n"
            "a, b = (Fraction(top, bottom) for top, bottom in zip(tops, bottoms))\n"
            f"return str({code})"
        ),
        draw={"left": _FRACTION, "right": _FRACTION},
        edges=[
            {"left": "1/2", "right": "1/2"},
            {"left": "2/4", "right": "-1/3"},
            {"left": "0/3", "right": "7/1"},
            {"left": "3/8", "right": "5/6"},
        ],
        raises="a denominator is zero or negative",
        errors=[{"left": "1/0", "right": "1/2"}, {"left": "1/2", "right": "3/-4"}, {"left": "5/3", "right": "0/0"}],
    )


def _expand(rng: random.Random) -> ToolVariant:
    base = rng.choice([10, 8, 6])
    name, opening, closing = rng.choice(
        [("round", "(", ")"), ("square", "[", "]"), ("angle", "<", ">"), ("bars", "|", "|")]
    )
    system = "decimal" if base == 10 else f"base {base}"
    return ToolVariant(
        name=f"expand_in_base_{base}_period_in_{name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Write the fraction in {system} digits, with a point after the whole part and the repeating part between "
            f"'{opening}' and '{closing}'.",
            f"Return the exact {system} expansion of the fraction; the digits that repeat for ever are written once, "
            f"with '{opening}' before and '{closing}' after them.",
            f"Divide the fraction out in {system} digits until the remainder is 0 or comes again. In the second case "
            f"put '{opening}' before the first digit of the period and '{closing}' at the end.",
        ),
        behaviour=[
            "The fraction is two whole numbers that are not negative with '/' between them.",
            "The whole part, which is '0' for fractions below 1, is always written in decimal.",
            "A whole number has no point, and a period that consists of zeros is not written.",
        ],
        body=(
            f"{_READ}"
            "if top < 0:\n    raise ValueError('the fraction must not be negative')\n"
            "whole, rest = divmod(top, bottom)\n"
            "digits, seen = '', []\n"
            "for _ in range(bottom):\n"
            "    if rest > 0 and rest not in seen:\n"
            "        seen.append(rest)\n"
            f"        digits += str(rest * {base} // bottom)\n"
            f"        rest = rest * {base} % bottom\n"
            "if rest:\n"
            "    start = seen.index(rest)\n"
            f"    digits = digits[:start] + '{opening}' + digits[start:] + '{closing}'\n"
            "return f'{whole}.{digits}' if digits else str(whole)"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{top}/{bottom}",
                "parts": {
                    "top": {"kind": "integer", "low": 0, "high": 40},
                    "bottom": {"kind": "integer", "low": 1, "high": 30, "edges": [7, 12, 8]},
                },
            }
        },
        edges=["0/3", "1/3", "1/6", "5/8", "22/7", "9/3", "1/12", "7/36"],
        raises="the denominator is not positive, or the numerator is negative",
        errors=["1/0", "3/-4", "-1/3"],
    )


def _order(rng: random.Random) -> ToolVariant:
    goal_name, goal, target = rng.choice(
        [
            ("one_half", "1/2", "Fraction(1, 2)"),
            ("one_third", "1/3", "Fraction(1, 3)"),
            ("one", "1", "1"),
            ("two", "2", "2"),
        ]
    )
    first, preposition, sign = rng.choice([("nearest", "to", ""), ("farthest", "from", "-")])
    return ToolVariant(
        name=f"fractions_{first}_{preposition}_{goal_name}_first",
        args={"fractions": "list[str]"},
        returns="list[str]",
        does=(
            f"Sort the fractions by their distance from {goal}, {first} first.",
            f"Return the same texts in another order: what is {first} {preposition} {goal} comes first, and so on.",
            f"Order the list by how far each fraction is from {goal}, beginning with the {first} one.",
        ),
        behaviour=[
            "A fraction is two whole numbers with '/' between them and a positive denominator.",
            "Of fractions at equal distance, the one that comes first in the list stays first.",
            "The texts are returned as they are.",
        ],
        body=(
            "from fractions import Fraction\n"
            f"target = {target}\n"
            "def distance(text: str) -> Fraction:\n"
            "    top, _, bottom = text.partition('/')\n"
            f"    return {sign}abs(Fraction(int(top), int(bottom)) - target)\n"
            "return sorted(fractions, key=distance)"
        ),
        draw={
            "fractions": {"kind": "list", "item": {"kind": "one_of", "of": [_FRACTION, _PROPER]}, "min": 2, "max": 6}
        },
        edges=[[], ["3/4", "1/4"], ["2/3", "0/3", "4/6"], ["1/2", "2/4", "3/2", "-1/2"], ["0/1", "2/1", "1/1"]],
        laws=[{"kind": "idempotent"}],
    )


def _approximate(rng: random.Random) -> ToolVariant:
    default, limit = rng.choice([(5, 8), (10, 16), (100, 12), (20, 9)])
    shape, what, code = rng.choice(
        [
            ("plain", "as '<a>/<b>'", "f'{f.numerator}/{f.denominator}'"),
            ("reversed", "bottom first, as '<b> under <a>'", "f'{f.denominator} under {f.numerator}'"),
        ]
    )
    return ToolVariant(
        name=f"fraction_up_to_{limit}_{shape}",
        args={"value": "float"},
        returns="str",
        does=(
            f"Return the fraction nearest to the value whose denominator is at most `limit`, written {what}.",
            f"Approximate the value by the closest fraction a/b in lowest terms with b from 1 to `limit` and write it "
            f"{what}.",
            f"Of all fractions with a denominator from 1 to `limit`, find the one closest to the value. Write it in "
            f"lowest terms, {what}.",
        ),
        behaviour=[
            "The value counts as the decimal number that str(value) shows.",
            "Of two that are equally close it is the one that Fraction.limit_denominator() gives.",
            "The denominator is written even if it is 1, and a minus sign belongs to the numerator <a>.",
        ],
        body=(
            f"from fractions import Fraction\nf = Fraction(str(value)).limit_denominator(config.limit)\nreturn {code}"
        ),
        draw={"value": {"kind": "number", "low": -3.0, "high": 8.0, "digits": 4, "edges": [0.0, 0.5, 3.1416]}},
        edges=[0.0, 3.1416, -0.3333, 0.0714, 2.718, 0.1429],
        options={"limit": Option(type="int", default=default, set=limit)},
    )


def _unit_fractions(rng: random.Random) -> ToolVariant:
    name, joint = rng.choice([("plus", " + "), ("comma", ", "), ("semicolon", "; "), ("and", " and ")])
    return ToolVariant(
        name=f"unit_fractions_with_{name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Write the fraction as a sum of different unit fractions by the greedy method, joined by '{joint}': take "
            "the largest 1/n that is not above what is left, again and again.",
            f"Return the greedy Egyptian fraction: the largest fraction 1/n that fits, then the largest that fits in "
            f"the rest, and so on until nothing is left, with '{joint}' between them.",
            f"Split the fraction into unit fractions. Each is 1 over the smallest whole number that keeps it from "
            f"exceeding what is left. Join them by '{joint}'.",
        ),
        behaviour=["The fraction is two positive whole numbers with '/' between them, the first below the second."],
        body=(
            "from fractions import Fraction\n"
            "top, _, bottom = text.partition('/')\n"
            "if not 0 < int(top) < int(bottom):\n    raise ValueError('the fraction must be between 0 and 1')\n"
            "rest, parts = Fraction(int(top), int(bottom)), []\n"
            "for _ in range(rest.numerator):\n"
            "    if rest > 0:\n"
            "        n = -(-rest.denominator // rest.numerator)\n"
            "        parts.append(f'1/{n}')\n"
            "        rest -= Fraction(1, n)\n"
            f"return {joint!r}.join(parts)"
        ),
        draw={"text": _PROPER},
        edges=["3/4", "1/2", "2/3", "4/13", "5/6", "7/15", "2/4"],
        raises="the fraction is not above 0 and below 1",
        errors=["0/3", "5/4", "3/3", "-1/2"],
    )


FAMILY = Family(
    name="fraction_text",
    subject="fractions written as text",
    tools=(
        ToolTemplate(level=2, make=_mixed),
        ToolTemplate(level=2, make=_reduce_all),
        ToolTemplate(level=1, make=_combine),
        ToolTemplate(level=3, make=_expand),
        ToolTemplate(level=2, make=_order),
        ToolTemplate(level=1, make=_approximate),
        ToolTemplate(level=3, make=_unit_fractions),
    ),
)
