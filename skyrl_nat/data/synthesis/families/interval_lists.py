"""Lists of intervals of whole numbers."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_CUTS = [("comma", ", "), ("semicolon", "; "), ("bar", " | ")]
_READ = "import re\n\nintervals = [(int(a), int(b)) for a, b in re.findall('([0-9]+)-([0-9]+)', text)]\n"


def _form(cut: str) -> str:
    return (
        f"An interval is written 'a-b', with whole numbers a and b, a never above b, and has both of its ends; '{cut}' "
        "stands between intervals."
    )


def _intervals(cut: str, low: int, high: int) -> dict[str, object]:
    """Return a generator of intervals from 0 to 40."""
    starts = (0, 2, 3, 5, 6, 9, 10, 14, 15, 20, 26, 31)
    values = [f"{a}-{a + length}" for a in starts for length in (0, 1, 2, 3, 5, 8)]
    return {"kind": "words", "values": values, "min": low, "max": high, "separator": cut}


def _merge(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_CUTS)
    name, when, plus = rng.choice(
        [
            ("overlapping", "share a number", ""),
            ("touching", "share a number or have no whole number between them", " + 1"),
            ("nearby", "share a number or have at most two whole numbers between them", " + 3"),
        ]
    )
    return ToolVariant(
        name=f"merge_{name}_intervals_with_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Merge intervals that {when}, also in chains, and return the result in rising order.",
            f"Replace any two intervals that {when} by the smallest one that has both, as long as that is possible; "
            "list what remains by its starts, the lowest first.",
            f"Join the intervals of the text: two become one, from the lower start to the higher end, if they {when}. "
            "Go on until none can be joined, and sort them.",
        ),
        behaviour=[_form(cut), "No interval gives the empty string."],
        body=(
            _READ + "merged = []\n"
            "for a, b in sorted(intervals):\n"
            f"    if merged and a <= merged[-1][1]{plus}:\n"
            "        merged[-1][1] = max(merged[-1][1], b)\n"
            "    else:\n"
            "        merged.append([a, b])\n"
            f"return {cut!r}.join(f'{{a}}-{{b}}' for a, b in merged)"
        ),
        draw={"text": _intervals(cut, 2, 6)},
        edges=[
            "",
            f"5-9{cut}1-5",
            f"1-2{cut}3-4{cut}6-7{cut}10-11{cut}15-16",
            f"1-20{cut}2-3{cut}21-22{cut}24-24",
            "7-7",
        ],
        laws=[{"kind": "idempotent"}],
    )


def _covered(rng: random.Random) -> ToolVariant:
    name, what, test = rng.choice(
        [
            ("any", "at least one interval", ">= 1"),
            ("one", "exactly one interval", "== 1"),
            ("several", "at least two intervals", ">= 2"),
        ]
    )
    ends, rule, stop, sign = rng.choice(
        [
            ("closed", "both a and b belong to it", "b + 1", "<="),
            ("half_open", "a belongs to it, and b does not", "b", "<"),
        ]
    )
    return ToolVariant(
        name=f"numbers_in_{name}_of_{ends}_intervals",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return how many whole numbers lie in {what} of the text.",
            f"Count the different whole numbers that {what} of the text has.",
            f"Lay all intervals on the number line and count those whole numbers which are part of {what}.",
        ),
        behaviour=[
            f"An interval is written 'a-b', with whole numbers a and b, a never above b: {rule}.",
            "Any other characters may stand between intervals.",
            "An interval that is written twice counts as two; no interval gives 0.",
        ],
        body=(
            f"{_READ}cuts = sorted({{n for a, b in intervals for n in (a, {stop})}})\n"
            "total = 0\n"
            "for low, high in zip(cuts, cuts[1:]):\n"
            f"    if len([a for a, b in intervals if a <= low and low {sign} b]) {test}:\n"
            "        total += high - low\n"
            "return total"
        ),
        draw={"text": _intervals(", ", 3, 7)},
        edges=["", "5-9, 1-5", "1-4;3-8;3-3", "7-7", "0-2 0-2", "1-5 and 2-3"],
        laws=[{"kind": "bounds", "low": 0}],
    )


def _gaps(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_CUTS)
    size, number = rng.choice([(1, "one"), (2, "two"), (3, "three"), (4, "four")])
    return ToolVariant(
        name=f"gaps_of_{number}_or_more_with_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the gaps between the intervals that have at least {size} whole numbers, as intervals in rising "
            "order.",
            f"Between the lowest start and the highest end, find all stretches of {size} or more successive whole "
            "numbers that are in no interval; write each, as long as it can be, as an interval, the lowest first.",
            f"List what the intervals leave free between them: longest possible stretches of whole numbers, from left "
            f"to right, without those that have fewer than {size} numbers.",
        ),
        behaviour=[
            _form(cut) + " Gaps are written in the same way.",
            "What lies before the lowest start or behind the highest end is no gap; no gap gives the empty string.",
        ],
        body=(
            _READ + "gaps, reached = [], None\n"
            "for a, b in sorted(intervals):\n"
            f"    if reached is not None and a - reached > {size}:\n"
            "        gaps.append(f'{reached + 1}-{a - 1}')\n"
            "    reached = b if reached is None else max(reached, b)\n"
            f"return {cut!r}.join(gaps)"
        ),
        draw={"text": _intervals(cut, 3, 5)},
        edges=["", f"5-6{cut}1-2", f"1-2{cut}4-5{cut}8-9{cut}13-14{cut}19-20", f"1-20{cut}2-3{cut}22-22{cut}30-31"],
    )


def _clip(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_CUTS)
    (default_low, low), (default_high, high) = rng.choice(
        [((0, 5), (50, 20)), ((0, 10), (50, 30)), ((1, 3), (9, 12)), ((1, 8), (9, 25))]
    )
    return ToolVariant(
        name=f"clip_intervals_to_{low}_and_{high}_with_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            "Return what the intervals have between `low` and `high`, both included: cut each one to these bounds, and "
            "leave out those with nothing between them.",
            "Clip every interval: a start below `low` becomes `low`, an end above `high` becomes `high`; an interval "
            "that lies wholly below `low` or wholly above `high` is dropped.",
            "Give, for each interval in turn, its part from `low` to `high` (these two belong to it), unless that part "
            "has no whole number.",
        ),
        behaviour=[_form(cut), "The order and duplicates stay; nothing left gives the empty string."],
        body=(
            _READ + "clipped = [(max(a, config.low), min(b, config.high)) for a, b in intervals]\n"
            f"return {cut!r}.join(f'{{a}}-{{b}}' for a, b in clipped if a <= b)"
        ),
        draw={"text": _intervals(cut, 2, 5)},
        edges=["", f"0-{low}{cut}{high}-40", f"0-{low - 1}{cut}{high + 1}-60", "0-99", f"{low + 1}-{high - 1}"],
        options={
            "low": Option(type="int", default=default_low, set=low),
            "high": Option(type="int", default=default_high, set=high),
        },
        laws=[{"kind": "idempotent"}],
    )


def _compress(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_CUTS)
    name, single, rule = rng.choice(
        [
            ("short", "f'{a}-{b}' if a < b else str(a)", "A run of one number n is written 'n'."),
            ("always", "f'{a}-{b}'", "A run of one number n is written 'n-n'."),
        ]
    )
    return ToolVariant(
        name=f"number_runs_{name}_with_{mark}",
        args={"numbers": "list[int]"},
        returns="str",
        does=(
            f"Write the different numbers as runs of successive ones: 'first-last' for each run, the lowest first, "
            f"with '{cut}' between runs.",
            f"Sort the numbers, group those that follow each other without a gap, and return every group as its lowest "
            f"and its highest number with '-' between; '{cut}' separates the groups.",
            f"Compress the list to the fewest intervals 'a-b' that have exactly its numbers, in rising order, joined "
            f"by '{cut}'.",
        ),
        behaviour=[rule, "Duplicates count once; an empty list gives the empty string; no number is negative."],
        body=(
            "runs = []\n"
            "for n in sorted(set(numbers)):\n"
            "    if runs and n == runs[-1][1] + 1:\n"
            "        runs[-1][1] = n\n"
            "    else:\n"
            "        runs.append([n, n])\n"
            f"return {cut!r}.join({single} for a, b in runs)"
        ),
        draw={"numbers": {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 12}, "min": 2, "max": 9}},
        edges=[[], [7], [3, 1, 2, 5, 7, 6, 3], [10, 9, 100, 99, 98]],
        laws=[{"kind": "permutation_invariant"}],
    )


def _longest(rng: random.Random) -> ToolVariant:
    name, size, count, code = rng.choice(
        [("longest", "largest", "most", "max"), ("shortest", "smallest", "fewest", "min")]
    )
    ties, rule, start = rng.choice(
        [
            ("first", "the one that is written first", ","),
            ("lowest", "the one with the lowest start", ", -interval[0]" if code == "max" else ", interval[0]"),
        ]
    )
    return ToolVariant(
        name=f"{name}_interval_ties_{ties}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the {name} of the intervals in the text.",
            f"Find the interval for which its end minus its start is {size}.",
            f"Of all intervals a-b in the text give the one with the {count} whole numbers from a to b.",
        ),
        behaviour=[
            "An interval is written 'a-b', with whole numbers a and b, a never above b; any other characters may stand "
            "between intervals.",
            f"Of equally long ones {rule} is returned; it is written as 'a-b', without zeros in front of numbers.",
            "No interval gives '0-0'.",
        ],
        body=(
            _READ
            + f"a, b = {code}(intervals, key=lambda interval: (interval[1] - interval[0]{start}), default=(0, 0))\n"
            "return f'{a}-{b}'"
        ),
        draw={"text": _intervals(", ", 2, 5)},
        edges=["", "none", "8-9, 1-2 and 4-5", "03-7;1-5", "10-12, 2-4, 1-1, 30-30"],
    )


FAMILY = Family(
    name="interval_lists",
    subject="lists of intervals",
    tools=(
        ToolTemplate(level=3, make=_merge),
        ToolTemplate(level=2, make=_covered),
        ToolTemplate(level=3, make=_gaps),
        ToolTemplate(level=2, make=_clip),
        ToolTemplate(level=2, make=_compress),
        ToolTemplate(level=1, make=_longest),
    ),
)
