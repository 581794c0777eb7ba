"""Units of length."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_PAIRS = [
    ("inches", "centimetres", 2.54),
    ("feet", "metres", 0.3048),
    ("yards", "metres", 0.9144),
    ("miles", "kilometres", 1.609344),
    ("nautical_miles", "kilometres", 1.852),
    ("fathoms", "metres", 1.8288),
]


def _convert(rng: random.Random) -> ToolVariant:
    big, small, factor = rng.choice(_PAIRS)
    digits = rng.choice([1, 2, 3])
    source, target, sign, verb = rng.choice([(big, small, "*", "multiplied"), (small, big, "/", "divided")])
    given, wanted = source.replace("_", " "), target.replace("_", " ")
    return ToolVariant(
        name=f"{source}_to_{target}_{digits}_digits",
        args={"length": "float"},
        returns="float",
        does=(
            f"Convert a length from {given} to {wanted}.",
            f"Return the length, which is in {given}, in {wanted}.",
            f"Give the number of {wanted} in so many {given}.",
        ),
        behaviour=[f"The answer is length {verb} by {factor}, rounded to {digits} digits by Python's round."],
        body=f"return round(length {sign} {factor}, {digits})",
        draw={"length": {"kind": "number", "low": -300.0, "high": 900.0, "digits": 2, "edges": [0.0, 1.0, 100.0]}},
        edges=[0.0, 1.0, -1.0, 1000.0, 0.01],
        laws=[{"kind": "odd"}, {"kind": "monotone"}],
    )


def _scale(rng: random.Random) -> ToolVariant:
    scale = rng.choice([500, 12500, 25000, 50000, 200000])
    name, given, wanted, code, digits, high = rng.choice(
        [
            ("map_to_land", "centimetres on the map", "metres on land", "length * config.scale / 100", 1, 60.0),
            ("land_to_map", "metres on land", "centimetres on the map", "length * 100 / config.scale", 3, 9000.0),
            ("map_inches_to_land", "inches on the map", "feet on land", "length * config.scale / 12", 1, 30.0),
            ("land_feet_to_map", "feet on land", "inches on the map", "length * 12 / config.scale", 3, 9000.0),
        ]
    )
    return ToolVariant(
        name=f"{name}_at_scale_1_to_{scale}",
        args={"length": "float"},
        returns="float",
        does=(
            f"Convert {given} to {wanted}, for a map of scale 1 : `scale`.",
            f"A map has the scale 1 : `scale`. Return how many {wanted} the length is, which is given in {given}.",
            f"Return the length, in {given}, as {wanted}; what is 1 on the map is `scale` on land.",
        ),
        behaviour=[f"The answer is {code.replace('config.', '')}, rounded to {digits} digits by Python's round."],
        body=f"return round({code}, {digits})",
        draw={"length": {"kind": "number", "low": 0.0, "high": high, "digits": 5, "edges": [1.0, 12.5]}},
        edges=[0.0, 1.0, 10.0, 0.12345, 31.41593, 2718.28],
        options={"scale": Option(type="int", default=10000, set=scale)},
        laws=[{"kind": "monotone"}],
    )


_MIXED = [
    ("feet_inches", "ft", "in", 12, "inches", 2.54, "centimetres", "5 ft 11 in"),
    ("yards_feet", "yd", "ft", 3, "feet", 0.3048, "metres", "7 yd 2 ft"),
    ("miles_yards", "mi", "yd", 1760, "yards", 0.9144, "metres", "1 mi 220 yd"),
    ("chains_links", "ch", "lk", 100, "links", 0.201168, "metres", "3 ch 25 lk"),
]


def _read_mixed(rng: random.Random) -> ToolVariant:
    name, big, small, ratio, unit, factor, target, example = rng.choice(_MIXED)
    digits = rng.choice([1, 2, 3])
    return ToolVariant(
        name=f"{target}_of_{name}_text_{digits}_digits",
        args={"text": "str"},
        returns="float",
        does=(
            f"Read a length such as '{example}' and return it in {target}.",
            f"Return the {target} that text like '{example}' says.",
            f"Convert '{example}' and the like, whole numbers of {big} and {small}, to {target}.",
        ),
        behaviour=[
            f"The text is a whole number, a blank and {big}, then maybe a blank, a whole number, a blank and {small}; "
            f"nothing else is allowed, and {small} may not come alone.",
            f"1 {big} is {ratio} {small}. The number of {unit} in all is multiplied by {factor} and rounded to "
            f"{digits} digits by Python's round.",
        ],
        body=(
            "import re\n\n"
            f"found = re.fullmatch('([0-9]+) {big}(?: ([0-9]+) {small})?', text)\n"
            "if not found:\n    raise ValueError('no length')\n"
            f"return round((int(found[1]) * {ratio} + int(found[2] or 0)) * {factor}, {digits})"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{big} " + big + "{rest}",
                "parts": {
                    "big": {"kind": "integer", "low": 0, "high": 40},
                    "rest": {"kind": "choice", "values": ["", *(f" {n} {small}" for n in ("0", "1", "2", "7", "011"))]},
                },
            }
        },
        edges=[f"0 {big}", f"1 {big}", f"2 {big} {ratio} {small}", f"0 {big} 1 {small}", f"007 {big} 5 {small}"],
        raises="the text has another form",
        errors=["", f"3 {small}", f"5{big}", f"1.5 {big}", f"-2 {big}", f"4 {big} 3", f"1 {big}  2 {small}"],
    )


_LADDERS = [
    (
        "metres",
        "metres",
        [(1000, "km"), (1, "m"), (0.01, "cm"), (0.001, "mm")],
        "1 km is 1000 m, 1 cm is 0.01 m",
    ),
    ("millimetres", "millimetres", [(1000000, "km"), (1000, "m"), (10, "cm"), (1, "mm")], "1 m is 1000 mm"),
    ("inches", "inches", [(63360, "mi"), (36, "yd"), (12, "ft"), (1, "in")], "1 mi is 63360 in, 1 yd is 36 in"),
    (
        "feet",
        "feet",
        [(6076, "nmi"), (600, "cable"), (6, "fathom"), (1, "ft")],
        "1 nmi is 6076 ft, 1 cable 600 ft",
    ),
]


def _best_unit(rng: random.Random) -> ToolVariant:
    digits = rng.choice([0, 1, 2, 3])
    name, given, sizes, facts = rng.choice(_LADDERS)
    facts += {"feet": ", 1 fathom 6 ft", "inches": ", 1 ft is 12 in", "metres": ", 1 mm is 0.001 m"}.get(
        name, ", 1 km is 1000000 mm, 1 cm is 10 mm"
    )
    listed = ", ".join(unit for _, unit in sizes)
    low, high = (-3.0, 4000.0) if name == "metres" else (-200.0, 9e4)
    return ToolVariant(
        name=f"best_unit_for_{name}_{digits}_decimals",
        args={"length": "float"},
        returns="str",
        does=(
            f"Write a length in {given} with the largest unit of {listed} of which it is at least one, with `decimals` "
            "decimals and a blank before the unit.",
            f"Return the length, given in {given}, in the first unit of {listed} that is not longer than it: the "
            "number with `decimals` decimals, a blank, the unit.",
            f"Choose among {listed} the largest unit that fits into the length of so many {given}, and write the "
            "length in it with `decimals` decimals, then a blank and the unit.",
        ),
        behaviour=[
            f"{facts}.",
            f"A length shorter than every unit is written in {sizes[-1][1]}.",
            "For a negative length, its value without the sign decides. The unit is chosen before rounding, which is "
            "done by Python's format type 'f' on length / size of the unit.",
        ],
        body=(
            f"for size, unit in {sizes}:\n"
            "    if abs(length) >= size:\n"
            "        break\n"
            "return f'{length / size:.{config.decimals}f} {unit}'"
        ),
        draw={
            "length": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": low, "high": high, "digits": 2},
                    {"kind": "number", "low": sizes[2][0] / 4, "high": sizes[1][0] * 3.0, "digits": 3},
                    {"kind": "number", "low": sizes[3][0] / 2, "high": sizes[2][0] * 2.0, "digits": 4},
                ],
            }
        },
        edges=[
            *(float(size) for size, _ in sizes),
            sizes[-1][0] * 0.25,
            0.0,
            -float(sizes[1][0]) * 2.5,
            sizes[0][0] * 7.1,
        ],
        options={"decimals": Option(type="int", default=digits + 2, set=digits)},
    )


_SUMMARIES = [
    ("total", "the sum of all lengths", "sum(lengths)"),
    ("longest", "the longest length", "max(lengths)"),
    ("range", "the difference of the longest and the shortest length", "max(lengths) - min(lengths)"),
    ("mean", "the mean of the lengths", "sum(lengths) / len(lengths)"),
]


def _measure_all(rng: random.Random) -> ToolVariant:
    name, sizes, target = rng.choice(
        [
            ("metric", {"mm": 1, "cm": 10, "m": 1000, "km": 1000000}, "millimetres"),
            ("feet", {"in": 1, "ft": 12, "yd": 36, "mi": 63360}, "inches"),
        ]
    )
    what_name, what, code = rng.choice(_SUMMARIES)
    digits = 2
    units = list(sizes)
    listed = ", ".join(f"1 {unit} is {size} {target}" for unit, size in sizes.items() if size > 1)
    return ToolVariant(
        name=f"{what_name}_of_{name}_lengths",
        args={"items": "list[str]"},
        returns="float",
        does=(
            f"Read lengths such as '2.5 {units[1]}' and return {what} in {target}.",
            f"Each item is a number and a unit, like '12 {units[2]}'; give {what}, in {target}.",
            f"Return {what}, as {target}, for a list of lengths like '3 {units[1]}' or '0.5 {units[2]}'.",
        ),
        behaviour=[
            f"A length is digits, maybe a point and more digits, one blank, and one of {', '.join(units)}: {listed}.",
            f"The result is rounded to {digits} digits by Python's round.",
        ],
        body=(
            "import re\n\n"
            f"sizes, lengths = {sizes}, []\n"
            "for item in items:\n"
            f"    found = re.fullmatch('([0-9]+(?:[.][0-9]+)?) ({'|'.join(units)})', item)\n"
            "    if not found:\n        raise ValueError('no length')\n"
            "    lengths.append(float(found[1]) * sizes[found[2]])\n"
            "if not lengths:\n    raise ValueError('no items')\n"
            f"return round({code}, {digits})"
        ),
        draw={
            "items": {
                "kind": "list",
                "item": {
                    "kind": "template",
                    "pattern": "{number} {unit}",
                    "parts": {
                        "number": {"kind": "choice", "values": ["1", "2.5", "07", "0.125", "33.3", "140", "0"]},
                        "unit": {"kind": "choice", "values": [*units[:3], *units]},
                    },
                },
                "min": 1,
                "max": 4,
            }
        },
        edges=[[f"1 {unit}"] for unit in units] + [[f"0.333 {units[0]}", f"1 {units[1]}", f"2 {units[1]}"]],
        raises="items is empty, or one is not a length of this form",
        errors=[[], ["5"], [f"1{units[1]}"], ["1 lb"], [f"1 {units[0]}", f"-2 {units[1]}"], [f".5 {units[2]}"]],
        laws=[{"kind": "permutation_invariant"}],
    )


def _fraction(rng: random.Random) -> ToolVariant:
    parts, word = rng.choice([(4, "quarters"), (8, "eighths"), (16, "sixteenths"), (32, "thirty_seconds")])
    glue_name, glue = rng.choice([("blank", " "), ("hyphen", "-"), ("and", " and ")])
    name, what, code = rng.choice(
        [
            ("nearest", "to the nearest one, ties to an even number of them", "round(abs(inches) * {0})"),
            ("down", "toward zero", "int(abs(inches) * {0})"),
            ("up", "away from zero", "math.ceil(abs(inches) * {0})"),
        ]
    )
    spoken = word.replace("_", "-")
    return ToolVariant(
        name=f"inches_in_{word}_{name}_{glue_name}",
        args={"inches": "float"},
        returns="str",
        does=(
            f'Write inches as a mixed number such as "3{glue}1/4", rounded to {spoken} of an inch {what}.',
            f"Round the inches to whole {spoken} ({what}) and return them as whole inches and a fraction in lowest "
            f'terms: "3{glue}1/4".',
            f'Return text like "3{glue}1/4" for a length in inches; it is rounded to a multiple of 1/{parts}, {what}.',
        ),
        behaviour=[
            f'The whole number and the fraction have "{glue}" between them; a part that is zero is left out with it.',
            "The fraction is in lowest terms, such as 1/2 for 2/4.",
            'Zero is "0". A negative length that does not become zero has "-" in front of all.',
        ],
        body=(
            f"{'import math' if name == 'up' else ''}\nfrom fractions import Fraction\n\n".lstrip()
            + f"whole, part = divmod(Fraction({code.format(parts)}, {parts}), 1)\n"
            f"text = f'{{whole}}{glue}{{part}}' if whole and part else str(whole or part)\n"
            "return f'-{text}' if inches < 0 and text != '0' else text"
        ),
        draw={
            "inches": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -3.0, "high": 9.0, "digits": 3, "edges": [0.5, -0.25, 2.0, 1.0625]},
                    {"kind": "choice", "values": [(2 * n + 1) / (2 * parts) for n in (0, 1, 5, 6, 9, 31, 34)]},
                ],
            }
        },
        edges=[0.0, 0.5, 1.0, -1.0, -0.75, 2.25, -0.001, 0.999, -4.3],
    )


FAMILY = Family(
    name="length_units",
    subject="units of length",
    tools=(
        ToolTemplate(level=1, make=_convert),
        ToolTemplate(level=1, make=_scale),
        ToolTemplate(level=2, make=_read_mixed),
        ToolTemplate(level=2, make=_best_unit),
        ToolTemplate(level=3, make=_measure_all),
        ToolTemplate(level=3, make=_fraction),
    ),
)
