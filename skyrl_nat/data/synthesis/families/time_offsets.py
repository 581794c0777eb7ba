"""Offsets from UTC."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_DAY = {
    "year": {"kind": "choice", "values": ["2019", "2023", "2024", "2025", "2000"]},
    "month": {"kind": "choice", "values": [f"{month:02d}" for month in range(1, 13)]},
    "day": {"kind": "choice", "values": ["01", "05", "10", "15", "27", "28"]},
    "hour": {"kind": "choice", "values": [f"{hour:02d}" for hour in range(24)]},
    "minute": {"kind": "choice", "values": ["00", "01", "15", "30", "45", "59"]},
}
_STAMP = {"kind": "template", "pattern": "{year}-{month}-{day}T{hour}:{minute}", "parts": _DAY}
_NO_STAMPS = ["", "2024-02-30T10:00", "2024-05-01", "2024-05-01 10:00", "2024-05-01T24:30", "noon"]


def _offset(minutes: int) -> str:
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"


def _local(rng: random.Random) -> ToolVariant:
    minutes = rng.choice([330, 345, 60, 570, -210, -300, -480, 765])
    where = f"{'plus' if minutes > 0 else 'minus'}_{abs(minutes)}"
    name, given, wanted, verb, sign = rng.choice(
        [("utc_to_local", "UTC", "local time", "add", "+"), ("local_to_utc", "local time", "UTC", "subtract", "-")]
    )
    return ToolVariant(
        name=f"{name}_{where}_minutes",
        args={"moment": "str"},
        returns="str",
        does=(
            f"Convert a moment from {given} to {wanted}; local time is UTC plus `offset` minutes.",
            f"The moment is in {given}: {verb} `offset` minutes {'to' if sign == '+' else 'from'} it to get {wanted}, "
            "and return that.",
            f"Return the {wanted} for a moment in {given}, where clocks show `offset` minutes more than UTC (less, if "
            "`offset` is negative).",
        ),
        behaviour=["Moments are written YYYY-MM-DDTHH:MM, without seconds, in the argument and in the answer."],
        body=(
            "import datetime\nimport re\n\n"
            "if not re.fullmatch('[0-9-]{10}T[0-9]{2}:[0-9]{2}', moment):\n    raise ValueError('no moment')\n"
            f"at = datetime.datetime.fromisoformat(moment) {sign} datetime.timedelta(minutes=config.offset)\n"
            "return at.isoformat(timespec='minutes')"
        ),
        draw={"moment": _STAMP},
        edges=["2024-02-28T23:50", "2023-12-31T22:30", "2024-03-01T00:10", "2024-01-01T00:00"],
        raises="moment is not a real date and time written YYYY-MM-DDTHH:MM",
        errors=_NO_STAMPS,
        options={"offset": Option(type="int", default=0, set=minutes)},
    )


def _to_zone(rng: random.Random) -> ToolVariant:
    minutes = rng.choice([0, 60, 120, -300, -420, 330, 570])
    where = {0: "utc"}.get(minutes, f"{'plus' if minutes > 0 else 'minus'}_{abs(minutes)}_minutes")
    end_name, end = rng.choice([("z", "Z"), ("word", " UTC")]) if minutes == 0 else ("offset", _offset(minutes))
    zone = "UTC" if minutes == 0 else f"the offset {end}"
    target = "datetime.timezone.utc" if minutes == 0 else f"datetime.timezone(datetime.timedelta(minutes={minutes}))"
    return ToolVariant(
        name=f"same_instant_at_{where}_{end_name}",
        args={"moment": "str"},
        returns="str",
        does=(
            f'Return the same instant in {zone}, written YYYY-MM-DDTHH:MM and "{end}".',
            f'Convert a moment that has an offset from UTC to {zone}; the answer is YYYY-MM-DDTHH:MM with "{end}" '
            "behind it.",
            f"Which date and time are there in {zone} at that instant: return it as YYYY-MM-DDTHH:MM, followed by "
            f'"{end}".',
        ),
        behaviour=[
            "A moment is YYYY-MM-DDTHH:MM and its offset from UTC: Z (none), or + or -, two digits of hours, ':' and "
            "two digits of minutes.",
            "With +02:00, clocks show two hours more than UTC.",
        ],
        body=(
            "import datetime\nimport re\n\n"
            "if not re.fullmatch('[0-9-]{10}T[0-9]{2}:[0-9]{2}(Z|[+-][0-9]{2}:[0-9]{2})', moment):\n"
            "    raise ValueError('no moment')\n"
            f"at = datetime.datetime.fromisoformat(moment).astimezone({target})\n"
            f"return at.strftime('%Y-%m-%dT%H:%M{end}')"
        ),
        draw={
            "moment": {
                "kind": "template",
                "pattern": "{year}-{month}-{day}T{hour}:{minute}{offset}",
                "parts": {
                    **_DAY,
                    "offset": {
                        "kind": "choice",
                        "values": ["Z", "+00:00", "+05:30", "-03:30", "+09:00", "-08:00", "+14:00", _offset(minutes)],
                    },
                },
            }
        },
        edges=["2024-02-28T23:50-10:00", "2023-12-31T22:30-05:00", "2024-03-01T00:10+02:00", "2024-01-01T00:00Z"],
        raises="moment is not a real date and time with an offset, of that form",
        errors=["", "2024-05-01T10:00", "2024-13-01T10:00Z", "2024-05-01T10:00+0200", "2024-05-01T10:00+2", "now"],
        laws=[{"kind": "idempotent"}] if end_name != "word" else [],
    )


def _read(rng: random.Random) -> ToolVariant:
    prefix = rng.choice(["UTC", "GMT"])
    unit, factor = rng.choice([("minutes", 1), ("seconds", 60)])
    side, wording, positive = rng.choice(
        [
            ("east", "Plus is east: clocks show more than UTC, and the answer is positive.", "-"),
            ("west", "The sign is to be turned round, as in POSIX: plus is west, and the answer is negative.", "+"),
        ]
    )
    size = f"(int(found[2] or 0) * 60 + int(found[3] or 0)){f' * {factor}' if factor > 1 else ''}"
    return ToolVariant(
        name=f"{unit}_of_{prefix.lower()}_offset_plus_{side}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the offset that text such as '{prefix}+5:30' says, in {unit}.",
            f"Read '{prefix}-3', '{prefix}+05:45' or '{prefix}' as an offset and give the number of its {unit}.",
            f"Convert an offset written '{prefix}', sign, hours and maybe ':' and minutes to {unit}.",
        ),
        behaviour=[
            f"The text is {prefix} alone, which is 0, or {prefix}, a sign (+ or -), one or two digits of hours, and "
            "maybe ':' and two digits of minutes.",
            wording,
        ],
        body=(
            "import re\n\n"
            f"found = re.fullmatch('{prefix}(?:([+-])([0-9]{{1,2}})(?::([0-9]{{2}}))?)?', text)\n"
            "if not found:\n    raise ValueError('no offset')\n"
            f"size = {size}\n"
            f"return -size if found[1] == '{positive}' else size"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": prefix + "{sign}{hour}{minute}",
                "parts": {
                    "sign": {"kind": "choice", "values": ["+", "-"]},
                    "hour": {"kind": "choice", "values": ["0", "1", "03", "05", "9", "10", "12", "14"]},
                    "minute": {"kind": "choice", "values": ["", "", ":00", ":30", ":45", ":15"]},
                },
            }
        },
        edges=[prefix, f"{prefix}+0", f"{prefix}-0:30", f"{prefix}+5:30", f"{prefix}-11"],
        raises="the text is not of that form",
        errors=["", f"{prefix}5", f"{prefix}+5:3", f"{prefix}+123", f"{prefix.lower()}+1", "+05:30"],
    )


def _write(rng: random.Random) -> ToolVariant:
    unit, size = rng.choice([("minutes", 1), ("seconds", 60)])
    name, what, code = rng.choice(
        [
            ("colon", "sign, two digits of hours, ':', two digits of minutes", "f'{sign}{hours:02d}:{rest:02d}'"),
            ("compact", "sign and four digits, two of hours and two of minutes", "f'{sign}{hours:02d}{rest:02d}'"),
            (
                "named",
                "UTC, sign, hours without leading zero, and, if there are any, ':' and two digits of minutes",
                "f'UTC{sign}{hours}' + (f':{rest:02d}' if rest else '')",
            ),
        ]
    )
    zero_name, zero = rng.choice([("z", "Z"), ("word", "UTC"), ("plus", "")])
    whole = f"abs({unit}) // {size}" if size > 1 else f"abs({unit})"
    zero_rule = f"A zero offset is written {zero}." if zero else "A zero offset has the sign +."
    cut = " Seconds beyond whole minutes are dropped, whatever the sign." if size > 1 else ""
    return ToolVariant(
        name=f"offset_of_{unit}_as_{name}_zero_{zero_name}",
        args={unit: "int"},
        returns="str",
        does=(
            f"Write an offset from UTC, given in {unit}, as {what}.",
            f"Return the text of an offset of so many {unit}: {what}.",
            f"Format {unit} ahead of UTC (behind it, if negative) in this manner: {what}.",
        ),
        behaviour=[f"The sign is + or -.{cut}", zero_rule, "Hours may be more than 23."],
        body=(
            f"hours, rest = divmod({whole}, 60)\n"
            + (f"if hours == rest == 0:\n    return {zero!r}\n" if zero else "")
            + f"sign = '-' if {unit} <= -{size} else '+'\n"
            + f"return {code}"
        ),
        draw={
            unit: {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -900 * size, "high": 900 * size, "edges": [0]},
                    {"kind": "choice", "values": [size * minutes for minutes in (60, -180, 330, -210, 540, -45)]},
                ],
            }
        },
        edges=[0, 60 * size, -60 * size, size, -size, 825 * size, -5 * size, 1500 * size, -1, -59, 59],
    )


def _longitude(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            (
                "nearest_east",
                "the nearest whole number, of two equally near ones the greater",
                "floor((east + 7.5) / 15)",
            ),
            (
                "nearest_west",
                "the nearest whole number, of two equally near ones the smaller",
                "ceil((east - 7.5) / 15)",
            ),
            ("rounded_down", "the greatest whole number that is not more", "floor(east / 15)"),
            ("toward_zero", "the whole number next to it on the side of zero", "trunc(east / 15)"),
        ]
    )
    unit, factor = rng.choice([("hours", 1), ("minutes", 60)])
    times = f" * {factor}" if factor > 1 else ""
    return ToolVariant(
        name=f"zone_{unit}_of_longitude_{name}",
        args={"longitude": "float"},
        returns="int",
        does=(
            f"Return the offset in {unit} of the time zone at a longitude: degrees divided by 15 are hours, of "
            f"which {what} is taken.",
            f"Time zones are 15 degrees wide. Divide the longitude by 15, make it whole hours, namely {what}, and "
            f"return that in {unit}.",
            f"Of longitude / 15 take {what}; these hours the zone is ahead of UTC. Give them in {unit}.",
        ),
        behaviour=[
            "First the longitude is brought into the range from -180 (included) to 180 (not included) by adding or "
            "subtracting multiples of 360: 190 is -170, and 180 is -180.",
            "East is positive.",
        ],
        body=f"import math\n\neast = (longitude + 180) % 360 - 180\nreturn math.{code}{times}",
        draw={
            "longitude": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -400.0, "high": 400.0, "digits": 2},
                    {"kind": "choice", "values": [7.5 * step for step in (-23, -9, -5, -1, 1, 3, 4, 11, 21, 25, -25)]},
                ],
            }
        },
        edges=[0.0, 7.5, -7.5, 22.5, 180.0, -180.0, 179.9, 366.0, -14.0, 16.0, 8.0, 7.0, -8.0, -7.0, 187.6, -195.5],
        laws=[{"kind": "bounds", "low": -12 * factor, "high": 12 * factor}],
    )


_RULES = {
    "march_october": ("the last Sunday of March", "the last Sunday of October", (3, 25), (10, 25)),
    "march_november": ("the second Sunday of March", "the first Sunday of November", (3, 8), (11, 1)),
    "april_october": ("the first Sunday of April", "the last Sunday of October", (4, 1), (10, 25)),
}
_CHANGES = {
    "march_october": ["2024-03-31", "2024-10-27", "2018-03-25", "2020-10-25"],
    "march_november": ["2024-03-10", "2024-11-03", "2020-03-08", "2020-11-01"],
    "april_october": ["2024-04-07", "2024-10-27", "2018-04-01", "2020-10-25"],
}


def _summer(rng: random.Random) -> ToolVariant:
    rule = rng.choice(list(_RULES))
    begin, end, first, last = _RULES[rule]
    days = _CHANGES[rule]
    hours = rng.choice([1, 2, 3, -5, -7])
    change = rng.choice([1, 7])
    where = f"{'plus' if hours > 0 else 'minus'}_{abs(hours)}"
    offset = f"{hours:+d} hour{'s' if abs(hours) > 1 else ''}"
    return ToolVariant(
        name=f"summer_time_{rule}_{where}_change_at_{change}",
        args={"moment": "str"},
        returns="str",
        does=(
            f"Convert a moment in UTC to local time, which is UTC {offset}, and one hour more in summer time: from "
            f"{begin}, 0{change}:00 UTC, until {end}, 0{change}:00 UTC.",
            f"Summer time begins on {begin} at 0{change}:00 UTC and ends on {end} at 0{change}:00 UTC; during it, "
            f"clocks are one hour ahead of standard time (UTC {offset}). Return the local time for a moment in UTC.",
            f"Return what local clocks show at the given moment of UTC. They show UTC {offset}, but one hour more from "
            f"{begin} to {end}, where both changes are at 0{change}:00 UTC.",
        ),
        behaviour=[
            "Moments are valid and written YYYY-MM-DDTHH:MM, in the argument and in the answer.",
            f"At 0{change}:00 UTC of the first of these days summer time holds, at 0{change}:00 UTC of the last one it "
            "does not.",
        ],
        body=(
            "import datetime\nimport re\n\n"
            "if not re.fullmatch('[0-9-]{10}T[0-9]{2}:[0-9]{2}', moment):\n    raise ValueError('no moment')\n"
            "at = datetime.datetime.fromisoformat(moment)\n\n"
            "def sunday_from(month: int, day: int) -> datetime.datetime:\n"
            f"    start = datetime.datetime(at.year, month, day, {change})\n"
            "    return start + datetime.timedelta(days=6 - start.weekday())\n\n"
            f"summer = sunday_from{first} <= at < sunday_from{last}\n"
            f"return (at + datetime.timedelta(hours={hours} + summer)).isoformat(timespec='minutes')"
        ),
        draw={
            "moment": {
                "kind": "template",
                "pattern": "{year}-{month}-{day}T{hour}:{minute}",
                "parts": {
                    **_DAY,
                    "month": {"kind": "choice", "values": ["01", "03", "04", "07", "10", "11", "12"]},
                    "day": {"kind": "choice", "values": ["01", "04", "07", "10", "14", "25", "27", "30"]},
                },
            }
        },
        edges=[
            *(f"{day}T0{change}:00" for day in days),
            *(f"{day}T0{change - 1}:59" for day in days),
            "2024-12-31T23:30",
            "2024-01-01T00:30",
        ],
        raises="moment is not a real date and time written YYYY-MM-DDTHH:MM",
        errors=_NO_STAMPS,
    )


FAMILY = Family(
    name="time_offsets",
    subject="offsets from UTC",
    tools=(
        ToolTemplate(level=1, make=_local),
        ToolTemplate(level=2, make=_to_zone),
        ToolTemplate(level=2, make=_read),
        ToolTemplate(level=1, make=_write),
        ToolTemplate(level=2, make=_longitude),
        ToolTemplate(level=3, make=_summer),
    ),
)
