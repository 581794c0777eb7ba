"""Days of the calendar."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_MONTH_ENDS = ["2023-01-31", "2024-02-29", "2023-02-28", "2024-12-31", "2023-08-31", "2025-10-31", "2024-03-30"]
_MONTH_ENDS += ["2000-02-29", "1999-12-31", "2023-05-31", "2024-01-29", "2023-11-30", "2022-07-31", "2026-03-31"]
_MONTH_ENDS += ["2024-01-30", "2025-01-29", "2023-03-29", "2024-03-31", "2024-05-30", "2023-10-30", "2025-12-30"]
_MONTH_ENDS += ["2024-08-29", "2022-12-31", "2025-05-31", "2024-07-31", "2023-08-30", "2024-10-31", "1996-02-29"]
_DATE = {
    "kind": "one_of",
    "of": [
        {
            "kind": "template",
            "pattern": "{year}-{month}-{day}",
            "parts": {
                "year": {"kind": "integer", "low": 1896, "high": 2104},
                "month": {"kind": "choice", "values": [f"{month:02d}" for month in range(1, 13)]},
                "day": {"kind": "choice", "values": [f"{day:02d}" for day in range(1, 29)]},
            },
        },
        {"kind": "choice", "values": _MONTH_ENDS},
    ],
}
_READ = (
    "if not re.fullmatch('[0-9]{4}-[0-9]{2}-[0-9]{2}', day):\n    raise ValueError('day is no date')\n"
    "at = datetime.date.fromisoformat(day)\n"
)
_IMPORTS = "import datetime\nimport re\n\n"
_NO_DATE = "day is not a real date written YYYY-MM-DD"
_NO_DATES = ["", "2023-02-29", "2024-13-01", "20240105", "2024-1-5", "yesterday"]
_WRITTEN = "Dates are written YYYY-MM-DD (Gregorian calendar), in the argument and in the answer."


def _shift(rng: random.Random) -> ToolVariant:
    unit, counts = rng.choice([("days", [10, 30, 45, 90, 100, 1000]), ("weeks", [3, 6, 13, 40])])
    count = rng.choice(counts)
    order, sign = rng.choice([("later", "+"), ("earlier", "-")])
    verb, side = {"+": ("Add", "after"), "-": ("Subtract", "before")}[sign]
    return ToolVariant(
        name=f"date_{count}_{unit}_{order}",
        args={"day": "str"},
        returns="str",
        does=(
            f"Return the date that is `{unit}` {unit} {order} than day.",
            f"{verb} `{unit}` {unit} {'to' if sign == '+' else 'from'} the date and return the new date.",
            f"Give the date that comes `{unit}` {unit} {side} the given one.",
        ),
        behaviour=[_WRITTEN],
        body=f"{_IMPORTS}{_READ}return str(at {sign} datetime.timedelta({unit}=config.{unit}))",
        draw={"day": _DATE},
        edges=["2024-02-29", "2023-12-31", "1900-03-01"],
        raises=_NO_DATE,
        errors=_NO_DATES,
        options={unit: Option(type="int", default=1, set=count)},
    )


def _shift_months(rng: random.Random) -> ToolVariant:
    months = rng.choice([1, 2, 3, 6, 9, 18])
    order, sign = rng.choice([("later", "+"), ("earlier", "-")])
    name, what, code = rng.choice(
        [
            ("clamped", "the last day of that month is taken", "datetime.date(year, month + 1, min(at.day, last))"),
            (
                "skipping",
                "the first day of the month after it is taken",
                "first + datetime.timedelta(days=min(at.day - 1, last))",
            ),
            (
                "spilling",
                "the days that are too many are counted on into the month after it (31 April is 1 May, 30 February of "
                "a common year is 2 March)",
                "first + datetime.timedelta(days=at.day - 1)",
            ),
        ]
    )
    calendar = "" if name == "spilling" else "import calendar\n"
    last = "" if name == "spilling" else "last = calendar.monthrange(year, month + 1)[1]\n"
    first = "" if name == "clamped" else "first = datetime.date(year, month + 1, 1)\n"
    plural = "month" if months == 1 else "months"
    return ToolVariant(
        name=f"date_{months}_months_{order}_{name}",
        args={"day": "str"},
        returns="str",
        does=(
            f"Return the same day of the month {months} {plural} {order}; where that month has no such day, {what}.",
            f"Move the date by {months} {plural} to the {'future' if sign == '+' else 'past'} and keep its day of the "
            f"month. If the month reached is too short for it, {what}.",
            f"Give the date with the same day number in the month that lies {months} {plural} {order}. When there is "
            f"no such day, {what}.",
        ),
        behaviour=[_WRITTEN],
        body=(
            f"{calendar}{_IMPORTS}{_READ}year, month = divmod(at.year * 12 + at.month - 1 {sign} {months}, 12)\n"
            f"{last}{first}return str({code})"
        ),
        draw={"day": {"kind": "one_of", "of": [_DATE, {"kind": "choice", "values": _MONTH_ENDS}]}},
        edges=["2024-08-31", "2023-08-31", "2024-01-31", "2024-05-31", "2023-12-31", "2024-11-30", "2024-02-29"],
        raises=_NO_DATE,
        errors=_NO_DATES,
    )


def _weekday(rng: random.Random) -> ToolVariant:
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    index = rng.randrange(7)
    name, what, code = rng.choice(
        [
            ("on_or_after", "first {0} on or after", "+ datetime.timedelta(days=({0} - at.weekday()) % 7)"),
            ("after", "first {0} after, and not on,", "+ datetime.timedelta(days=({1} - at.weekday()) % 7 + 1)"),
            ("on_or_before", "last {0} on or before", "- datetime.timedelta(days=(at.weekday() + {2}) % 7)"),
            ("before", "last {0} before, and not on,", "- datetime.timedelta(days=(at.weekday() + {3}) % 7 + 1)"),
        ]
    )
    what = what.format(names[index])
    return ToolVariant(
        name=f"{names[index].lower()}_{name}_date",
        args={"day": "str"},
        returns="str",
        does=(
            f"Return the date of the {what} the given date.",
            f"Find the {what} day and return its date.",
            f"Which date is the {what} this date? Return it.",
        ),
        behaviour=[_WRITTEN],
        body=f"{_IMPORTS}{_READ}return str(at {code.format(index, (index - 1) % 7, 7 - index, 6 - index or 7)})",
        draw={"day": _DATE},
        edges=[f"2024-07-{day:02d}" for day in range(1, 8)],
        raises=_NO_DATE,
        errors=_NO_DATES,
        laws=[{"kind": "idempotent"}] if name.startswith("on_or") else [],
    )


def _working_days(rng: random.Random) -> ToolVariant:
    free_name, free_days, free = rng.choice(
        [
            ("saturday_sunday", "Saturdays and Sundays", (5, 6)),
            ("friday_saturday", "Fridays and Saturdays", (4, 5)),
            ("wednesday_sunday", "Wednesdays and Sundays", (2, 6)),
            ("sunday", "Sundays", (6,)),
        ]
    )
    ends, counted, code = rng.choice(
        [
            ("both_ends", "first and last included", "range((end - start).days + 1)"),
            ("without_last", "first included, last not", "range((end - start).days)"),
            ("without_first", "last included, first not", "range(1, (end - start).days + 1)"),
        ]
    )
    return ToolVariant(
        name=f"days_not_{free_name}_{ends}",
        args={"first": "str", "last": "str"},
        returns="int",
        does=(
            f"Count the days from first to last, {counted}, that are not {free_days}.",
            f"Return how many days between two dates are working days, where only {free_days} are free ({counted}).",
            f"Of the days from first to last ({counted}), leave out {free_days} and return the number of the others.",
        ),
        behaviour=["Both are real dates written YYYY-MM-DD (Gregorian calendar)."],
        body=(
            "import datetime\n\n"
            "start, end = datetime.date.fromisoformat(first), datetime.date.fromisoformat(last)\n"
            "if end < start:\n    raise ValueError('last is before first')\n"
            f"days = [start + datetime.timedelta(days=n) for n in {code}]\n"
            f"return len([day for day in days if day.weekday() not in {free}])"
        ),
        draw={
            side: {
                "kind": "template",
                "pattern": "2024-{month}-{day}",
                "parts": {
                    "month": {"kind": "choice", "values": months},
                    "day": {"kind": "choice", "values": [f"{day:02d}" for day in range(1, 30)]},
                },
            }
            for side, months in (("first", ["02", "03", "04"]), ("last", ["04", "05", "06"]))
        },
        edges=[{"first": "2024-07-05", "last": f"2024-07-{day:02d}"} for day in (5, 6, 7, 8, 10, 11, 12)],
        raises="last is before first",
        errors=[{"first": "2024-07-05", "last": "2024-07-04"}, {"first": "2025-01-01", "last": "2024-12-31"}],
    )


def _in_year(rng: random.Random) -> ToolVariant:
    month, begin = rng.choice([("January", 1), ("March", 3), ("April", 4), ("July", 7), ("October", 10)])
    name, what, code = rng.choice(
        [
            ("day", "the number of the day in its year, where 1 {0} is day 1", "(at - begin).days + 1"),
            (
                "week",
                "the number of the week in its year, where the first seven days from 1 {0} on are week 1",
                "(at - begin).days // 7 + 1",
            ),
            (
                "days_left",
                "how many days of its year come after it",
                "(datetime.date(begin.year + 1, begin.month, 1) - at).days - 1",
            ),
        ]
    )
    what = what.format(month)
    return ToolVariant(
        name=f"{name}_in_year_from_{month.lower()}",
        args={"day": "str"},
        returns="int",
        does=(
            f"For years that begin on 1 {month}, return {what}.",
            f"Years run from 1 {month} to the day before the next 1 {month}. Give {what}.",
            f"Let every year start on 1 {month}; the answer for a date is {what}.",
        ),
        behaviour=["The date is written YYYY-MM-DD (Gregorian calendar)."],
        body=f"{_IMPORTS}{_READ}begin = datetime.date(at.year - (at.month < {begin}), {begin}, 1)\nreturn {code}",
        draw={"day": _DATE},
        edges=[f"2024-{begin:02d}-01", f"2023-{begin:02d}-02", f"2023-{begin:02d}-08", "2024-02-29", "2024-12-31"],
        raises=_NO_DATE,
        errors=_NO_DATES,
    )


def _from_number(rng: random.Random) -> ToolVariant:
    epoch = rng.choice(["1970-01-01", "2000-03-01", "1900-01-01", "1858-11-17", "1980-01-06"])
    name, what, code = rng.choice(
        [
            ("plain", "written YYYY-MM-DD", "str(at)"),
            ("dotted", "written DD.MM.YYYY", "at.strftime('%d.%m.%Y')"),
            ("slashes", "written MM/DD/YYYY", "at.strftime('%m/%d/%Y')"),
            (
                "weekday",
                'written YYYY-MM-DD, then a blank and the weekday as one of "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", '
                '"Sun"',
                "f\"{at} {'Mon Tue Wed Thu Fri Sat Sun'.split()[at.weekday()]}\"",
            ),
        ]
    )
    return ToolVariant(
        name=f"day_number_since_{epoch.replace('-', '_')}_{name}",
        args={"number": "int"},
        returns="str",
        does=(
            f"Return the date of a day number, {what}; {epoch} is day 0.",
            f"Count number days on from {epoch} and return that date, {what}.",
            f"Give the date that is number days after {epoch}, {what}.",
        ),
        behaviour=["Negative numbers lead to dates before that one."],
        body=(
            "import datetime\n\n"
            "if abs(number) > 90000:\n    raise ValueError('too far away')\n"
            f"at = datetime.date.fromisoformat({epoch!r}) + datetime.timedelta(days=number)\nreturn {code}"
        ),
        draw={"number": {"kind": "integer", "low": -30000, "high": 60000, "edges": [0, 1, -1, 365]}},
        edges=[0, 59, -1, 90000, -90000],
        raises="number is greater than 90000 or less than -90000",
        errors=[90001, -90001, 10**9],
    )


FAMILY = Family(
    name="calendar_days",
    subject="days of the calendar",
    tools=(
        ToolTemplate(level=1, make=_shift),
        ToolTemplate(level=3, make=_shift_months),
        ToolTemplate(level=2, make=_weekday),
        ToolTemplate(level=3, make=_working_days),
        ToolTemplate(level=2, make=_in_year),
        ToolTemplate(level=1, make=_from_number),
    ),
)
