"""Prices as text."""

import random

from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant

_STYLES = {
    "dollar": ("$", "", ",", "."),
    "euro": ("", " EUR", ".", ","),
    "franc": ("CHF ", "", "'", "."),
    "krona": ("", " kr", " ", ","),
    "plain": ("", "", "", "."),
}
"""What is before, what is behind, between thousands, before the cents."""


def _price(style: str, units: str, cents: str) -> str:
    before, behind, thousands, point = _STYLES[style]
    return f"{before}{units.replace(',', thousands)}{point}{cents}{behind}"


def _write(rng: random.Random) -> ToolVariant:
    style = rng.choice(list(_STYLES))
    before, behind, thousands, point = _STYLES[style]
    sign, what, minus = rng.choice(
        [
            ("minus", '"-" in front of all', "'-' + text"),
            ("brackets", "round brackets around all, without a sign", "'(' + text + ')'"),
            ("behind", '"-" behind all', "text + '-'"),
        ]
    )
    group = f".replace(',', {thousands!r})" if thousands != "," else ""
    code = f"f'{{abs(cents) // 100:,}}'{group}" if thousands else "f'{abs(cents) // 100}'"
    return ToolVariant(
        name=f"price_as_{style}_negative_{sign}",
        args={"cents": "int"},
        returns="str",
        does=(
            f'Write an amount of cents as a price: "{_price(style, "1,234", "05")}" for 123405.',
            f'Return the price of so many cents in the manner of "{_price(style, "98,765", "40")}" (for 9876540).',
            f'Format cents as text such as "{_price(style, "7", "09")}" for 709, or "{_price(style, "1,000", "00")}" '
            "for 100000.",
        ),
        behaviour=[
            "100 cents are one unit; cents always have two digits, and there is at least one digit of units.",
            f"Groups of three digits of the units have {thousands!r} between them."
            if thousands
            else "Nothing separates thousands.",
            f"A negative amount has {what}.",
        ],
        body=(
            f"units = {code}\n"
            f"text = f{before + '{units}' + point + '{abs(cents) % 100:02d}' + behind!r}\n"
            f"return {minus} if cents < 0 else text"
        ),
        draw={
            "cents": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -3000, "high": 90000, "edges": [0, 5, -5]},
                    {"kind": "integer", "low": -(10**7), "high": 10**9},
                ],
            }
        },
        edges=[0, 7, -7, 99, 100, -100, 99999, 100000, 123456789, -250000000],
    )


_AMOUNTS = ["0", "7", "19", "250", "1,999", "34,050", "2,000,001"]


def _read(rng: random.Random) -> ToolVariant:
    style = rng.choice(["dollar", "euro", "franc", "krona"])
    before, behind, thousands, point = _STYLES[style]
    missing_name, missing = rng.choice([("required", ""), ("optional", "?")])
    between = {",": ",", ".": "[.]", "'": "[']", " ": " "}[thousands]
    pattern = (
        f"(-?){before.replace('$', '[$]')}([0-9]{{1,3}}(?:{between}[0-9]{{3}})*)"
        f"(?:{'[.]' if point == '.' else ','}([0-9]{{2}})){missing}{behind}"
    )
    small = f"{before}7{point}09{behind}"
    errors = ["", "7", f"{before}1234{point}00{behind}", f"{before}1{point}5{behind}", small + "x", small[1:]]
    cents = "int(found[3] or 0)" if missing else "int(found[3])"
    return ToolVariant(
        name=f"cents_of_{style}_price_cents_{missing_name}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the cents of a price written like '{_price(style, '1,234', '05')}'.",
            f"Read a price such as '{_price(style, '12,500', '00')}' or '-{small}' and give it in cents.",
            f"Convert text in the manner of '{small}' or '{_price(style, '3,000', '50')}' to a number of cents.",
        ),
        behaviour=[
            f"The digits of the units are in groups of three with {thousands!r} between (the first may be shorter)"
            + (f", {before!r} before" if before else "")
            + (f", {behind!r} behind all." if behind else "."),
            f"{point!r} and two digits of cents follow the units"
            + ("; both may be missing together." if missing else " and must be there."),
            "A '-' in front of all makes the answer negative. 1 unit is 100 cents.",
        ],
        body=(
            "import re\n\n"
            f"found = re.fullmatch({pattern!r}, text)\n"
            "if not found:\n    raise ValueError('no price')\n"
            f"cents = int(found[2].replace({thousands!r}, '')) * 100 + {cents}\n"
            "return -cents if found[1] else cents"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{sign}" + before + "{units}{cents}" + behind,
                "parts": {
                    "sign": {"kind": "choice", "values": ["", "", "-"]},
                    "units": {"kind": "choice", "values": [text.replace(",", thousands) for text in _AMOUNTS]},
                    "cents": {
                        "kind": "choice",
                        "values": [*(point + cents for cents in ("00", "05", "50", "99")), *([""] if missing else [])],
                    },
                },
            }
        },
        edges=[small, f"-{small}", *(_price(style, units, "89") for units in ("0", "001", "1,234,567"))]
        + ([f"{before}12{behind}", f"{before}1{thousands}000{behind}"] if missing else []),
        raises="the text has another form",
        errors=errors,
    )


