"""Rounding numbers by explicit rules."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_STEPS = {5: "five", 12: "twelve", 25: "twenty_five", 60: "sixty", 100: "one_hundred"}
_PARTS = {3: "thirds", 4: "quarters", 6: "sixths", 8: "eighths"}


def _to_multiple(rng: random.Random) -> ToolVariant:
    step = rng.choice(list(_STEPS))
    name, what, code = rng.choice(
        [
            ("up", "smallest multiple of {0} that is not less than number", "-(-number // {0}) * {0}"),
            ("down", "largest multiple of {0} that is not greater than number", "number // {0} * {0}"),
            ("toward_zero", "multiple of {0} next to number on the side of zero", "int(number / {0}) * {0}"),
            (
                "away_from_zero",
                "multiple of {0} next to number on the side away from zero",
                "-(-abs(number) // {0}) * {0} * (1 if number > 0 else -1)",
            ),
        ]
    )
    what = what.format(step)
    return ToolVariant(
        name=f"{name}_to_multiple_of_{_STEPS[step]}",
        args={"number": "int"},
        returns="int",
        does=(
            f"Return the {what}.",
            f"Round the number to a multiple of {step}; the result is the {what}.",
            f"Go {name.replace('_', ' ')} from the number to the first multiple of {step}, where the number itself "
            "counts too.",
        ),
        behaviour=["A multiple stays as it is.", "Zero and negative multiples count as multiples."],
        body=f"return {code.format(step)}",
        draw={"number": {"kind": "integer", "low": -400, "high": 400, "edges": [0, step, -step]}},
        edges=[0, 1, -1, step - 1, step, step + 1, -step - 1],
        laws=[{"kind": "idempotent"}, {"kind": "monotone"}],
    )


def _with_rule(rng: random.Random) -> ToolVariant:
    digits = rng.choice([0, 1, 2])
    name, what, rule = rng.choice(
        [
            ("half_away_from_zero", "to the nearest value, ties away from zero", "ROUND_HALF_UP"),
            ("half_toward_zero", "to the nearest value, ties toward zero", "ROUND_HALF_DOWN"),
            ("half_even", "to the nearest value, ties to an even last digit", "ROUND_HALF_EVEN"),
            ("always_away_from_zero", "away from zero", "ROUND_UP"),
            ("always_toward_zero", "toward zero", "ROUND_DOWN"),
            ("always_up", "toward plus infinity", "ROUND_CEILING"),
            ("always_down", "toward minus infinity", "ROUND_FLOOR"),
        ]
    )
    unit = 10.0**-digits
    count = {0: "no decimals", 1: "1 decimal", 2: "2 decimals"}[digits]
    ties = [round((steps + 0.5) * unit, digits + 1) for steps in (-8, -5, -3, -2, -1, 0, 1, 2, 4, 7, 16)]
    return ToolVariant(
        name=f"round_{name}_{digits}_decimals",
        args={"value": "float"},
        returns="float",
        does=(
            f"Round the value to {count}, {what}.",
            f"Return the value with {count} after its point, rounded {what}.",
            f"Keep {count} of the value; the rest is rounded {what}.",
        ),
        behaviour=[
            "What counts are the decimal digits that Python's str(value) shows, not the binary value behind them.",
            "A result of zero is 0.0, never -0.0.",
        ],
        body=(
            f"from decimal import {rule}, Decimal\n"
            f"return float(Decimal(str(value)).quantize(Decimal({str(unit) if digits else '1'!r}), {rule})) or 0.0"
        ),
        draw={
            "value": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -20.0, "high": 20.0, "digits": digits + 2},
                    {"kind": "choice", "values": ties},
                ],
            }
        },
        edges=[0.0, *ties[2:8], round(3.4 * unit, digits + 1), round(-3.4 * unit, digits + 1)],
        laws=[{"kind": "idempotent"}, {"kind": "monotone"}],
    )


def _significant(rng: random.Random) -> ToolVariant:
    default, digits = rng.choice([(3, 2), (2, 3), (3, 4), (6, 5)])
    is_text = rng.random() < 0.5
    shown = "f'{value:.{config.digits - 1}e}'"
    return ToolVariant(
        name=f"keep_{digits}_significant_digits{'_as_text' if is_text else ''}",
        args={"value": "float"},
        returns="str" if is_text else "float",
        does=(
            "Round the value to `digits` significant digits.",
            "Keep the first `digits` digits of the value, counted from its first digit that is not zero, and round.",
            "Return the value with a precision of `digits` significant digits.",
        ),
        behaviour=[
            "The result is what Python's format type 'e' shows with `digits` - 1 decimals, "
            + ("as this text, such as '1.2e+03'." if is_text else "as a float."),
        ],
        body=f"return {shown}" if is_text else f"return float({shown})",
        draw={
            "value": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -9e6, "high": 9e6, "digits": 1},
                    {"kind": "number", "low": -99.0, "high": 99.0, "digits": 6},
                    {"kind": "number", "low": 0.0001, "high": 0.09, "digits": 8},
                ],
            }
        },
        edges=[0.0, 1.0, -123456.789, 99999.6, 0.000123456],
        options={"digits": Option(type="int", default=default, set=digits)},
    )


def _to_fraction(rng: random.Random) -> ToolVariant:
    parts = rng.choice(list(_PARTS))
    name, what, code = rng.choice(
        [
            ("nearest", "the nearest one; a tie goes to the even number of {0}", "round(value * {0})"),
            ("next_higher", "the smallest one that is not less", "math.ceil(value * {0})"),
            ("next_lower", "the largest one that is not greater", "math.floor(value * {0})"),
        ]
    )
    what = what.format(_PARTS[parts])
    start = "import math\n" if "math" in code else ""
    result = f"{code.format(parts)} / {parts}"
    rounded = ""
    if parts % 3 == 0:
        result, rounded = f"round({result}, 3)", ", rounded to 3 digits by Python's round"
    return ToolVariant(
        name=f"{name}_whole_{_PARTS[parts]}",
        args={"value": "float"},
        returns="float",
        does=(
            f"Round the value to a whole number of {_PARTS[parts]}: {what}.",
            f"Of the multiples of 1/{parts}, return that for the value: {what}.",
            f"Measure the value in {_PARTS[parts]} without a remainder, choosing {what}.",
        ),
        behaviour=[f"The result is a float{rounded}."],
        body=f"{start}return {result}",
        draw={"value": {"kind": "number", "low": -12.0, "high": 12.0, "digits": 2, "edges": [0.0, 0.5, 0.25, -0.75]}},
        edges=[0.0, 1.0, 0.5, 0.25, -0.75, -1.3, 2.9],
        laws=[{"kind": "monotone"}],
    )


def _cash(rng: random.Random) -> ToolVariant:
    step = rng.choice([10, 20, 50])
    name, what, code = rng.choice(
        [
            ("ties_up", "a tie goes up", "(cents + {1}) // {0} * {0}"),
            ("ties_down", "a tie goes down", "-((-cents + {1}) // {0}) * {0}"),
            ("ties_to_even", "a tie goes to the multiple of {2}", "round(cents / {0}) * {0}"),
        ]
    )
    what = what.format(step, step // 2, 2 * step)
    unit = rng.choice(["EUR", "USD", "CHF"])
    return ToolVariant(
        name=f"cash_price_{step}_cents_{name}_{unit.lower()}",
        args={"cents": "int"},
        returns="str",
        does=(
            f"Round an amount of cents to the nearest multiple of {step}, where {what}, and write it as "
            f'"<units>.<two digits> {unit}".',
            f'Return the price that is paid in cash, such as "12.50 {unit}": the nearest multiple of {step} cents, '
            f"and {what}.",
            f"Where the smallest coin is {step} cents, give the nearest payable amount ({what}) as units, a point, two "
            f"digits of cents, a blank and {unit}.",
        ),
        behaviour=["A unit has 100 cents."],
        body=(
            "if cents < 0:\n    raise ValueError('cents must not be negative')\n"
            f"paid = {code.format(step, step // 2)}\n"
            f"return f'{{paid // 100}}.{{paid % 100:02d}} {unit}'"
        ),
        draw={
            "cents": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": 0, "high": 3000},
                    {"kind": "choice", "values": [step * count + step // 2 for count in range(24)]},
                ],
            }
        },
        edges=[0, 99, step // 2, step + step // 2, 1000, 995],
        raises="cents is negative",
        errors=[-1, -250],
    )


def _share_out(rng: random.Random) -> ToolVariant:
    default, seats = rng.choice([(10, 7), (5, 12), (20, 9), (8, 15)])
    name, who, order = rng.choice([("first", "earlier", "i"), ("last", "later", "-i")])
    return ToolVariant(
        name=f"share_out_{seats}_seats_ties_to_{name}",
        args={"votes": "list[int]"},
        returns="list[int]",
        does=(
            "Share out `seats` seats in proportion to the votes by the method of largest remainders: everyone gets "
            "votes * seats / total rounded down, then the seats left over go one each to the largest remainders.",
            "Return how many of `seats` seats each item of votes gets: its exact share, rounded down, plus one for "
            "those with the largest cut-off parts until all seats are taken.",
            "Round the exact shares votes * seats / total to whole numbers that add up to `seats`: round all down, "
            "then add one to as many as needed, those with the largest fractional parts first.",
        ),
        behaviour=[f"Of equal remainders, the {who} one in the list goes first.", "The total is the sum of all votes."],
        body=(
            "total = sum(votes)\n"
            "if total == 0 or min(votes) < 0:\n"
            "    raise ValueError('votes must not be negative, nor all zero')\n"
            "shares = [vote * config.seats // total for vote in votes]\n"
            f"order = sorted(range(len(votes)), key=lambda i: (-(votes[i] * config.seats % total), {order}))\n"
            "for i in order[: config.seats - sum(shares)]:\n"
            "    shares[i] += 1\n"
            "return shares"
        ),
        draw={
            "votes": {
                "kind": "one_of",
                "of": [
                    {"kind": "list", "item": {"kind": "integer", "low": 1, "high": 90}, "min": 2, "max": 6},
                    {"kind": "list", "item": {"kind": "choice", "values": [0, 10, 20, 30]}, "min": 3, "max": 7},
                ],
            }
        },
        edges=[[5], [1, 1], [1, 1, 1, 1], [0, 3, 0, 4], [10, 0]],
        raises="an item is negative, or the votes are empty or all zero",
        errors=[[], [0, 0], [3, -1]],
        options={"seats": Option(type="int", default=default, set=seats)},
    )


FAMILY = Family(
    name="rounding_rules",
    subject="rounding numbers by rules",
    tools=(
        ToolTemplate(level=1, make=_to_multiple),
        ToolTemplate(level=2, make=_with_rule),
        ToolTemplate(level=2, make=_significant),
        ToolTemplate(level=1, make=_to_fraction),
        ToolTemplate(level=2, make=_cash),
        ToolTemplate(level=3, make=_share_out),
    ),
)
