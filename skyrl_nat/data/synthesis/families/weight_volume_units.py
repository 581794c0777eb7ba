"""Units of weight and volume."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_PAIRS = [
    ("pounds", "kilograms", 0.45359237, 2.5),
    ("ounces", "grams", 28.349523125, 4.0),
    ("stones", "kilograms", 6.35029318, 0.5),
    ("us_gallons", "litres", 3.785411784, 1.5),
    ("imperial_pints", "litres", 0.56826125, 0.75),
    ("us_fluid_ounces", "millilitres", 29.5735295625, 2.0),
]


def _net(rng: random.Random) -> ToolVariant:
    source, target, factor, tare = rng.choice(_PAIRS)
    digits = rng.choice([1, 2, 3])
    is_back = rng.random() < 0.5
    source, target = (target, source) if is_back else (source, target)
    sign, verb = ("/", "divided") if is_back else ("*", "multiplied")
    given, wanted = source.replace("_", " "), target.replace("_", " ")
    given, wanted = given.replace("us ", "US "), wanted.replace("us ", "US ")
    tare = tare * 10 if is_back else tare
    return ToolVariant(
        name=f"net_{source}_in_{target}_{digits}_digits",
        args={"gross": "float"},
        returns="float",
        does=(
            f"Subtract `tare` from gross, both in {given}, and return the rest in {wanted}.",
            f"Return the net amount in {wanted}: gross less `tare`, which are in {given}.",
            f"A full container measures gross {given}, an empty one `tare` {given}. Give the contents in {wanted}.",
        ),
        behaviour=[f"The difference is {verb} by {factor} and rounded to {digits} digits by Python's round."],
        body=(
            "if gross < config.tare:\n    raise ValueError('gross is less than tare')\n"
            f"return round((gross - config.tare) {sign} {factor}, {digits})"
        ),
        draw={"gross": {"kind": "number", "low": tare, "high": tare + 300.0, "digits": 2, "edges": [tare + 1.0]}},
        edges=[tare, tare + 1.0, tare + 100.0, tare + 0.5],
        raises="gross is less than `tare`",
        errors=[tare - 0.1, 0.0, -5.0],
        options={"tare": Option(type="float", default=0.0, set=tare)},
        laws=[{"kind": "monotone"}],
    )


def _mixed(rng: random.Random) -> ToolVariant:
    name, big, small, ratio, size, unit = rng.choice(
        [
            ("stones_pounds", "st", "lb", 14, 0.45359237, "kilograms"),
            ("pounds_ounces", "lb", "oz", 16, 28.349523125, "grams"),
            ("gallons_pints", "gal", "pt", 8, 0.56826125, "litres"),
            ("pints_gills", "pt", "gi", 4, 118.29411825, "millilitres"),
        ]
    )
    how_name, how, code = rng.choice(
        [
            ("nearest", "to the nearest whole number, ties to the even one, by Python's round", "round(amount / {0})"),
            ("down", "down to a whole number", "int(amount / {0})"),
            ("up", "up to a whole number", "math.ceil(amount / {0})"),
        ]
    )
    return ToolVariant(
        name=f"{unit}_as_{name}_{how_name}",
        args={"amount": "float"},
        returns="str",
        does=(
            f'Write an amount in {unit} as "<a> {big} <b> {small}".',
            f'Convert {unit} to {big} and {small}, in text such as "3 {big} 1 {small}".',
            f'Return "<a> {big} <b> {small}", which is the same as amount {unit}.',
        ),
        behaviour=[
            f"1 {small} is {size} {unit}, and 1 {big} is {ratio} {small}.",
            f"amount / {size} is rounded {how}, and then split, so that {small} is less than {ratio}.",
            'Both numbers are always written, also "0".',
        ],
        body=(
            ("import math\n\n" if how_name == "up" else "")
            + "if amount < 0:\n    raise ValueError('amount must not be negative')\n"
            f"big, small = divmod({code.format(size)}, {ratio})\n"
            f"return f'{{big}} {big} {{small}} {small}'"
        ),
        draw={
            "amount": {
                "kind": "number",
                "low": 0.0,
                "high": round(size * ratio * 15, 1),
                "digits": 3,
                "edges": [round(size * ratio * count, 3) for count in (1, 3)],
            }
        },
        edges=[0.0, size, size * (ratio - 1), size * ratio, size * (ratio - 0.6), size * 0.4, size * 100.7],
        raises="amount is negative",
        errors=[-0.1, -100.0],
    )


_MEASURES = {
    "teaspoons": [(48, "cup"), (3, "tbsp"), (1, "tsp")],
    "millilitres": [(250, "cup"), (15, "tbsp"), (5, "tsp"), (1, "ml")],
    "fluid_ounces": [(160, "gal"), (40, "qt"), (20, "pt"), (1, "fl oz")],
    "drams": [(256, "lb"), (16, "oz"), (1, "dr")],
    "grams": [(1000000, "t"), (1000, "kg"), (1, "g")],
}


def _spoons(rng: random.Random) -> ToolVariant:
    unit = rng.choice(list(_MEASURES))
    measures = _MEASURES[unit]
    glue_name, glue = rng.choice([("plus", " + "), ("comma", ", "), ("and", " and ")])
    is_signed = rng.random() < 0.5
    given, last = unit.replace("_", " "), measures[-1][1]
    listed = ", ".join(f"{name} ({size} {given})" for size, name in measures[:-1])
    sample = f"2 {measures[0][1]}{glue}1 {measures[1][1]}"
    negative = "is written like the positive one, with '-' in front of all" if is_signed else "gives '-'"
    return ToolVariant(
        name=f"measure_{unit}_with_{glue_name}_negative_{'signed' if is_signed else 'dash'}",
        args={"amount": "int"},
        returns="str",
        does=(
            f'Measure out an amount in {given} with {listed} and {last}, using the largest measures first: "{sample}".',
            f'Return how to make up amount {given} of {listed} and {last}, such as "{sample}": as many of the largest '
            "as fit, then of the next one.",
            f"Split the amount, a number of {given}, into {listed} and {last}, largest first, as many of each as fit. "
            f'Write "{sample}".',
        ),
        behaviour=[
            f"1 {last} is one of the {given}.",
            f'Measures that are not needed are left out, but zero is "0 {last}". There is "{glue}" between measures.',
            f"A negative amount {negative}.",
        ],
        body=(
            ("" if is_signed else "if amount < 0:\n    return '-'\n")
            + f"rest, parts = {'abs(amount)' if is_signed else 'amount'}, []\n"
            f"for size, name in {measures}:\n"
            "    if rest >= size:\n"
            "        parts.append(f'{rest // size} {name}')\n"
            "    rest %= size\n"
            f"text = {glue!r}.join(parts) or '0 {last}'\n"
            + ("return f'-{text}' if amount < 0 else text" if is_signed else "return text")
        ),
        draw={
            "amount": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -4, "high": 3 * measures[-2][0], "edges": [0]},
                    {"kind": "integer", "low": 0, "high": 4 * measures[0][0], "edges": [size for size, _ in measures]},
                ],
            }
        },
        edges=[0, 1, -1, -2, *(size for size, _ in measures), measures[0][0] - 1, measures[0][0] + measures[1][0]],
    )


def _read(rng: random.Random) -> ToolVariant:
    name, cup, spoon = rng.choice(
        [("us_legal", 240, 15), ("metric", 250, 15), ("australian", 250, 20), ("small", 200, 15)]
    )
    digits = rng.choice([1, 2, 3])
    return ToolVariant(
        name=f"millilitres_of_{name}_recipe_text_{digits}_digits",
        args={"text": "str"},
        returns="float",
        does=(
            "Read an amount such as '1 1/2 cups' or '3/4 tsp' and return it in millilitres.",
            "Return the millilitres in text that has numbers and one of the units cup, tbsp, tsp, like '2 1/3 tbsp'.",
            "Convert an amount of a recipe ('3 cups', '1 1/4 tbsp') to millilitres.",
        ),
        behaviour=[
            f"1 cup is {cup} ml, 1 tbsp is {spoon} ml, 1 tsp is 5 ml; the unit may have an s behind it.",
            "Before it come one or more numbers, which are added up: whole ones or fractions of two whole numbers with "
            "'/' between, of which the second does not begin with 0. White space separates numbers and unit.",
            f"The exact result is rounded to {digits} digits by Python's round of a float.",
        ],
        body=(
            "import re\nfrom fractions import Fraction\n\n"
            f"sizes = {{'cup': {cup}, 'tbsp': {spoon}, 'tsp': 5}}\n"
            "numbers = text.split()\n"
            "unit = numbers.pop().removesuffix('s') if numbers else ''\n"
            "if unit not in sizes or not numbers:\n    raise ValueError('no amount')\n"
            "if not all(re.fullmatch('[0-9]+(/[1-9][0-9]*)?', number) for number in numbers):\n"
            "    raise ValueError('no number')\n"
            f"return round(float(sum(map(Fraction, numbers)) * sizes[unit]), {digits})"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{first}{more}{unit}",
                "parts": {
                    "first": {"kind": "choice", "values": ["1", "3", "07", "2/3", "10", "5/16"]},
                    "more": {"kind": "choice", "values": [" ", " ", " 1/2 ", " 3/7  ", " 2 1/3 "]},
                    "unit": {"kind": "choice", "values": ["cup", "cups", "tbsp", "tsp", "tsps"]},
                },
            }
        },
        edges=["1 cup", "1 tbsp", "1 tsp", "1/3 tsp", " 2  5/6   cups ", "0 cups", "22/7 tbsps"],
        raises="the text has no number, no such unit, or anything else",
        errors=["", "cup", "2", "1.5 cups", "1/0 tsp", "2 pints", "-1 cup", "one cup", "1 tsp 2"],
    )


def _recipe(rng: random.Random) -> ToolVariant:
    base, persons = rng.choice([(4, 6), (4, 10), (2, 5), (6, 4), (8, 3), (3, 7)])
    scope, which, count = rng.choice([("all", "every number", ""), ("first", "the first number", ", count=1")])
    digits = rng.choice([1, 2])
    return ToolVariant(
        name=f"recipe_{base}_to_{persons}_persons_{scope}_{digits}_digits",
        args={"text": "str"},
        returns="str",
        does=(
            f"Multiply {which} in the text by `persons` / {base}.",
            f"The text is for {base} persons; rewrite it for `persons` by changing {which} in proportion.",
            f"Return the text with {which} scaled from {base} to `persons` persons.",
        ),
        behaviour=[
            "A number is digits 0 to 9, then maybe a point and more digits; all else stays, and so does a text without "
            "numbers. A '-' in front is not part of it.",
            f"number * persons / {base} is rounded to {digits} digits by Python's round of a float and written as "
            "str() writes it, but '.0' at the end is left out.",
        ],
        body=(
            "import re\n\n"
            "def scaled(found: re.Match[str]) -> str:\n"
            f"    return str(round(float(found[0]) * config.persons / {base}, {digits})).removesuffix('.0')\n\n"
            f"return re.sub('[0-9]+([.][0-9]+)?', scaled, text{count})"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    "250 g flour,",
                    "3 eggs",
                    "1.5 l milk",
                    "salt",
                    "0.25 cup oil,",
                    "12 figs",
                    "70%",
                    "x2.",
                    "100 g",
                ],
                "min": 2,
                "max": 4,
                "separator": " ",
            }
        },
        edges=["", "salt and pepper", "1", "0 eggs", "1.234 kg, 2.5.6", "-4 degrees", "7 x 10"],
        options={"persons": Option(type="int", default=base, set=persons)},
    )


_DENSITIES = [("water", 1.0), ("oil", 0.92), ("honey", 1.42), ("milk", 1.03), ("flour", 0.59), ("sugar", 0.85)]


def _density(rng: random.Random) -> ToolVariant:
    known = dict(sorted(rng.choice([_DENSITIES[:3], _DENSITIES[1:4], _DENSITIES[2:], _DENSITIES[:5]])))
    digits = rng.choice([1, 2])
    name, given, wanted, sign = rng.choice(
        [("weight", "litres", "kilograms", "*"), ("volume", "kilograms", "litres", "/")]
    )
    listed = ", ".join(f"{substance} {value}" for substance, value in known.items())
    return ToolVariant(
        name=f"{name}_of_{'_'.join(known)}_{digits}_digits",
        args={"amount": "float", "substance": "str"},
        returns="float",
        does=(
            f"Return the {name} in {wanted} of amount {given} of a substance.",
            f"Convert {given} of a substance to {wanted}, by its density.",
            f"Give the {wanted} of the substance that amount {given} of it are.",
        ),
        behaviour=[
            f"A litre weighs, in kilograms: {listed}. Upper and lower case of the substance make no difference.",
            f"The answer is amount {sign} that number, rounded to {digits} digits by Python's round.",
        ],
        body=(
            f"densities = {known}\n"
            "if substance.lower() not in densities:\n    raise ValueError('unknown substance')\n"
            f"return round(amount {sign} densities[substance.lower()], {digits})"
        ),
        draw={
            "amount": {"kind": "number", "low": 0.1, "high": 60.0, "digits": 2, "edges": [1.0, 0.5]},
            "substance": {"kind": "choice", "values": [*known, *known, next(iter(known)).upper(), max(known).title()]},
        },
        edges=[{"amount": 10.0, "substance": substance} for substance in known]
        + [{"amount": -3.0, "substance": min(known).title()}],
        raises="the substance is not one of these",
        errors=[{"amount": 1.0, "substance": "iron"}, {"amount": 2.5, "substance": ""}],
    )


FAMILY = Family(
    name="weight_volume_units",
    subject="units of weight and volume",
    tools=(
        ToolTemplate(level=1, make=_net),
        ToolTemplate(level=2, make=_mixed),
        ToolTemplate(level=2, make=_spoons),
        ToolTemplate(level=3, make=_read),
        ToolTemplate(level=3, make=_recipe),
        ToolTemplate(level=1, make=_density),
    ),
)