def _charm(rng: random.Random) -> ToolVariant:
    end = rng.choice([99, 95, 90, 49])
    name, what, code = rng.choice(
        [
            ("up", "the smallest such price that is not less", "cents + ({0} - cents) % 100"),
            ("down", "the largest such price that is not more", "cents - (cents - {0}) % 100"),
            (
                "near_up",
                "the nearest such price, of two equally near ones the higher",
                "cents + 50 - (cents + 50 - {0}) % 100",
            ),
            (
                "near_down",
                "the nearest such price, of two equally near ones the lower",
                "cents - 50 + ({0} - cents + 50) % 100",
            ),
        ]
    )
    return ToolVariant(
        name=f"price_ending_in_{end}_{name}",
        args={"cents": "int"},
        returns="int",
        does=(
            f"Change a price in cents to one that ends in {end}: {what}.",
            f"Of the prices whose last two digits are {end}, return {what} (all in cents).",
            f"Return a price in cents that ends in {end}, namely {what}.",
        ),
        behaviour=[
            f"For any sign, a price ends in {end} if it is {end} plus a multiple of 100: -{100 - end} does, too."
        ],
        body=f"return {code.format(end)}",
        draw={"cents": {"kind": "integer", "low": -500, "high": 30000, "edges": [end, end + 50, end + 1, 0]}},
        edges=[0, end, end + 1, end + 49, end + 50, end + 51, end + 99, 12345],
        laws=[{"kind": "idempotent"}, {"kind": "monotone"}],
    )


def _span(rng: random.Random) -> ToolVariant:
    unit = rng.choice(["EUR", "USD", "GBP"])
    name, what, code = rng.choice(
        [
            ("dash", '"<lowest> - <highest> {0}"', "f'{show(min(prices))} - {show(max(prices))} {0}'"),
            ("from", '"from <lowest> {0}"', "f'from {show(min(prices))} {0}'"),
            ("up_to", '"up to <highest> {0}"', "f'up to {show(max(prices))} {0}'"),
            (
                "words",
                '"between <lowest> and <highest> {0}"',
                "f'between {show(min(prices))} and {show(max(prices))} {0}'",
            ),
        ]
    )
    none_name, none = rng.choice([("unknown", "price unknown"), ("sold_out", "sold out"), ("dash", "-")])
    what, code = what.replace("{0}", unit), code.replace("{0}", unit)
    return ToolVariant(
        name=f"price_span_{name}_{unit.lower()}_none_{none_name}",
        args={"prices": "list[int]"},
        returns="str",
        does=(
            f"Describe prices, in cents, as {what}.",
            f"Return {what} for a list of prices in cents.",
            f"Sum up what things cost: write {what}, given all prices in cents.",
        ),
        behaviour=[
            "A price is written as units, a point, and two digits of cents; 100 cents are a unit.",
            f'If all prices are the same, only "<price> {unit}" is written; without any the text is "{none}".',
            "Prices are not negative.",
        ],
        body=(
            "def show(cents: int) -> str:\n    return f'{cents // 100}.{cents % 100:02d}'\n\n"
            f"if not prices:\n    return {none!r}\n"
            f"if len(set(prices)) == 1:\n    return f'{{show(prices[0])}} {unit}'\n"
            f"return {code}"
        ),
        draw={
            "prices": {
                "kind": "list",
                "item": {"kind": "integer", "low": 0, "high": 20000, "edges": [5, 100, 999]},
                "min": 1,
                "max": 5,
            }
        },
        edges=[[], [0], [250, 250], [100, 99], [1, 205, 100000], [500, 500, 499]],
        laws=[{"kind": "permutation_invariant"}],
    )


