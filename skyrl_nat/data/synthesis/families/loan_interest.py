"""Loans and interest."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_RATES = [1.75, 2.5, 3.6, 4.8, 6.0, 9.9]
_AMOUNT = {"kind": "number", "low": 10.0, "high": 90000.0, "digits": 2, "edges": [100.0, 1000.0, 2500.5]}


def _spoken(rate: float) -> str:
    return str(rate).replace(".", "_")


def _simple(rng: random.Random) -> ToolVariant:
    rate = rng.choice(_RATES)
    name, time, factor = rng.choice(
        [
            ("3_years", "3 years", "* 3"),
            ("18_months", "18 months", "* 18 / 12"),
            ("90_days", "90 days of a year of 360 days", "* 90 / 360"),
            ("45_days", "45 days of a year of 365 days", "* 45 / 365"),
        ]
    )
    kind, what, code = rng.choice(
        [
            ("interest", "the interest", "principal * config.rate / 100 {0}"),
            ("balance", "the principal and the interest together", "principal + principal * config.rate / 100 {0}"),
        ]
    )
    code = code.format(factor)
    return ToolVariant(
        name=f"simple_{kind}_{name}_at_{_spoken(rate)}_percent",
        args={"principal": "float"},
        returns="float",
        does=(
            f"Return {what} after {time}, at `rate` percent simple interest per year.",
            f"An amount is lent for {time}; each year costs `rate` percent of it, without compounding. Give {what}.",
            f"Compute simple interest of `rate` percent a year on the principal for {time}, and return {what}.",
        ),
        behaviour=[f"The answer is {code.replace('config.', '')}, rounded to 2 digits by Python's round."],
        body=f"return round({code}, 2)",
        draw={"principal": {**_AMOUNT, "low": -5000.0}},
        edges=[0.0, 1.0, 100.0, -100.0, 12345.67],
        options={"rate": Option(type="float", default=rate + 1.0, set=rate)},
        laws=[{"kind": "odd"}, {"kind": "monotone"}],
    )


def _compound(rng: random.Random) -> ToolVariant:
    rate = rng.choice(_RATES)
    years = rng.choice([2, 3, 5])
    name, period, times = rng.choice(
        [("yearly", "year", 1), ("half_yearly", "half-year", 2), ("quarterly", "quarter", 4)]
    )
    kind, rule, inside, outside = rng.choice(
        [
            (
                "rounded_each_time",
                f"after every {period} the balance is rounded to 2 digits",
                "round({0}, 2)",
                "balance",
            ),
            ("rounded_at_end", "only the final balance is rounded to 2 digits", "{0}", "round(balance, 2)"),
        ]
    )
    deposit = rng.choice([0, 50])
    step = f"balance * (1 + {rate} / {100 * times}){f' + {deposit}' if deposit else ''}"
    saving = f", after which {deposit} is paid in" if deposit else ""
    return ToolVariant(
        name=f"{name}_{years}_years_{_spoken(rate)}_paying_{deposit}_{'each' if 'each' in kind else 'end'}",
        args={"balance": "float"},
        returns="float",
        does=(
            f"Return the balance after {years} years, if at the end of every {period} {rate} / {times} percent of it "
            f"are added as interest{saving}.",
            f"Let a balance grow for {years} years at {rate} percent a year, compounded every {period} (with a rate of "
            f"{rate} / {times} percent){saving}, and return it.",
            f"Compound the balance {years * times} times, once every {period}: interest is {rate} / {times} percent of "
            f"the balance{saving}. Return the final balance.",
        ),
        behaviour=[
            f"By Python's round, {rule}.",
            f"The balance after a {period} is {step}.",
        ],
        body=(f"for _ in range({years * times}):\n    balance = {inside.format(step)}\nreturn {outside}"),
        draw={"balance": _AMOUNT},
        edges=[0.0, 1.0, 100.0, 99999.99],
        laws=[{"kind": "monotone"}],
    )


def _payment(rng: random.Random) -> ToolVariant:
    months = rng.choice([12, 24, 36, 60, 120])
    rate = rng.choice([2.4, 3.6, 6.0, 9.9])
    when, at, extra = rng.choice(
        [("end", "at the end of every month", ""), ("begin", "at the beginning of every month", " / (1 + step)")]
    )
    kind, what, code = rng.choice(
        [
            ("payment", "the monthly payment", "payment"),
            ("cost", "the interest paid in all, which is all payments less the loan", f"payment * {months} - loan"),
        ]
    )
    code = f"round({code}, 2)" if kind == "payment" else f"round(round(payment, 2) * {months} - loan, 2)"
    rounding = (
        "rounded to 2 digits"
        if kind == "payment"
        else f"rounded to 2 digits, times {months}, less the loan, rounded again"
    )
    return ToolVariant(
        name=f"annuity_{kind}_{months}_months_{when}_{_spoken(rate)}",
        args={"loan": "float"},
        returns="float",
        does=(
            f"A loan is repaid in {months} equal payments, {at}, with `rate` percent interest a year. Return {what}.",
            f"Return {what} for an annuity loan over {months} months, paid {at}, at `rate` percent a year.",
            f"Give {what}, where {months} equal payments {at} settle the loan and one twelfth of `rate` percent of the "
            "rest of the debt is charged each month.",
        ),
        behaviour=[
            f"With step = rate / 1200 the payment is loan * step / (1 - (1 + step) ** -{months}){extra}.",
            f"The answer is the payment {rounding} (Python's round).",
        ],
        body=(
            "if loan < 0:\n    raise ValueError('loan must not be negative')\n"
            "step = config.rate / 1200\n"
            f"payment = loan * step / (1 - (1 + step) ** -{months}){extra}\n"
            f"return {code}"
        ),
        draw={"loan": {**_AMOUNT, "low": 500.0}},
        edges=[0.0, 100.0, 1000.0, 250000.0],
        raises="loan is negative",
        errors=[-0.01, -1000.0],
        options={"rate": Option(type="float", default=rate + 1.5, set=rate)},
    )


def _payoff(rng: random.Random) -> ToolVariant:
    permille = rng.choice([5, 8, 10, 15])
    payment = rng.choice([8000, 15000, 40000])
    kind, what, start, step, code = rng.choice(
        [
            ("months", "how many months it takes until nothing is owed", "months = 0", "months += 1", "months"),
            ("last_payment", "the last payment, which is just what is owed then", "last = 0", "last = debt", "last"),
            ("all_interest", "the sum of the interest of all months", "paid = 0", "paid += interest", "paid"),
        ]
    )
    limit = -(-payment * 1000 // permille)
    return ToolVariant(
        name=f"{kind}_at_{permille}_permille_paying_{payment}",
        args={"debt": "int"},
        returns="int",
        does=(
            f"Each month {permille} per mille interest is added to a debt, then `payment` is paid, or less if less is "
            f"owed. Return {what}.",
            f"A debt is paid back with `payment` a month; before each payment it grows by {permille} per mille. The "
            f"last payment is only what is still owed. Give {what}.",
            f"Play through month after month: add {permille} per mille of the debt to it, then pay `payment`, at most "
            f"the whole debt, until it is zero. Return {what}.",
        ),
        behaviour=[
            "All amounts are whole cents; the interest of a month is rounded down.",
            "A debt of zero gives zero.",
        ],
        body=(
            f"if debt < 0 or debt * {permille} // 1000 >= config.payment:\n"
            "    raise ValueError('never paid')\n"
            f"{start}\n"
            "for _ in range(5000):\n"
            "    if debt <= 0:\n"
            "        break\n"
            f"    interest = debt * {permille} // 1000\n"
            "    debt += interest\n"
            f"    {step}\n"
            "    debt -= config.payment\n"
            f"return {code}"
        ),
        draw={
            "debt": {
                "kind": "integer",
                "low": payment // 2,
                "high": payment * 60,
                "edges": [payment, payment * 10, payment * 30],
            }
        },
        edges=[0, 1, payment, payment + 1, payment * 12, limit - payment // 4, limit - 1],
        raises="debt is negative, or the interest of the first month, rounded down, is not less than `payment`",
        errors=[-1, limit, limit + 1, limit * 2],
        options={"payment": Option(type="int", default=payment + 1000, set=payment)},
    )


_COUNTS = {
    "30e_360": (
        "every month has 30 days (a day 31 counts as 30) and the year 360",
        "a, b = [(d.year * 12 + d.month) * 30 + min(d.day, 30) for d in (start, end)]\ndays, year = b - a, 360\n",
    ),
    "actual_365": ("days are counted by the calendar and the year has 365", "days, year = (end - start).days, 365\n"),
    "actual_360": ("days are counted by the calendar and the year has 360", "days, year = (end - start).days, 360\n"),
}


def _between(rng: random.Random) -> ToolVariant:
    name = rng.choice(list(_COUNTS))
    rule, code = _COUNTS[name]
    rate = rng.choice(_RATES)
    days = {"kind": "choice", "values": ["01", "15", "28", "30", "31", "07"]}
    return ToolVariant(
        name=f"interest_between_dates_{name}_at_{_spoken(rate)}",
        args={"principal": "float", "first": "str", "last": "str"},
        returns="float",
        does=(
            f"Return the simple interest on the principal from first to last, at `rate` percent a year, where {rule}.",
            f"Charge `rate` percent simple interest per year for the days from first to last: {rule}. Return the "
            "interest.",
            f"Give principal * rate / 100 * days / year for the time between two dates, where {rule}.",
        ),
        behaviour=[
            "Dates are real ones (Gregorian calendar), written YYYY-MM-DD.",
            "The interest is principal * rate / 100 * days / year, rounded to 2 digits by Python's round.",
        ],
        body=(
            "import datetime\n\n"
            "start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)\n"
            "if end < start:\n    raise ValueError('last is before first')\n"
            f"{code}return round(principal * config.rate / 100 * days / year, 2)"
        ),
        draw={
            "principal": {"kind": "number", "low": 100.0, "high": 20000.0, "digits": 2, "edges": [1000.0, 5000.0]},
            **{
                side: {
                    "kind": "template",
                    "pattern": pattern,
                    "parts": {"month": {"kind": "choice", "values": ["01", "03", "05", "07", "08", "10"]}, "day": days},
                }
                for side, pattern in (("first", "2023-{month}-{day}"), ("last", "2024-{month}-{day}"))
            },
        },
        edges=[
            {"principal": 10000.0, "first": "2024-01-31", "last": "2024-03-31"},
            {"principal": 10000.0, "first": "2024-02-29", "last": "2024-03-01"},
            {"principal": 10000.0, "first": "2024-05-05", "last": "2024-05-05"},
            {"principal": 10000.0, "first": "2023-12-30", "last": "2024-12-31"},
        ],
        raises="last is before first",
        errors=[
            {"principal": 100.0, "first": "2024-01-02", "last": "2024-01-01"},
            {"principal": 0.0, "first": "2025-01-01", "last": "2024-12-31"},
        ],
        options={"rate": Option(type="float", default=rate + 0.5, set=rate)},
    )


def _effective(rng: random.Random) -> ToolVariant:
    name, times = rng.choice([("half_years", 2), ("quarters", 4), ("months", 12), ("weeks", 52)])
    digits = rng.choice([2, 3, 4])
    fee_name, fee = rng.choice([("no_fee", 0.0), ("fee", 1.5)])
    minus = f" - {fee}" if fee else ""
    cost = f", less {fee} percent points for fees" if fee else ""
    spoken = {"half_years": "half-year", "quarters": "quarter", "months": "month", "weeks": "week"}[name]
    return ToolVariant(
        name=f"effective_rate_of_{name}_{fee_name}_{digits}_digits",
        args={"nominal": "float"},
        returns="float",
        does=(
            f"Return the effective yearly rate in percent of a nominal one that is compounded every {spoken}{cost}.",
            f"A nominal rate (percent a year) is credited in {times} equal parts a year, each on the balance so far. "
            f"Give the growth after a year in percent{cost}.",
            f"Convert a nominal to an effective rate, both in percent a year, for {times} compoundings a year{cost}.",
        ),
        behaviour=[
            f"The answer is ((1 + nominal / 100 / {times}) ** {times} - 1) * 100{minus}, rounded to {digits} digits by "
            "Python's round.",
        ],
        body=f"return round(((1 + nominal / 100 / {times}) ** {times} - 1) * 100{minus}, {digits})",
        draw={"nominal": {"kind": "number", "low": -8.0, "high": 40.0, "digits": 2, "edges": [0.0, 12.0, 1.0]}},
        edges=[0.0, 1.0, 6.0, 100.0, -5.0],
        laws=[{"kind": "monotone"}],
    )


FAMILY = Family(
    name="loan_interest",
    subject="loans and interest",
    tools=(
        ToolTemplate(level=1, make=_simple),
        ToolTemplate(level=2, make=_compound),
        ToolTemplate(level=2, make=_payment),
        ToolTemplate(level=3, make=_payoff),
        ToolTemplate(level=3, make=_between),
        ToolTemplate(level=1, make=_effective),
    ),
)
