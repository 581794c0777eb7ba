"""Times of day."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_HOURS = [f"{hour:02d}" for hour in range(24)]
_MINUTES = [f"{minute:02d}" for minute in range(60)]
_TIME = {
    "kind": "template",
    "pattern": "{hour}:{minute}",
    "parts": {"hour": {"kind": "choice", "values": _HOURS}, "minute": {"kind": "choice", "values": _MINUTES}},
}
_READ = (
    "import re\n\n"
    "if not re.fullmatch('([01][0-9]|2[0-3]):[0-5][0-9]', time):\n    raise ValueError('no time of day')\n"
    "total = int(time[:2]) * 60 + int(time[3:])\n"
)
_NO_TIME = "time is not a time of day written HH:MM, from 00:00 to 23:59"
_NO_TIMES = ["", "24:00", "7:30", "12:60", "12.30", "noon"]


def _from_twelve(rng: random.Random) -> ToolVariant:
    mark, sign = rng.choice([("colon", ":"), ("point", "."), ("h", "h"), ("nothing", "")])
    fallback, what, code = rng.choice(
        [("kept", "is returned unchanged", "text"), ("dashes", 'gives "--"', "'--'"), ("empty", "gives ''", "''")]
    )
    return ToolVariant(
        name=f"clock_of_24_hours_{mark}_others_{fallback}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Turn a time with am or pm into a time of the 24-hour clock, such as "07{sign}05" or "19{sign}05".',
            f'Return the time of a 12-hour clock as two digits of hours (00 to 23), "{sign}", two digits of minutes.'
            if sign
            else "Return the time of a 12-hour clock as four digits: two of hours (00 to 23) and two of minutes.",
            f'Convert text like "7:05 pm" to hours from 00 to 23 and minutes, "19{sign}05".',
        ),
        behaviour=[
            "A time is an hour from 1 to 12 of one or two digits, ':', two digits of minutes, any number of blanks, "
            "and am or pm in either case; white space around it is ignored.",
            "12 am is hour 00, and 12 pm is hour 12.",
            f"Any other text {what}.",
        ],
        body=(
            "import re\n\n"
            "found = re.fullmatch('(1[0-2]|0?[1-9]):([0-5][0-9]) *([ap])m', text.strip().lower())\n"
            f"if not found:\n    return {code}\n"
            "hour = int(found[1]) % 12 + (12 if found[3] == 'p' else 0)\n"
            f"return f'{{hour:02d}}{sign}{{found[2]}}'"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{hour}:{minute}{gap}{half}",
                "parts": {
                    "hour": {"kind": "choice", "values": ["12", "1", "07", "11", "9", "12", "3", "10", "13"]},
                    "minute": {"kind": "choice", "values": ["00", "05", "30", "59", "42"]},
                    "gap": {"kind": "choice", "values": ["", " ", "  "]},
                    "half": {"kind": "choice", "values": ["am", "PM", "pm", "Am", "AM ", "pm"]},
                },
            }
        },
        edges=["12:00 am", "12:30 PM", " 1:00pm", "0:30 am", "13:00 pm", "noon", "", "7:5 am"],
    )


def _move(rng: random.Random) -> ToolVariant:
    minutes = rng.choice([35, 50, 95, 250, 610])
    order, sign = rng.choice([("later", "+"), ("earlier", "-")])
    is_marked = rng.random() < 0.5
    day = {"later": "+1", "earlier": "-1"}[order]
    what = f'followed by " {day}" if it is on another day' if is_marked else "whatever day it is then"
    return ToolVariant(
        name=f"time_{minutes}_minutes_{order}{'_with_day' if is_marked else ''}",
        args={"time": "str"},
        returns="str",
        does=(
            f"Return the time of day that is `minutes` minutes {order}, as HH:MM, {what}.",
            f"Turn the clock {'forward' if sign == '+' else 'back'} by `minutes` minutes and return the time as HH:MM, "
            f"{what}.",
            f"Give the time (HH:MM) `minutes` minutes {'after' if sign == '+' else 'before'} the given one, {what}.",
        ),
        behaviour=["Times are from 00:00 to 23:59; the clock goes on past midnight."],
        body=(
            f"{_READ}days, rest = divmod(total {sign} config.minutes, 1440)\n"
            "moved = f'{rest // 60:02d}:{rest % 60:02d}'\n"
            "return f'{moved} {days:+d}' if days else moved"
            if is_marked
            else f"{_READ}total = (total {sign} config.minutes) % 1440\n"
            "return f'{total // 60:02d}:{total % 60:02d}'"
        ),
        draw={"time": _TIME},
        edges=["00:00", "23:59", "12:00", f"{minutes // 60:02d}:{minutes % 60:02d}", "23:10"],
        raises=_NO_TIME,
        errors=_NO_TIMES,
        options={"minutes": Option(type="int", default=15, set=minutes)},
    )


def _round(rng: random.Random) -> ToolVariant:
    step = rng.choice([10, 12, 20, 30, 60])
    name, what, code = rng.choice(
        [
            ("up", "the first multiple that is not earlier", "-(-total // {0}) * {0}"),
            ("down", "the last multiple that is not later", "total // {0} * {0}"),
            (
                "nearest_ties_later",
                "the nearest multiple, of two equally near ones the later",
                "(total + {1}) // {0} * {0}",
            ),
            (
                "nearest_ties_earlier",
                "the nearest multiple, of two equally near ones the earlier",
                "-(({1} - total) // {0}) * {0}",
            ),
        ]
    )
    half = [f"{at // 60:02d}:{at % 60:02d}" for at in (step // 2, 7 * step - step // 2, 1440 - step // 2)]
    return ToolVariant(
        name=f"time_to_{step}_minutes_{name}",
        args={"time": "str"},
        returns="str",
        does=(
            f"Round the time of day to a multiple of {step} minutes since midnight: {what}.",
            f"Of the times that are a multiple of {step} minutes after 00:00, return {what}.",
            f"Return the time in steps of {step} minutes, counted from midnight; it is {what}.",
        ),
        behaviour=["Times are written HH:MM.", "Midnight at the end of the day is 00:00."],
        body=(
            f"{_READ}total = {code.format(step, step // 2)} % 1440\nreturn f'{{total // 60:02d}}:{{total % 60:02d}}'"
        ),
        draw={"time": {"kind": "one_of", "of": [_TIME, _TIME, {"kind": "choice", "values": half}]}},
        edges=["00:00", "23:59", "23:15", "12:01", f"13:{step % 60:02d}", *half],
        raises=_NO_TIME,
        errors=_NO_TIMES,
        laws=[{"kind": "idempotent"}],
    )


def _hands(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            (
                "smaller_angle",
                "the smaller angle between the two hands, from 0 to 180 degrees",
                "min((short - long) % 360, (long - short) % 360)",
            ),
            (
                "larger_angle",
                "the larger angle between the two hands, from 180 to 360 degrees (360 where one is on the other)",
                "360 - min((short - long) % 360, (long - short) % 360)",
            ),
            (
                "from_hour_hand",
                "by how many degrees (0 to less than 360) the minute hand is ahead of the hour hand, clockwise",
                "(long - short) % 360",
            ),
            (
                "from_minute_hand",
                "by how many degrees (0 to less than 360) the hour hand is ahead of the minute hand, clockwise",
                "(short - long) % 360",
            ),
        ]
    )
    kind, motion, short = rng.choice(
        [
            ("creeping", "The hour hand moves on steadily, half a degree per minute.", "total / 2"),
            ("jumping", "The hour hand stands still for an hour and jumps on by 30 degrees.", "total // 60 * 30"),
        ]
    )
    return ToolVariant(
        name=f"{name}_{kind}",
        args={"time": "str"},
        returns="float",
        does=(
            f"For a clock face with 12 hours, return {what}.",
            f"Return {what}, on a round clock of 12 hours at this time.",
            f"Look at the hands of a 12-hour clock at the given time and give {what}.",
        ),
        behaviour=[
            motion,
            "The minute hand moves by 6 degrees per minute; both hands point up at 00:00.",
            "The time is written HH:MM.",
        ],
        body=f"{_READ}short, long = {short} % 360, total % 60 * 6\nreturn float({code})",
        draw={"time": _TIME},
        edges=["00:00", "06:00", "03:00", "09:00", "12:30", "23:59"],
        raises=_NO_TIME,
        errors=_NO_TIMES,
        laws=[{"kind": "bounds", "low": 0, "high": 360}],
    )


def _worked(rng: random.Random) -> ToolVariant:
    pause = rng.choice([15, 20, 30, 45, 60])
    limit = rng.choice([240, 360, 480])
    same, what, code = rng.choice([("zero", "0 minutes", ""), ("a_day", "24 hours", " or 1440")])
    return ToolVariant(
        name=f"shift_minutes_pause_{pause}_over_{limit}_same_{same}",
        args={"start": "str", "end": "str"},
        returns="int",
        does=(
            f"Return the minutes of work in a shift from start to end; shifts of more than {limit} minutes have a "
            "pause of `pause` minutes, which is not work.",
            f"Count the minutes from start to end, and subtract `pause` if there are more than {limit}.",
            f"Give the minutes worked from start to end, where `pause` minutes are taken off whenever the whole time "
            f"is longer than {limit} minutes.",
        ),
        behaviour=[
            "Times are written HH:MM, from 00:00 to 23:59; an end that is earlier than the start is on the next day.",
            f"If both are the same, there are {what} from start to end.",
        ],
        body=(
            "first, last = [int(time[:2]) * 60 + int(time[3:]) for time in (start, end)]\n"
            f"span = (last - first) % 1440{code}\n"
            f"return span - config.pause if span > {limit} else span"
        ),
        draw={"start": _TIME, "end": _TIME},
        edges=[
            {"start": "08:00", "end": f"{8 + limit // 60:02d}:00"},
            {"start": "08:00", "end": f"{8 + limit // 60:02d}:01"},
            {"start": "09:30", "end": "09:30"},
            {"start": "22:00", "end": "00:15"},
            {"start": "00:00", "end": "23:59"},
        ],
        options={"pause": Option(type="int", default=10, set=pause)},
    )


def _from_number(rng: random.Random) -> ToolVariant:
    begin_name, begin = rng.choice([("midnight", 0), ("noon", 720), ("six", 360), ("18_30", 1110)])
    name, what, code = rng.choice(
        [
            ("colon", "HH:MM, from 00:00 to 23:59", "f'{minute // 60:02d}:{minute % 60:02d}'"),
            (
                "h",
                'hours without leading zero, "h", two digits of minutes, such as "7h05"',
                "f'{minute // 60}h{minute % 60:02d}'",
            ),
            (
                "am_pm",
                'on the 12-hour clock, such as "12:05 am" or "7:30 pm" (no leading zero)',
                "f\"{minute // 60 % 12 or 12}:{minute % 60:02d} {'am' if minute < 720 else 'pm'}\"",
            ),
        ]
    )
    begins = f"{begin // 60:02d}:{begin % 60:02d}"
    start = f"(number + {begin})" if begin else "number"
    return ToolVariant(
        name=f"minute_since_{begin_name}_as_{name}",
        args={"number": "int"},
        returns="str",
        does=(
            f"Return the time of day number minutes after {begins}, written {what}.",
            f"Minute 0 is {begins}. Write the time of the given minute: {what}.",
            f"Start at {begins}, go on by number minutes, and return the time of day, {what}.",
        ),
        behaviour=["Negative numbers go back in time.", "The clock goes on past midnight, any number of days."],
        body=f"minute = {start} % 1440\nreturn {code}",
        draw={"number": {"kind": "integer", "low": -2000, "high": 5000, "edges": [0, -1, 720, 1440]}},
        edges=[0, 5, 719, 720, 1439, 1440, -30, 65],
    )


FAMILY = Family(
    name="clock_times",
    subject="times of day",
    tools=(
        ToolTemplate(level=2, make=_from_twelve),
        ToolTemplate(level=2, make=_move),
        ToolTemplate(level=2, make=_round),
        ToolTemplate(level=3, make=_hands),
        ToolTemplate(level=2, make=_worked),
        ToolTemplate(level=1, make=_from_number),
    ),
)