def _per_unit(rng: random.Random) -> ToolVariant:
    base, measure = rng.choice([(1000, "1 kg"), (100, "100 g"), (250, "250 g")])
    name, how, code = rng.choice(
        [
            ("half_up", "rounded to whole cents, half a cent up", "(2 * cents * {0} + grams) // (2 * grams)"),
            ("up", "rounded up to whole cents", "-(-cents * {0} // grams)"),
            ("down", "rounded down to whole cents", "cents * {0} // grams"),
        ]
    )
    unit = rng.choice(["EUR", "USD"])
    return ToolVariant(
        name=f"price_per_{measure.replace(' ', '_')}_{name}_{unit.lower()}",
        args={"cents": "int", "grams": "int"},
        returns="str",
        does=(
            f'Return the price of {measure} as "<units>.<cents> {unit} / {measure}", if grams of it cost cents.',
            f"So many grams cost so many cents. Write what {measure} costs: units, a point, two digits of cents, and "
            f'" {unit} / {measure}".',
            f'Give the base price for {measure}, in the form "12.05 {unit} / {measure}", from a price in cents and a '
            "weight in grams.",
        ),
        behaviour=[f"The price of {measure} is {how}.", "100 cents are a unit."],
        body=(
            "if cents < 0 or grams < 1:\n    raise ValueError('no price')\n"
            f"price = {code.format(base)}\n"
            f"return f'{{price // 100}}.{{price % 100:02d}} {unit} / {measure}'"
        ),
        draw={
            "cents": {"kind": "integer", "low": 0, "high": 5000, "edges": [99, 1]},
            "grams": {"kind": "choice", "values": [16, 80, 125, 250, 330, 400, 750, 1000, 1600, 7]},
        },
        edges=[
            {"cents": 0, "grams": 1},
            {"cents": 1, "grams": 2 * base},
            {"cents": 3, "grams": 2 * base},
            {"cents": 1999, "grams": 1},
            {"cents": 100, "grams": 3},
        ],
        raises="cents is negative, or grams is less than 1",
        errors=[{"cents": -1, "grams": 5}, {"cents": 100, "grams": 0}, {"cents": 100, "grams": -3}],
    )


def _swap(rng: random.Random) -> ToolVariant:
    name, what, table, law = rng.choice(
        [
            ("swapped", "every comma becomes a point and every point a comma", {",": ".", ".": ","}, "involution"),
            ("swiss", "every comma becomes an apostrophe", {",": "'"}, "idempotent"),
            ("blanks", "every comma becomes a blank and every point a comma", {",": " ", ".": ","}, ""),
            ("bare", "every comma is dropped", {",": ""}, "idempotent"),
        ]
    )
    least = rng.choice([2, 4])
    inside = "{" + str(least - 2) + ",}"
    return ToolVariant(
        name=f"prices_in_text_{name}_from_{least}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Within the numbers of the text, {what}.",
            f"Rewrite the numbers in a text: {what}; nothing else changes.",
            f"Return the text in which, in all numbers, {what}.",
        ),
        behaviour=[
            "A number is a longest possible run of digits 0 to 9, commas and points that begins and ends with a digit "
            f"and has at least {least} characters.",
        ],
        body=(
            "import re\n\n"
            "def changed(number: re.Match[str]) -> str:\n"
            f"    return number[0].translate(str.maketrans({table}))\n\n"
            f"return re.sub('[0-9][0-9.,]{inside}[0-9]', changed, text)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    "$1,234.50",
                    "9.99",
                    "12,000,",
                    "now",
                    "1.5.",
                    "a,b",
                    "3,4",
                    "(7,000.00)",
                    "5,",
                    ".75",
                    "x.y",
                ],
                "min": 2,
                "max": 5,
                "separator": " ",
            }
        },
        edges=["", "1,234.5", "1,2", ",1,000,", "a.b 1.2", "1.2.3,4 and 7", "5,0 0.5", "12", "10,00"],
        laws=[{"kind": law}] if law else [],
    )


FAMILY = Family(
    name="price_formats",
    subject="prices as text",
    tools=(
        ToolTemplate(level=2, make=_write),
        ToolTemplate(level=3, make=_read),
        ToolTemplate(level=1, make=_charm),
        ToolTemplate(level=2, make=_span),
        ToolTemplate(level=2, make=_per_unit),
        ToolTemplate(level=1, make=_swap),
    ),
)
