"""Discounts and taxes."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_CENTS = {"kind": "integer", "low": 0, "high": 60000, "edges": [0, 1, 50, 99, 1999]}
_RULES = {
    "half_up": ("a half up", "({0} + {1}) // {2}"),
    "down": ("always down", "{0} // {2}"),
    "up": ("always up", "-(-{0} // {2})"),
}


def _off(rng: random.Random) -> ToolVariant:
    percent = rng.choice([7, 13, 17, 23, 31])
    name = rng.choice(list(_RULES))
    rule, code = _RULES[name]
    kind, what, factor = rng.choice(
        [
            ("price_after", "the price after the discount", "(100 - config.percent)"),
            ("discount_of", "the discount", "config.percent"),
        ]
    )
    part = 100 - percent if kind == "price_after" else percent
    return ToolVariant(
        name=f"{kind}_{percent}_percent_{name}",
        args={"cents": "int"},
        returns="int",
        does=(
            f"Return {what} of `percent` percent, in whole cents.",
            f"A price in cents is reduced by `percent` percent. Give {what}, in cents.",
            f"Take `percent` percent off a price and return {what} in cents.",
        ),
        behaviour=[
            f"The answer is cents * {factor.replace('config.', '')} / 100, made whole by rounding {rule} (up is toward "
            "the larger number, also below zero).",
        ],
        body=f"return {code.format(f'cents * {factor}', 50, 100)}",
        draw={"cents": {**_CENTS, "low": -900}},
        edges=[0, 1, 99, -10, *(next(n for n in range(100) if n * part % 100 == rest) for rest in (1, 49, 50, 51))],
        options={"percent": Option(type="int", default=10, set=percent)},
        laws=[{"kind": "monotone"}],
    )


def _tax(rng: random.Random) -> ToolVariant:
    percent = rng.choice([7, 10, 19, 21, 25])
    name = rng.choice(list(_RULES))
    rule, code = _RULES[name]
    total = 100 + percent
    kind, what, given, number, half, size = rng.choice(
        [
            ("tax_in_gross", f"gross * {percent} / {total}", "gross", f"gross * {percent}", total // 2, total),
            ("net_of_gross", f"gross * 100 / {total}", "gross", "gross * 100", total // 2, total),
            ("gross_of_net", f"net * {total} / 100", "net", f"net * {total}", 50, 100),
            ("tax_on_net", f"net * {percent} / 100", "net", f"net * {percent}", 50, 100),
        ]
    )
    wanted = {
        "tax_in_gross": ("the tax that a price contains", "tax"),
        "net_of_gross": ("the price without the tax that it contains", "net price"),
        "gross_of_net": ("the price with the tax that is added to it", "gross price"),
        "tax_on_net": ("the tax that is added to a price", "tax"),
    }[kind]
    return ToolVariant(
        name=f"{kind}_{percent}_percent_{name}",
        args={given: "int"},
        returns="int",
        does=(
            f"Return {wanted[0]}, at {percent} percent, in cents.",
            f"The tax is {percent} percent of the net price. Give the {wanted[1]} of a {given} price, in cents.",
            f"Compute the {wanted[1]} (in cents) of a {given} price, if {percent} percent tax are added to net prices.",
        ),
        behaviour=[f"It is {what}, made whole by rounding {rule}.", f"The {given} price is not negative."],
        body=f"if {given} < 0:\n    raise ValueError('negative')\nreturn {code.format(number, half, size)}",
        draw={given: _CENTS},
        edges=[0, 1, 3, 5, 10, 50, total, total + 1, 9999],
        raises=f"{given} is negative",
        errors=[-1, -500],
        laws=[{"kind": "monotone"}],
    )


_SCALES = {
    "three_steps": [(0, 10), (10000, 20), (40000, 40)],
    "free_then_two": [(12000, 15), (30000, 33)],
    "four_steps": [(5000, 5), (15000, 12), (35000, 25), (80000, 45)],
    "falling": [(0, 30), (20000, 20), (50000, 10)],
}


def _brackets(rng: random.Random) -> ToolVariant:
    name = rng.choice(list(_SCALES))
    scale = _SCALES[name]
    rule_name, rule, result = rng.choice(
        [
            ("in_cents", "The income is in whole units, the tax exact in cents (hundredths of a unit).", "tax"),
            (
                "twelfth",
                "The income is in whole units; of the tax in cents a twelfth counts, rounded down.",
                "tax // 12",
            ),
            (
                "quarter",
                "The income is in whole units; of the tax in cents a quarter counts, rounded up.",
                "-(-tax // 4)",
            ),
        ]
    )
    credit = rng.choice([0, 300])
    *steps, (top, rate) = scale
    ends = [low for low, _ in scale[1:]]
    lines = [(low, high, part) for (low, part), high in zip(steps, ends, strict=True)]
    listed = ", ".join(f"{part} percent of what is over {low}" for low, part in scale)
    until = "each only up to where the next begins"
    less = f", less {credit}, but at least 0" if credit else ""
    return ToolVariant(
        name=f"income_tax_{name}_{rule_name}_credit_{credit}",
        args={"income": "int"},
        returns="int",
        does=(
            f"Return the tax on an income: {listed}, {until}{less}.",
            f"Tax an income step by step ({listed}; {until}) and return the sum{less}.",
            f"Compute a graduated tax, {listed}, {until}. Return the whole tax{less}.",
        ),
        behaviour=[
            rule + (f" The {credit} are cents, taken off at the very end." if credit else ""),
            "An income of zero or less has no tax.",
        ],
        body=(
            f"tax = 0\nfor low, high, rate in {lines}:\n"
            "    if income > low:\n"
            "        tax += (min(income, high) - low) * rate\n"
            f"if income > {top}:\n    tax += (income - {top}) * {rate}\n"
            f"return {f'max({result} - {credit}, 0)' if credit else result}"
        ),
        draw={
            "income": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": 3000, "high": 60000},
                    {"kind": "integer", "low": 13000, "high": 120000},
                ],
            }
        },
        edges=[0, -500, *(low + 1 for low, _ in scale), *(low + 7777 for low, _ in scale), 250001],
        laws=[{"kind": "monotone"}],
    )


_ORDERS = [
    ("as_given", "in the order in which they are written", "codes.split()"),
    (
        "percent_first",
        "all P codes first, then all F codes, each in written order",
        "sorted(codes.split(), key=lambda code: code[0] == 'F')",
    ),
    (
        "fixed_first",
        "all F codes first, then all P codes, each in written order",
        "sorted(codes.split(), key=lambda code: code[0] == 'P')",
    ),
]


def _coupons(rng: random.Random) -> ToolVariant:
    order_name, order, code = rng.choice(_ORDERS)
    rule_name, rule, tail = rng.choice([("half_up", "a half up", "+ 50"), ("down", "down", ""), ("up", "up", "+ 99")])
    least = rng.choice([0, 100])
    return ToolVariant(
        name=f"coupons_{order_name}_{rule_name}_at_least_{least}",
        args={"cents": "int", "codes": "str"},
        returns="int",
        does=(
            "Apply coupon codes to a price in cents and return the final price: P15 takes 15 percent off, F250 takes "
            f"250 cents off; they are applied {order}.",
            f"Return the price in cents after all codes, applied {order}: P and a number reduce the price so far by so "
            "many percent, F and a number by so many cents.",
            f"Go through the codes, {order}; P<n> means n percent less of the price so far, F<n> means n cents less. "
            "Return what is left of the price.",
        ),
        behaviour=[
            f"Codes have white space between them; without any the price stays, but is at least {least}.",
            f"After a P code the price is rounded to whole cents, {rule}.",
            f"Only the final price is raised to {least} if it is less.",
        ],
        body=(
            "import re\n\n"
            "for code in codes.split():\n"
            "    if not re.fullmatch('P[0-9]{1,2}|F[0-9]+', code):\n        raise ValueError('no code')\n"
            f"for code in {code}:\n"
            "    number = int(code[1:])\n"
            f"    cents = (cents * (100 - number) {tail}) // 100 if code[0] == 'P' else cents - number\n"
            f"return max(cents, {least})"
        ),
        draw={
            "cents": {"kind": "integer", "low": 1500, "high": 30000, "edges": [1999, 10050]},
            "codes": {
                "kind": "words",
                "values": ["P15", "F250", "P5", "F99", "P33", "F1000", "P0", "P08"],
                "min": 1,
                "max": 3,
                "separator": " ",
            },
        },
        edges=[
            {"cents": 999, "codes": ""},
            {"cents": 1050, "codes": "F333 P10"},
            {"cents": 1050, "codes": "P10  F333 P7"},
            {"cents": 200, "codes": "F500"},
            {"cents": 55, "codes": "P50"},
            {"cents": 9999, "codes": "F1 P99"},
        ],
        raises="a code is neither P and one or two digits nor F and one or more digits",
        errors=[
            {"cents": 100, "codes": "P100"},
            {"cents": 100, "codes": "X5"},
            {"cents": 100, "codes": "P5,F2"},
            {"cents": 100, "codes": "F10 P"},
            {"cents": 100, "codes": "p5"},
        ],
    )


def _basket(rng: random.Random) -> ToolVariant:
    count = rng.choice([2, 3, 4])
    name, what, code = rng.choice(
        [
            ("cheapest_free", "the cheapest of them is free", "sum(prices) - min(prices)"),
            ("dearest_half", "the dearest of them costs half, rounded down", "sum(prices) - (max(prices) + 1) // 2"),
            (
                "every_nth_free",
                f"from the dearest on, every {count}th of them is free",
                f"sum(prices) - sum(sorted(prices)[::-1][{count - 1}::{count}])",
            ),
            ("percent_off", "10 percent, rounded down, are taken off the sum", "sum(prices) - sum(prices) // 10"),
        ]
    )
    shipping = rng.choice([0, 490])
    free = 5000
    plus = f"total + {shipping} if 0 < total < {free} else total" if shipping else "total"
    ship = (
        f"Shipping costs {shipping} more, unless the sum is 0, or {free} or more after the reduction."
        if shipping
        else "There are no other costs."
    )
    return ToolVariant(
        name=f"basket_from_{count}_items_{name}_shipping_{shipping}",
        args={"prices": "list[int]"},
        returns="int",
        does=(
            f"Return the sum of the prices in cents; with {count} or more items, {what}.",
            f"Add up the prices (cents) of a basket. Where there are at least {count} items, {what}.",
            f"Give what all items cost together, in cents, if {what} as soon as there are {count} of them or more.",
        ),
        behaviour=["No items cost 0.", ship],
        body=f"total = {code} if len(prices) >= {count} else sum(prices)\nreturn {plus}",
        draw={
            "prices": {
                "kind": "list",
                "item": {"kind": "integer", "low": 100, "high": 2500, "edges": [999, 1001]},
                "min": 1,
                "max": 6,
            }
        },
        edges=[
            [],
            [999],
            [100] * (count - 1),
            [101, 250, 305, 407, 555][:count],
            [5001],
            [2600, 2655, 3001, 1999],
            [1] * 8,
        ],
        laws=[{"kind": "permutation_invariant"}],
    )


def _in_text(rng: random.Random) -> ToolVariant:
    percent = rng.choice([10, 15, 20, 30, 45])
    name = rng.choice(list(_RULES))
    rule, code = _RULES[name]
    mark_name, mark, match = rng.choice([("point", ".", "[.]"), ("comma", ",", ",")])
    return ToolVariant(
        name=f"prices_in_text_{percent}_percent_off_{name}_{mark_name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Reduce every price in the text by {percent} percent.",
            f"Return the text with all its prices replaced by what they are after {percent} percent off.",
            f"Rewrite the text so that each price is {percent} percent lower.",
        ),
        behaviour=[
            f"A price is one or more digits 0 to 9, '{mark}' and exactly two digits, with no digit right behind; all "
            "other text stays. It is replaced by a price of the same form, without zeros in front of the units but "
            "with at least one digit there.",
            f"The new price is rounded to whole hundredths, {rule}.",
        ],
        body=(
            "import re\n\n"
            "def reduced(price: re.Match[str]) -> str:\n"
            f"    cents = {code.format(f'int(price[1] + price[2]) * {100 - percent}', 50, 100)}\n"
            f"    return f'{{cents // 100}}{mark}{{cents % 100:02d}}'\n\n"
            f"return re.sub('([0-9]+){match}([0-9][0-9])(?![0-9])', reduced, text)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    f"12{mark}50",
                    f"shoes 59{mark}99,",
                    f"{mark}99",
                    "7",
                    f"0{mark}45 EUR",
                    f"$100{mark}00!",
                    f"3{mark}1",
                    f"2{mark}345",
                    f"08{mark}05",
                ],
                "min": 2,
                "max": 4,
                "separator": " ",
            }
        },
        edges=[
            "",
            "nothing",
            f"1{mark}00",
            f"0{mark}01 0{mark}03",
            f"10{mark}00-20{mark}00",
            f"1.2,3{mark}33",
            f"5{mark}005",
        ],
    )


FAMILY = Family(
    name="discounts_taxes",
    subject="discounts and taxes",
    tools=(
        ToolTemplate(level=1, make=_off),
        ToolTemplate(level=1, make=_tax),
        ToolTemplate(level=3, make=_brackets),
        ToolTemplate(level=3, make=_coupons),
        ToolTemplate(level=2, make=_basket),
        ToolTemplate(level=2, make=_in_text),
    ),
)
