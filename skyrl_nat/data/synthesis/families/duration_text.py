"""Durations written as text."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_SECONDS = {
    "kind": "one_of",
    "of": [
        {"kind": "integer", "low": -4000, "high": 9000, "edges": [0, 60, 3600, -61]},
        {"kind": "integer", "low": 3600, "high": 400000, "edges": [86400, 7200, 90061]},
        {"kind": "choice", "values": [604800, 694861, 1209605, 86460, 172801, 3661, -90000]},
    ],
}
_UNITS = {
    "w": (604800, "week", "weeks"),
    "d": (86400, "day", "days"),
    "h": (3600, "hour", "hours"),
    "m": (60, "minute", "minutes"),
    "s": (1, "second", "seconds"),
}


def _spell(rng: random.Random) -> ToolVariant:
    letters = rng.choice(["wdhms", "dhms", "hms"])
    most = rng.choice([2, 3]) if letters != "hms" else 2
    glue_name, glue = rng.choice([("blank", " "), ("comma", ", "), ("and", " and ")])
    style = rng.choice(["letters", "words"])
    units = [(_UNITS[letter][0], letter if style == "letters" else _UNITS[letter][1]) for letter in letters]
    part = "f'{rest // size}{unit}'" if style == "letters" else "f\"{rest // size} {unit}{'s' * (rest // size > 1)}\""
    sizes = ", ".join(f"{_UNITS[letter][2]}{f' ({letter})' if style == 'letters' else ''}" for letter in letters)
    zero = {"letters": "0s", "words": "0 seconds"}[style]
    sample = {"letters": f"1h{glue}5s", "words": f"1 hour{glue}5 seconds"}[style]
    return ToolVariant(
        name=f"spell_{letters}_as_{style}_up_to_{most}_{glue_name}",
        args={"seconds": "int"},
        returns="str",
        does=(
            f'Write a number of seconds in {sizes}, such as "{sample}", with at most `parts` parts.',
            f"Split the seconds into {sizes}, the largest first, leave out what is zero, keep the first `parts` of the "
            f'others, and join them: "{sample}".',
            f'Return text like "{sample}" for a duration in seconds: its {sizes}, as many as fit into each, without '
            "zeros, cut to `parts` parts.",
        ),
        behaviour=[
            f'Parts have "{glue}" between them; parts that are not zero count, and smaller ones are dropped without '
            "rounding.",
            f'Zero is "{zero}", and a negative duration is written like the positive one with "-" in front.',
        ],
        body=(
            "rest, parts = abs(seconds), []\n"
            f"for size, unit in {units}:\n"
            "    if rest >= size:\n"
            f"        parts.append({part})\n"
            "        rest %= size\n"
            f"text = {glue!r}.join(parts[: config.parts]) or {zero!r}\n"
            "return '-' + text if seconds < 0 else text"
        ),
        draw={"seconds": _SECONDS},
        edges=[0, -1, 60, 3600, 86400, 604800, 694861, 1296122, 59],
        options={"parts": Option(type="int", default=5, set=most)},
    )


def _read(rng: random.Random) -> ToolVariant:
    letters, unit = rng.choice([("dhms", "s"), ("hms", "s"), ("dhm", "m"), ("wdh", "h"), ("wd", "d")])
    order, wording = rng.choice([("signed", "One '-' in front makes the whole duration negative."), ("plain", "")])
    sizes = {letter: _UNITS[letter][0] // _UNITS[unit][0] for letter in letters}
    listed = ", ".join(f"{letter} ({_UNITS[letter][2]})" for letter in letters)
    sign = "-?" if order == "signed" else ""
    total = f"sum(int(number) * sizes[unit] for number, unit in re.findall('([0-9]+)([{letters}])', text))"
    result = f"total = {total}\nreturn -total if text[0] == '-' else total" if sign else f"return {total}"
    parts = [f"{number}{letter}{gap}" for letter in letters for number in ("1", "3", "08", "75") for gap in ("", " ")]
    return ToolVariant(
        name=f"{_UNITS[unit][2]}_in_{letters}_text_{order}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Read a duration such as '1{letters[0]} 30{letters[1]}' and return it in {_UNITS[unit][2]}.",
            f"Return how many {_UNITS[unit][2]} the parts of the text, such as '2{letters[1]}' and '1{letters[0]}', "
            "make up together.",
            f"Convert text like '3{letters[0]}12{letters[1]}' to a number of {_UNITS[unit][2]}, adding up its parts.",
        ),
        behaviour=[
            f"A part is a whole number and one of the letters {listed}; blanks may follow it.",
            "Parts may come in any order and repeatedly, and their numbers may be of any size.",
            *([wording] if wording else []),
        ],
        body=(
            "import re\n\n"
            f"if not re.fullmatch('{sign}([0-9]+[{letters}] *)+', text):\n    raise ValueError('no duration')\n"
            f"sizes = {sizes}\n{result}"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{sign}{parts}",
                "parts": {
                    "sign": {"kind": "choice", "values": ["", "-"] if sign else [""]},
                    "parts": {"kind": "words", "values": parts, "min": 1, "max": 3, "separator": ""},
                },
            }
        },
        edges=[f"1{letter}" for letter in letters]
        + [f"0{letters[-1]}", f"2{letters[1]}1{letters[0]}", f"1{letters[0]}  1{letters[1]} 1{letters[0]}"],
        raises="the text is not made of one or more such parts",
        errors=["", "5", f"1{letters[0]}x", "3y", f"1.5{letters[0]}", f" 1{letters[0]}"],
    )


def _iso(rng: random.Random) -> ToolVariant:
    unit, factor = rng.choice([("seconds", 1), ("minutes", 60)])
    has_days = rng.random() < 0.5
    zero = rng.choice(["PT0S", "P0D", "PT0M"])
    days = "Days are whole, of 24 hours each." if has_days else "Days are not used, so hours may be more than 23."
    size = 86400 // factor
    hours = f"{unit} % {size} // {3600 // factor}" if has_days else f"{unit} // {3600 // factor}"
    parts = f"({hours}, 'H'), ({unit} // 60 % 60, 'M'), ({unit} % 60, 'S')"
    parts = parts if factor == 1 else f"({hours}, 'H'), ({unit} % 60, 'M')"
    date = f"date = f'{{{unit} // {size}}}D' if {unit} >= {size} else ''\n" if has_days else ""
    text = "'P' + date + ('T' + time if time else '')" if has_days else "'PT' + time"
    example = "P1DT2H5M" if has_days else "PT26H5M"
    return ToolVariant(
        name=f"iso_duration_of_{unit}_{'days' if has_days else 'hours'}_zero_{zero.lower()}",
        args={unit: "int"},
        returns="str",
        does=(
            f"Write a number of {unit} as an ISO 8601 duration, such as {example}.",
            f"Return the ISO 8601 text of a duration in {unit}, in the manner of {example}.",
            f"Turn {unit} into a duration like {example}, in the notation of ISO 8601.",
        ),
        behaviour=[
            days,
            "As many of the larger units are used as possible; what is zero is left out, and so is T where nothing "
            "follows it.",
            f"A duration of zero is {zero}.",
        ],
        body=(
            f"if {unit} < 0:\n    raise ValueError('{unit} must not be negative')\n"
            f"if {unit} == 0:\n    return {zero!r}\n"
            f"{date}time = ''.join(f'{{count}}{{letter}}' for count, letter in [{parts}] if count)\n"
            f"return {text}"
        ),
        draw={
            unit: {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": 0, "high": 3 * size, "edges": [0, 60, size]},
                    {"kind": "choice", "values": [size // 24, size, size + 60, 2 * size, 59, size + size // 24]},
                ],
            }
        },
        edges=[0, 1, 59, 60, 61, size - 1, size, size + 1, 2 * size + size // 24],
        raises=f"{unit} is negative",
        errors=[-1, -3600],
    )


def _read_colons(rng: random.Random) -> ToolVariant:
    unit, size = rng.choice([("days", 86400), ("hours", 3600), ("minutes", 60)])
    digits = rng.choice([2, 3, 4])
    return ToolVariant(
        name=f"{unit}_of_colon_text_{digits}_digits",
        args={"text": "str"},
        returns="float",
        does=(
            f"Read a duration written S, M:SS or H:MM:SS and return it in {unit}.",
            f"Return the number of {unit} in text of hours, minutes and seconds with ':' between, where hours, or "
            "hours and minutes, may be missing.",
            f"Convert text such as '95', '3:20' (minutes and seconds) or '2:03:20' (with hours) to {unit}.",
        ),
        behaviour=[
            f"The number of seconds is divided by {size} and rounded to {digits} digits by Python's round.",
            "The first number may have any number of digits and any size; minutes and seconds after a ':' have two "
            "digits, from 00 to 59.",
        ],
        body=(
            "import re\n\n"
            "if not re.fullmatch('[0-9]+(:[0-5][0-9]){0,2}', text):\n    raise ValueError('no duration')\n"
            "total = 0\n"
            "for part in text.split(':'):\n"
            "    total = total * 60 + int(part)\n"
            f"return round(total / {size}, {digits})"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{first}{more}",
                "parts": {
                    "first": {"kind": "integer", "low": 0, "high": 200},
                    "more": {
                        "kind": "choice",
                        "values": ["", ":00", ":07", ":30:00", ":45:59", ":59", ":05:20", ":33:33"],
                    },
                },
            }
        },
        edges=["3600", "1:00:00", "60:00", "100:30", "07:05", "25:10:10"],
        raises="the text is not a duration written S, M:SS or H:MM:SS",
        errors=["", "1:5", "1:60", "1:00:00:00", "-3:00", "1h", "1:"],
    )


def _compact(rng: random.Random) -> ToolVariant:
    digits = rng.choice([1, 2])
    least = rng.choice([1.5, 2.0, 3.0, 10.0])
    style, minute = rng.choice([("short", ["s", "min", "h", "d"]), ("long", ["seconds", "minutes", "hours", "days"])])
    small, *larger = minute
    listed = ", ".join(larger)
    return ToolVariant(
        name=f"compact_duration_{style}_{digits}_digits_from_{int(10 * least)}_tenths",
        args={"seconds": "float"},
        returns="str",
        does=(
            f"Write a duration in the largest of {listed} that there are at least `least` of, else in {small}, with "
            f'{digits} decimals and a blank before the unit: "{5:.{digits}f} {small}".',
            f'Return the seconds as text like "{5:.{digits}f} {larger[0]}" ({digits} decimals), in the largest unit '
            f"of {small}, {listed} of which there are `least` or more; where none is, in {small}.",
            f"Choose the unit: {small}, or the largest of {listed} in which the duration is `least` or more. Return "
            f"the number with {digits} decimals, a blank, and the unit.",
        ),
        behaviour=[
            "A minute has 60 seconds, an hour 3600, a day 86400.",
            "For a negative duration, its value without the sign decides on the unit.",
            f"The number is seconds / size, written by Python's format type '.{digits}f'.",
        ],
        body=(
            f"size, unit = 1, {small!r}\n"
            f"for larger, name in [(60, {larger[0]!r}), (3600, {larger[1]!r}), (86400, {larger[2]!r})]:\n"
            "    if abs(seconds) >= config.least * larger:\n"
            "        size, unit = larger, name\n"
            f"return f'{{seconds / size:.{digits}f}} {{unit}}'"
        ),
        draw={
            "seconds": {
                "kind": "one_of",
                "of": [
                    {"kind": "number", "low": -400.0, "high": 2000.0, "digits": 2},
                    {"kind": "number", "low": 1000.0, "high": 90000.0, "digits": 1},
                    {"kind": "number", "low": -2e6, "high": 2e6, "digits": 0},
                ],
            }
        },
        edges=[0.0, -1.0, *(least * size for size in (60, 3600, 86400)), least * 3600 - 0.5, -5e6],
        options={"least": Option(type="float", default=1.0, set=least)},
    )


def _laps(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("sum", "the sum of the lap times", "sum(seconds)"),
            ("mean", "the mean lap time, rounded down to whole seconds", "sum(seconds) // len(seconds)"),
            ("spread", "the slowest lap time minus the fastest", "max(seconds) - min(seconds)"),
            ("slowest_two", "the sum of the two slowest lap times (of one lap, its time)", "sum(sorted(seconds)[-2:])"),
        ]
    )
    style, form, write = rng.choice(
        [
            ("minutes", "M:SS (minutes may be more than 59)", "f'{result // 60}:{result % 60:02d}'"),
            ("hours", "H:MM:SS", "f'{result // 3600}:{result // 60 % 60:02d}:{result % 60:02d}'"),
            (
                "marks",
                "minutes, ', two digits of seconds, and \", such as 3'05\"",
                "f'{result // 60}\\'{result % 60:02d}\"'",
            ),
        ]
    )
    return ToolVariant(
        name=f"lap_times_{name}_in_{style}",
        args={"laps": "list[str]"},
        returns="str",
        does=(
            f"Return {what}, written {form}; laps are written M:SS.",
            f"From lap times such as '3:07' (minutes and seconds), compute {what}, and write it as {form}.",
            f"Give {what} as {form}, for a list of times in minutes and seconds like '12:40'.",
        ),
        behaviour=["Every lap is valid: one or more digits of minutes, ':', two digits of seconds from 00 to 59."],
        body=(
            "if not laps:\n    raise ValueError('no laps')\n"
            "pairs = [lap.split(':') for lap in laps]\n"
            "seconds = [int(minute) * 60 + int(second) for minute, second in pairs]\n"
            f"result = {code}\nreturn {write}"
        ),
        draw={
            "laps": {
                "kind": "list",
                "item": {
                    "kind": "template",
                    "pattern": "{minute}:{second}",
                    "parts": {
                        "minute": {"kind": "integer", "low": 0, "high": 59},
                        "second": {"kind": "choice", "values": ["00", "05", "17", "30", "48", "59"]},
                    },
                },
                "min": 2,
                "max": 5,
            }
        },
        edges=[["0:00"], ["59:59", "0:01"], ["1:10", "1:10", "1:11"], ["70:00", "2:05", "61:30"]],
        raises="laps is empty",
        errors=[[], []],
        laws=[{"kind": "permutation_invariant"}],
    )


FAMILY = Family(
    name="duration_text",
    subject="durations written as text",
    tools=(
        ToolTemplate(level=3, make=_spell),
        ToolTemplate(level=2, make=_read),
        ToolTemplate(level=3, make=_iso),
        ToolTemplate(level=1, make=_read_colons),
        ToolTemplate(level=2, make=_compact),
        ToolTemplate(level=2, make=_laps),
    ),
)
