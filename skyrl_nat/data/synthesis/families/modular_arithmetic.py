"""Arithmetic with remainders."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_NUMBER = {"kind": "integer", "low": -500, "high": 3000, "edges": [0, 1]}
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _polynomial(rng: random.Random) -> ToolVariant:
    modulus = rng.choice([11, 13, 17, 19, 23, 29])
    name, what, code = rng.choice(
        [
            ("square_plus_1", "n**2 + 1", "n**2 + 1"),
            ("cube", "n**3", "n**3"),
            ("square_minus_n", "n**2 - n", "n**2 - n"),
            ("power_5_plus_n", "n**5 + n", "n**5 + n"),
            ("line", "7 * n - 3", "7 * n - 3"),
        ]
    )
    side, where, shape = rng.choice(
        [
            ("remainder", f"from 0 to {modulus - 1}", "({0}) % {1}"),
            ("centred", f"from -{modulus // 2} to {modulus // 2}", "({0} + {2}) % {1} - {2}"),
        ]
    )
    return ToolVariant(
        name=f"{side}_of_{name}_mod_{modulus}",
        args={"n": "int"},
        returns="int",
        does=(
            f"Return the number {where} that leaves the same remainder modulo {modulus} as {what}.",
            f"Reduce {what} modulo {modulus} to the range {where}.",
            f"Of the numbers {where}, give the one that differs from {what} by a multiple of {modulus}.",
        ),
        behaviour=["n may be zero or negative."],
        body=f"return {shape.format(code, modulus, modulus // 2)}",
        draw={"n": _NUMBER},
        edges=[0, 1, -1, 2, modulus, modulus // 2, 3, 5, 1000],
        laws=[{"kind": "bounds", "low": 0 if side == "remainder" else -(modulus // 2), "high": modulus - 1}],
    )


def _clock(rng: random.Random) -> ToolVariant:
    start = rng.choice([(8, 30), (13, 45), (22, 10), (0, 5)])
    name, what, sign = rng.choice([("after", "later", "+"), ("before", "earlier", "-")])
    shape, rule, code = rng.choice(
        [
            ("24_hours", "as hours from 00 to 23, ':' and minutes, both with two digits", "f'{hour:02d}:{minute:02d}'"),
            (
                "12_hours",
                "as hours from 1 to 12 without leading zero, ':', two digits of minutes, a blank and 'am' before noon "
                "or 'pm' from noon on",
                "f'{(hour - 1) % 12 + 1}:{minute:02d} ' + ('am' if hour < 12 else 'pm')",
            ),
        ]
    )
    shown = f"{start[0]:02d}:{start[1]:02d}"
    return ToolVariant(
        name=f"time_{name}_{start[0]}_{start[1]:02d}_in_{shape}",
        args={"minutes": "int"},
        returns="str",
        does=(
            f"Return the time of day {what} than {shown} by the given number of minutes, written {rule}.",
            f"The clock shows {shown}. What does it show when it is that many minutes {what}? Write it {rule}.",
            f"Compute the time that is the given minutes {what} than {shown} on a day of 24 hours, written {rule}.",
        ),
        behaviour=["Days are not counted, and negative minutes go the other way."],
        body=(f"hour, minute = divmod(({start[0] * 60 + start[1]} {sign} minutes) % 1440, 60)\nreturn {code}"),
        draw={"minutes": {"kind": "integer", "low": -2000, "high": 6000, "edges": [0, 60, 1440]}},
        edges=[0, 1, 60, 720, 1439, 1440, -600, 210, 90],
    )


def _weekday(rng: random.Random) -> ToolVariant:
    start = rng.randrange(7)
    step = rng.choice([1, 2, 3])
    letters, form, shown = rng.choice(
        [
            (2, "2_letters", "the first two letters of its name"),
            (3, "3_letters", "the first three letters of its name"),
            (9, "full", "its name"),
        ]
    )
    each = {1: "every day", 2: "every second day", 3: "every third day"}[step]
    days = tuple(day[:letters] for day in _DAYS[start:] + _DAYS[:start])
    return ToolVariant(
        name=f"{_DAYS[start].lower()}_plus_n_times_{step}_days_{form}",
        args={"n": "int"},
        returns="str",
        does=(
            f"Day 0 is a {_DAYS[start]}. Return {shown}, in English, for the weekday {step} * n days later.",
            f"Something happens {each}, for the first time on a {_DAYS[start]} (n = 0). On which weekday does it "
            f"happen for n? Give {shown}.",
            f"Count n steps of {step} {'day' if step == 1 else 'days'} from a {_DAYS[start]} and give the English "
            f"weekday reached, as {shown}.",
        ),
        behaviour=["A negative n goes back in time.", "The name begins with a capital letter, the rest is small."],
        body=f"days = {days}\nreturn days[{f'{step} * n' if step > 1 else 'n'} % 7]",
        draw={"n": {"kind": "integer", "low": -60, "high": 400, "edges": [0]}},
        edges=[0, 1, 2, 3, 4, 5, 6, 7, -1],
    )


def _inverse(rng: random.Random) -> ToolVariant:
    default, modulus = rng.choice([(7, 26), (10, 15), (12, 20), (9, 30), (5, 21)])
    name, what, test = rng.choice(
        [
            ("inverse", "n * x leaves remainder 1", "n * x % config.modulus == 1"),
            ("negative_inverse", "n * x + 1 leaves remainder 0", "(n * x + 1) % config.modulus == 0"),
            ("double_inverse", "n * x leaves remainder 2", "n * x % config.modulus == 2"),
        ]
    )
    return ToolVariant(
        name=f"{name}_of_n_mod_{modulus}",
        args={"n": "int"},
        returns="int",
        does=(
            f"Return the smallest x from 1 to `modulus` - 1 such that, modulo `modulus`, {what}; if there is none, "
            "return 0.",
            f"Try x = 1, 2, 3, ... below `modulus` and give the first for which {what} (divided by `modulus`); give 0 "
            "where none does it.",
            f"Find the least positive x below `modulus` for which {what} on division by `modulus`. Without such an x "
            "the answer is 0.",
        ),
        behaviour=["Remainders are never negative, also for a negative n."],
        body=(f"for x in range(1, config.modulus):\n    if {test}:\n        return x\nreturn 0"),
        draw={
            "n": {
                "kind": "one_of",
                "of": [
                    {
                        "kind": "choice",
                        "values": [n for n in range(-60, 200) if all(modulus % p or n % p for p in (2, 3, 5, 7, 13))],
                    },
                    {"kind": "integer", "low": -40, "high": 200},
                ],
            }
        },
        edges=[0, 1, -1, 2, 3, modulus - 1, modulus, modulus + 1, 7, 11],
        options={"modulus": Option(type="int", default=default, set=modulus)},
        laws=[{"kind": "bounds", "low": 0, "high": modulus - 1}],
    )


def _orbit(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("number", "how many different numbers occur", "len(seen)"),
            ("sum", "the sum of the different numbers that occur", "sum(seen)"),
            ("end", "the last number that has not occurred before", "seen[-1]"),
        ]
    )
    rule_name, rule, modulus = rng.choice(
        [
            ("square_plus_6", "x * x + 6", 59),
            ("square_plus_5", "x * x + 5", 73),
            ("square_plus_2", "x * x + 2", 86),
            ("square_plus_3", "x * x + 3", 62),
            ("square_plus_x_plus_4", "x * x + x + 4", 43),
            ("square_plus_x_plus_4", "x * x + x + 4", 73),
            ("square_plus_x_plus_4", "x * x + x + 4", 97),
        ]
    )
    return ToolVariant(
        name=f"orbit_{name}_of_{rule_name}_mod_{modulus}",
        args={"n": "int"},
        returns="int",
        does=(
            f"Start with x = n modulo {modulus} and replace x by ({rule}) modulo {modulus} until a number comes a "
            f"second time. Return {what}.",
            f"Take the remainders x, f(x), f(f(x)), ... with x = n and f(x) = {rule}, all modulo {modulus}. They "
            f"repeat at some point; give {what}.",
            f"Follow the orbit of n (reduced modulo {modulus}) under the map x -> {rule} modulo {modulus} up to the "
            f"first repetition, and give {what}.",
        ),
        behaviour=[f"Remainders are from 0 to {modulus - 1}, and the first one, that of n, counts too."],
        body=(
            f"x, seen = n % {modulus}, []\n"
            f"for _ in range({modulus}):\n"
            "    if x not in seen:\n"
            "        seen.append(x)\n"
            f"        x = ({rule}) % {modulus}\n"
            f"return {code}"
        ),
        draw={"n": {"kind": "integer", "low": -100, "high": 900, "edges": [0, 1]}},
        edges=[0, 1, 2, 3, 10, -1, modulus, modulus - 1],
    )


def _remainders(rng: random.Random) -> ToolVariant:
    moduli = rng.choice([(3, 5, 7), (4, 5, 9), (2, 7, 11), (5, 8, 9)])
    total = moduli[0] * moduli[1] * moduli[2]
    name, what, values = rng.choice(
        [
            ("smallest", "smallest number that is not negative", f"range({total})"),
            ("largest", f"largest number below {total}", f"range({total - 1}, -1, -1)"),
            ("second", "second smallest number that is not negative", f"range({total}, {2 * total})"),
        ]
    )
    shown = ", ".join(map(str, moduli))
    return ToolVariant(
        name=f"{name}_with_remainders_mod_{'_'.join(map(str, moduli))}",
        args={"remainders": "list[int]"},
        returns="int",
        does=(
            f"Return the {what} that leaves these three remainders on division by {shown}, in this order.",
            f"Find the {what} that is congruent to the three given numbers modulo {shown} respectively.",
            f"Solve x % m == r for the moduli m = {shown} and the given remainders r at the same places; the answer is "
            f"the {what}.",
        ),
        body=(
            f"moduli = {moduli}\n"
            "if len(remainders) != 3 or any(not 0 <= r < m for r, m in zip(remainders, moduli)):\n"
            "    raise ValueError('three remainders below their moduli are needed')\n"
            f"for x in {values}:\n"
            "    if all(x % m == r for m, r in zip(moduli, remainders)):\n"
            "        return x"
        ),
        draw={
            "remainders": {
                "kind": "choice",
                "values": [[x % m for m in moduli] for x in range(0, total, 1 + total // 60)],
            }
        },
        edges=[[0, 0, 0], [1, 1, 1], [m - 1 for m in moduli], [0, 1, 2], [1, 0, 3]],
        raises="there are not exactly three remainders, or one is negative or not below its modulus",
        errors=[[], [1, 1], [moduli[0], 0, 0], [0, 0, -1], [0, moduli[1], 1], [0, 0, 0, 0]],
    )


def _ring(rng: random.Random) -> ToolVariant:
    size = rng.choice([12, 24, 60, 360])
    name, what, code = rng.choice(
        [
            (
                "shortest_way",
                "the number of steps on the shorter way from start to end",
                "min((end - start) % {0}, (start - end) % {0})",
            ),
            ("forward_way", "the number of steps forward from start to end", "(end - start) % {0}"),
            (
                "signed_way",
                "the steps on the shorter way from start to end, negative if it goes backward; if both ways are "
                "equally long, it goes forward",
                "{1} - ({1} + start - end) % {0}",
            ),
            (
                "longest_way",
                "the number of steps on the longer way from start to end",
                "max((end - start) % {0}, (start - end) % {0})",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_on_ring_of_{size}",
        args={"start": "int", "end": "int"},
        returns="int",
        does=(
            f"On a ring with the places 0 to {size - 1}, where 0 follows {size - 1}, return {what}.",
            f"A dial has {size} marks, numbered from 0, and goes round. Give {what}.",
            f"Count modulo {size} and return {what}, where a step forward adds 1.",
        ),
        behaviour=[
            f"Places outside 0 to {size - 1} are taken modulo {size} first.",
            "If start and end are the same place the answer is 0.",
        ],
        body=f"return {code.format(size, size // 2)}",
        draw={key: {"kind": "integer", "low": -size // 2, "high": 2 * size} for key in ("start", "end")},
        edges=[
            {"start": 0, "end": size // 2},
            {"start": size // 2, "end": 0},
            {"start": 1, "end": size - 1},
            {"start": 5, "end": 5},
            {"start": size - 2, "end": 3},
        ],
    )


FAMILY = Family(
    name="modular_arithmetic",
    subject="arithmetic with remainders",
    tools=(
        ToolTemplate(level=1, make=_polynomial),
        ToolTemplate(level=2, make=_clock),
        ToolTemplate(level=1, make=_weekday),
        ToolTemplate(level=2, make=_inverse),
        ToolTemplate(level=3, make=_orbit),
        ToolTemplate(level=3, make=_remainders),
        ToolTemplate(level=1, make=_ring),
    ),
)
