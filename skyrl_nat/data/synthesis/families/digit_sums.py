"""Sums and other sizes made of a number's digits."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_NUMBER = {
    "kind": "one_of",
    "of": [
        {"kind": "integer", "low": -99, "high": 999, "edges": [0]},
        {"kind": "integer", "low": 1000, "high": 99999999},
    ],
}
_LONG = {
    "kind": "one_of",
    "of": [{"kind": "integer", "low": 10, "high": 9999}, {"kind": "integer", "low": -99999999, "high": 99999999}],
}
_NO_SIGN = "The sign of the number is ignored."


def _chosen_digits(rng: random.Random) -> ToolVariant:
    name, which, test = rng.choice(
        [
            ("odd", "that are odd", "int(c) % 2 == 1"),
            ("even", "that are even", "int(c) % 2 == 0"),
            ("small", "that are at most 4", "int(c) <= 4"),
            ("large", "that are at least 5", "int(c) >= 5"),
            ("prime", "that are 2, 3, 5 or 7", "int(c) in (2, 3, 5, 7)"),
            ("first_and_last", "that equal the first or the last digit of the number", "c in (text[0], text[-1])"),
        ]
    )
    stat, what, code = rng.choice(
        [
            ("sum", "the sum of the digits {0}", "int(c)"),
            ("square_sum", "the sum of the squares of the digits {0}", "int(c) ** 2"),
            ("successor_sum", "the sum of all digits {0}, each first made larger by 1", "int(c) + 1"),
        ]
    )
    what = what.format(which)
    return ToolVariant(
        name=f"{stat}_of_{name}_digits",
        args={"number": "int"},
        returns="int",
        does=(
            f"Return {what}.",
            f"Write the number in decimal and give {what}.",
            f"Look at every decimal digit of the number; the answer is {what}.",
        ),
        behaviour=[_NO_SIGN, "A digit that occurs several times counts each time.", "A sum of nothing is 0."],
        body=f"text = str(abs(number))\nreturn sum({code} for c in text if {test})",
        draw={"number": _LONG},
        edges=[0, 4, 5, 1234567890, -248, 13579, 7007, 9154],
        laws=[{"kind": "even"}],
    )


def _repeated(rng: random.Random) -> ToolVariant:
    times = rng.choice([2, 3, 4])
    name, what, code = rng.choice(
        [
            ("squares", "squares of its digits", "int(c) ** 2"),
            ("cubes", "cubes of its digits", "int(c) ** 3"),
            ("doubles", "doubles of its digits, each made larger by 7", "int(c) * 2 + 7"),
            ("powers_of_two", "powers of 2 with its digits as exponents", "2 ** int(c)"),
        ]
    )
    return ToolVariant(
        name=f"sum_of_digit_{name}_{times}_times",
        args={"number": "int"},
        returns="int",
        does=(
            f"Do {times} times: replace the number by the sum of the {what}. Return what comes out.",
            f"Start with the number and step {times} times to the sum of the {what}; return the number reached.",
            f"Apply f {times} times, where f(n) is for a number n the sum of the {what}, and return the last result.",
        ),
        behaviour=[_NO_SIGN, "Digits are decimal, and 0 has one digit."],
        body=(
            f"number = abs(number)\nfor _ in range({times}):\n"
            f"    number = sum({code} for c in str(number))\n"
            "return number"
        ),
        draw={"number": _LONG},
        edges=[0, 1, 7, 10, 199, -25],
        laws=[{"kind": "even"}],
    )


def _check_digit(rng: random.Random) -> ToolVariant:
    weights = rng.choice([(3, 1), (1, 3), (7, 3, 1), (2, 1), (5, 4, 3, 2)])
    modulus = rng.choice([10, 9, 7])
    side, turn = rng.choice([("left", "text"), ("right", "reversed(text)")])
    shown = ", ".join(map(str, weights))
    return ToolVariant(
        name=f"check_digit_{'_'.join(map(str, weights))}_mod_{modulus}_from_{side}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Append a check digit to the text: the smallest digit that, added to the sum of the digits weighted with "
            f"{shown} in turn from the {side}, gives a multiple of {modulus}.",
            f"Multiply the digits, beginning at the {side}, by {shown}, {shown}, ... and add up. Return the text plus "
            f"the digit from 0 to {modulus - 1} that is missing to the next multiple of {modulus}.",
            f"Return the text with one more digit at its end, minus the weighted sum modulo {modulus}, where the "
            f"weights {shown} repeat and the first weight belongs to the digit on the very {side}.",
        ),
        behaviour=[f"The check digit is 0 where the weighted sum is a multiple of {modulus}."],
        body=(
            "if not (text.isascii() and text.isdigit()):\n    raise ValueError('text must be digits')\n"
            f"weights = {weights}\n"
            f"total = sum(int(c) * weights[i % {len(weights)}] for i, c in enumerate({turn}))\n"
            f"return text + str(-total % {modulus})"
        ),
        draw={"text": {"kind": "text", "alphabet": "0123456789", "min": 2, "max": 12}},
        edges=["0", "9", "12345", "98765432109", "0070"],
        raises="the text is empty or has a character other than 0 to 9",
        errors=["", "12a4", "1 2", "-5"],
    )


def _groups(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4])
    name, what, sign = rng.choice(
        [
            ("plain", "sum of the groups", ""),
            ("alternating", "last group minus the one before it plus the one before that, and so on", "(-1) ** i * "),
            ("ranked", "last group times 1 plus the one before it times 2, and so on", "(i + 1) * "),
        ]
    )
    return ToolVariant(
        name=f"{name}_sum_of_groups_of_{size}_digits",
        args={"number": "int"},
        returns="int",
        does=(
            f"Cut the decimal digits of the number from the right into groups of {size} and return the {what}, each "
            "group read as a number.",
            f"Starting at the last digit, take {size} digits at a time as numbers; the answer is the {what}.",
            f"Split the number into blocks of {size} digits, counted from its end, and give this: the {what}.",
        ),
        behaviour=["The first group may be shorter.", _NO_SIGN],
        body=(
            "total, rest = 0, abs(number)\n"
            f"for i in range(len(str(rest))):\n"
            f"    total += {sign}(rest % 10**{size})\n"
            f"    rest //= 10**{size}\n"
            "return total"
        ),
        draw={"number": {"kind": "integer", "low": -9999999, "high": 99999999999}},
        edges=[0, 7, 1001, 123456789012345, -98765, 10**12],
        laws=[{"kind": "even"}],
    )


def _champion(rng: random.Random) -> ToolVariant:
    best_name, best, sign = rng.choice([("largest", "largest", "-"), ("smallest", "smallest", "")])
    tie_name, tie, key = rng.choice(
        [
            ("first", "the one that comes first in the list", ""),
            ("last", "the one that comes last in the list", "-i"),
            ("lesser", "the smallest number", "numbers[i]"),
            ("greater", "the greatest number", "-numbers[i]"),
        ]
    )
    order = f"{sign}sum(map(int, str(abs(numbers[i]))))" + (f", {key}" if key else "")
    return ToolVariant(
        name=f"{best_name}_digit_sum_ties_to_{tie_name}",
        args={"numbers": "list[int]"},
        returns="int",
        does=(
            f"Return the number of the list with the {best} sum of decimal digits.",
            f"Compare the numbers by the sum of their decimal digits and give the one whose sum is {best}.",
            f"Which number of the list has the {best} digit sum? Return the number itself, not the sum.",
        ),
        behaviour=[f"Of several such numbers it is {tie}.", "Digit sums ignore the sign."],
        body=(
            "if not numbers:\n    raise ValueError('the list is empty')\n"
            f"return numbers[min(range(len(numbers)), key=lambda i: ({order}))]"
        ),
        draw={
            "numbers": {
                "kind": "one_of",
                "of": [
                    {"kind": "list", "item": {"kind": "integer", "low": -99, "high": 999}, "min": 2, "max": 7},
                    {
                        "kind": "list",
                        "item": {"kind": "choice", "values": [19, 28, 91, 82, 109, 55, 64, 12, 21, 300, 3, 102, 111]},
                        "min": 3,
                        "max": 7,
                    },
                ],
            }
        },
        edges=[[0], [1, 10, 100], [100, 10, -1], [99, 1, 198, 10, 891], [5, 0, -14], [-12, 3, 21, -30]],
        raises="the list is empty",
        errors=[[], []],
    )


def _weighted(rng: random.Random) -> ToolVariant:
    default, cap = rng.choice([(2, 3), (5, 4), (3, 2), (9, 5)])
    side, turn = rng.choice([("left", "str(abs(number))"), ("right", "reversed(str(abs(number)))")])
    return ToolVariant(
        name=f"digits_times_place_from_{side}_capped_at_{cap}",
        args={"number": "int"},
        returns="int",
        does=(
            f"Multiply each decimal digit of the number by its place, counted from the {side} starting at 1, but by at "
            "most `cap`, and return the sum.",
            f"Return the sum of digit times weight, where the weights are 1, 2, 3, ... from the {side} and weights "
            "above `cap` are replaced by `cap`.",
            f"Add up the digits, each as often as its position from the {side} says (the first is 1), though never "
            "more than `cap` times.",
        ),
        behaviour=[_NO_SIGN],
        body=f"return sum(min(i, config.cap) * int(c) for i, c in enumerate({turn}, 1))",
        draw={"number": _NUMBER},
        edges=[0, 5, 10, 123456789, -9876543210, 1111111],
        options={"cap": Option(type="int", default=default, set=cap)},
        laws=[{"kind": "even"}],
    )


FAMILY = Family(
    name="digit_sums",
    subject="sums of decimal digits",
    tools=(
        ToolTemplate(level=1, make=_chosen_digits),
        ToolTemplate(level=2, make=_repeated),
        ToolTemplate(level=3, make=_check_digit),
        ToolTemplate(level=2, make=_groups),
        ToolTemplate(level=3, make=_champion),
        ToolTemplate(level=1, make=_weighted),
    ),
)
