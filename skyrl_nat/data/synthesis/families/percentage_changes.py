"""Percentages, and changes in per cent."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_AMOUNT = {"kind": "number", "low": 3.0, "high": 400.0, "digits": 2}
_COUNTS = {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 60}, "min": 2, "max": 6}
_PRICES = {"kind": "list", "item": {"kind": "number", "low": 5.0, "high": 90.0, "digits": 1}, "min": 3, "max": 7}


def _change(rng: random.Random) -> ToolVariant:
    digits = rng.choice([3, 4])
    name, what, code = rng.choice(
        [
            ("old", "old", "old"),
            ("new", "new", "new"),
            ("mean", "the mean of old and new", "((old + new) / 2)"),
            ("larger", "the larger one of both", "max(old, new)"),
        ]
    )
    return ToolVariant(
        name=f"percent_change_from_{name}_to_{digits}_digits",
        args={"old": "float", "new": "float"},
        returns="float",
        does=(
            f"Return the change from old to new in per cent of {what}.",
            f"By how many per cent of {what} is new above old? Give the number, negative if new is below old.",
            f"Compute 100 * (new - old) divided by {what}.",
        ),
        behaviour=[f"The answer is rounded to {digits} digits by Python's round."],
        body=(
            "if old <= 0 or new <= 0:\n    raise ValueError('both must be positive')\n"
            f"return round(100 * (new - old) / {code}, {digits})"
        ),
        draw={"old": _AMOUNT, "new": _AMOUNT},
        edges=[{"old": 8.0, "new": 9.0}, {"old": 9.0, "new": 8.0}, {"old": 3.0, "new": 3.0}, {"old": 0.7, "new": 0.9}],
        raises="old or new is not positive",
        errors=[
            {"old": 0.0, "new": 2.0},
            {"old": 3.0, "new": -2.0},
            {"old": -1.0, "new": 5.0},
            {"old": 4.0, "new": 0.0},
        ],
    )


def _in_turn(rng: random.Random) -> ToolVariant:
    first, second = rng.choice([10, 20, 30, 40]), rng.choice([5, 15, 25, 45])
    name, what, code = rng.choice(
        [
            ("up_then_down", ("raise it by {0} %", "lower the result by {1} %"), "* (100 + {0}) * (100 - {1})"),
            ("down_then_up", ("lower it by {0} %", "raise the result by {1} %"), "* (100 - {0}) * (100 + {1})"),
            ("up_then_up", ("raise it by {0} %", "raise the result by {1} %"), "* (100 + {0}) * (100 + {1})"),
            ("down_then_down", ("lower it by {0} %", "lower the result by {1} %"), "* (100 - {0}) * (100 - {1})"),
        ]
    )
    one, two = (part.format(first, second) for part in what)
    return ToolVariant(
        name=f"{name}_by_{first}_and_{second}_percent",
        args={"amount": "float"},
        returns="float",
        does=(
            f"Take the amount, {one}, then {two}, and return what comes out.",
            f"Change the amount by per cents twice: first {one}, after that {two}.",
            f"Two steps: {one}; {two}. The amount after both is the answer.",
        ),
        behaviour=["The answer is rounded to 4 digits by Python's round, and nothing is rounded before that."],
        body=f"return round(amount {code.format(first, second)} / 10000, 4)",
        draw={"amount": {"kind": "number", "low": -50.0, "high": 900.0, "digits": 1, "edges": [0.0]}},
        edges=[0.0, 100.0, 1.0, -20.0, 33.3],
        laws=[{"kind": "odd"}, {"kind": "monotone"}],
    )


def _compound(rng: random.Random) -> ToolVariant:
    default, rate = rng.choice([(2.0, 3.5), (5.0, 1.25), (1.5, 4.2), (3.0, 6.7)])
    years = rng.choice([3, 4, 6])
    name, what, code = rng.choice(
        [
            ("growth", "first grows by `rate` per cent", "amount * (1 + config.rate / 100)"),
            ("decay", "first shrinks by `rate` per cent", "amount * (1 - config.rate / 100)"),
        ]
    )
    fee = rng.choice([0, 7])
    then = f" and then {fee} are taken off, though it never falls below 0" if fee else " and then 0.5 is added"
    after = f"max(amount - {fee}, 0.0)" if fee else "amount + 0.5"
    fee_name = f"minus_{fee}" if fee else "plus_one_half"
    return ToolVariant(
        name=f"{years}_year_{name}_{str(rate).replace('.', '_')}_{fee_name}".replace("3_year", "three_year")
        .replace("4_year", "four_year")
        .replace("6_year", "six_year"),
        args={"amount": "float"},
        returns="float",
        does=(
            f"Return the amount after {years} years. In every year it {what}{then}.",
            f"Repeat {years} times: the amount {what}{then}. The answer is the last amount.",
            f"Simulate {years} years in each of which the amount {what}{then}, and give what it is at the end.",
        ),
        behaviour=["Only the answer is rounded, to 2 digits by Python's round."],
        body=(
            "if amount < 0:\n    raise ValueError('the amount must not be negative')\n"
            f"for _ in range({years}):\n"
            f"    amount = {code}\n"
            f"    amount = {after}\n"
            "return round(amount, 2)"
        ),
        draw={"amount": {"kind": "number", "low": 20.0, "high": 2000.0, "digits": 1}},
        edges=[0.0, 5.0, 13.5, 100.0, 999.9],
        raises="the amount is negative",
        errors=[-1.0, -0.5],
        options={"rate": Option(type="float", default=default, set=rate)},
    )


def _in_text(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("per_mille", "ten times the number and ' per mille'", "f'{int(match[1]) * 10} per mille'"),
            ("basis_points", "a hundred times the number and ' bp'", "f'{int(match[1]) * 100} bp'"),
            ("decimals", "a hundredth of the number with two decimals, such as 0.07", "f'{int(match[1]) / 100:.2f}'"),
            ("rest", "100 minus the number and '% less'", "f'{100 - int(match[1])}% less'"),
            ("fractions", "the number and '/100'", "f'{int(match[1])}/100'"),
        ]
    )
    sign_name, sign, shown = rng.choice([("signs", "%", "'%'"), ("words", " percent", "' percent'")])
    return ToolVariant(
        name=f"percent_{sign_name}_to_{name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Replace each percentage in the text, a whole number followed by {shown}, by {what}.",
            f"Return the text in which every whole number that has {shown} right after it, and that mark too, has "
            f"become {what}.",
            f"Find the percentages in the text (digits with {shown} right behind them) and write instead of each "
            f"{what}; the rest stays.",
        ),
        behaviour=[
            "A number is as many digits 0 to 9 as stand in a row, without leading zeros in the result.",
            "Other numbers and signs stay as they are.",
        ],
        body=f"import re\nreturn re.sub(r'([0-9]+){sign}', lambda match: {code}, text)",
        draw={
            "text": {
                "kind": "template",
                "pattern": "{start} {a}{x} and {b}{y} in {year}",
                "parts": {
                    "start": {"kind": "choice", "values": ["up", "from", "tax of", "-"]},
                    "a": {"kind": "integer", "low": 0, "high": 120},
                    "b": {"kind": "integer", "low": 0, "high": 99},
                    "x": {"kind": "choice", "values": [sign, sign, "%", " percent", " points"]},
                    "y": {"kind": "choice", "values": [sign, sign, " EUR", ""]},
                    "year": {"kind": "integer", "low": 1980, "high": 2030},
                },
            }
        },
        edges=["", f"5{sign}", f"100{sign}, 07{sign}", "no number %", f"12.5{sign}"],
    )


def _series(rng: random.Random) -> ToolVariant:
    digits = rng.choice([3, 4])
    name, what, base = rng.choice(
        [
            ("first", "the first value", "values[0]"),
            ("previous", "the value right before it", "values[i - 1]"),
            ("peak", "the largest value that stands before it", "max(values[:i])"),
            ("lowest", "the smallest value that stands before it", "min(values[:i])"),
        ]
    )
    return ToolVariant(
        name=f"changes_from_{name}_in_percent_{digits}_digits",
        args={"values": "list[float]"},
        returns="list[float]",
        does=(
            f"For each value but the first, return its change from {what}, in per cent of {what}.",
            f"List, for the second value and all after it, by how many per cent it is above {what} (negative: below).",
            f"Compare every value after the first one with {what}: the answers are 100 * (value - base) / base, where "
            f"base is {what}.",
        ),
        behaviour=[
            f"Each answer is rounded to {digits} digits by Python's round.",
            "A list of one value, or of none, gives an empty list.",
        ],
        body=(
            "if any(value <= 0 for value in values):\n    raise ValueError('values must be positive')\n"
            "changes = []\n"
            "for i in range(1, len(values)):\n"
            f"    base = {base}\n"
            f"    changes.append(round(100 * (values[i] - base) / base, {digits}))\n"
            "return changes"
        ),
        draw={"values": _PRICES},
        edges=[[], [5.0], [0.7, 0.9], [10.0, 12.0, 9.0, 15.0, 3.0], [3.0, 7.0, 6.0, 6.0]],
        raises="a value is zero or negative",
        errors=[[0.0], [3.0, -1.0], [5.0, 0.0, 2.0]],
    )


def _shares(rng: random.Random) -> ToolVariant:
    digits = rng.choice([1, 2, 3])
    name, what, code = rng.choice(
        [
            ("total", "the sum of all counts", "sum(counts)"),
            ("largest", "the largest count", "max(counts)"),
            ("two_largest", "the sum of the two largest counts", "sum(sorted(counts)[-2:])"),
        ]
    )
    return ToolVariant(
        name=f"counts_in_percent_of_{name}_{digits}_digits",
        args={"counts": "list[int]"},
        returns="list[str]",
        does=(
            f"Return how much each count is in per cent of {what}, written with {digits} decimals and '%'.",
            f"Express every count as a percentage of {what}, as text such as '{12.5:.{digits}f}%'.",
            f"Divide each count by {what}, multiply by 100 and write it with {digits} decimals and '%' behind it.",
        ),
        behaviour=[
            f"The number is int(x + 1/2) / {10**digits} with x = {10 ** (digits + 2)} * count / base in exact "
            "arithmetic: a tie is rounded up."
        ],
        body=(
            "if not counts or min(counts) < 0 or max(counts) == 0:\n    raise ValueError('no counts')\n"
            f"base = {code}\n"
            f"parts = [(2 * {10 ** (digits + 2)} * count + base) // (2 * base) for count in counts]\n"
            f"return [f'{{part // {10**digits}}}.{{part % {10**digits}:0{digits}d}}%' for part in parts]"
        ),
        draw={"counts": _COUNTS},
        edges=[[5], [1, 2], [1, 1, 1], [0, 8, 8], [1, 15], [3, 29, 40, 8], [1, 63, 64]],
        raises="the list is empty, a count is negative, or all counts are 0",
        errors=[[], [0, 0], [5, -1]],
    )


def _brackets(rng: random.Random) -> ToolVariant:
    first, second = rng.choice([(50, 200), (100, 300), (80, 250)])
    low, middle, high = rng.choice([(2, 10, 25), (5, 12, 30), (20, 10, 4)])
    name, what, code = rng.choice(
        [
            (
                "by_parts",
                f"{low} % of the part up to {first}, {middle} % of the part from {first} to {second} and {high} % of "
                f"the part above {second}",
                f"{low} * min(amount, {first}) + {middle} * min(max(amount - {first}, 0), {second - first})"
                f" + {high} * max(amount - {second}, 0)",
            ),
            (
                "as_a_whole",
                f"{low} % of the amount if it is at most {first}, {middle} % of it if it is above {first} but at most "
                f"{second}, and {high} % of it above that",
                f"amount * ({low} if amount <= {first} else {middle} if amount <= {second} else {high})",
            ),
        ]
    )
    return ToolVariant(
        name=f"fee_{name}_{first}_{second}_at_{low}_{middle}_{high}",
        args={"amount": "float"},
        returns="float",
        does=(
            f"Return the fee for the amount: {what}.",
            f"Compute the fee, which is {what}.",
            f"The tariff asks for {what}. Give what is to be paid for the amount.",
        ),
        behaviour=["The answer is rounded to 3 digits by Python's round.", "A negative amount counts as 0."],
        body=f"amount = max(amount, 0.0)\nreturn round(({code}) / 100, 3)",
        draw={
            "amount": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": 1.0, "high": float(first), "digits": 1},
                    {"kind": "number", "low": float(first), "high": float(second), "digits": 1},
                    {"kind": "number", "low": float(second), "high": 2.0 * second, "digits": 1, "edges": [second]},
                ],
            }
        },
        edges=[0.0, -5.0, 0.4, 1.0, first - 0.5, float(first), first + 0.5, second - 0.5, float(second), second + 0.5],
        laws=[{"kind": "bounds", "low": 0.0}],
    )


FAMILY = Family(
    name="percentage_changes",
    subject="percentages and changes in per cent",
    tools=(
        ToolTemplate(level=1, make=_change),
        ToolTemplate(level=1, make=_in_turn),
        ToolTemplate(level=2, make=_compound),
        ToolTemplate(level=2, make=_in_text),
        ToolTemplate(level=3, make=_series),
        ToolTemplate(level=2, make=_shares),
        ToolTemplate(level=3, make=_brackets),
    ),
)
