"""Divisors and prime factors of whole numbers."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_RICH = [1, 12, 16, 18, 24, 30, 36, 45, 48, 50, 54, 60, 64, 72, 75, 81, 90, 96, 100, 120, 144, 180, 210, 225, 360, 420]
_NUMBER = {
    "kind": "one_of",
    "of": [{"kind": "integer", "low": 1, "high": 500}, {"kind": "choice", "values": _RICH}],
}
_FACTORS = (
    "primes = [p for p in range(2, n + 1) if all(p % d for d in range(2, p))]\n"
    "factors = [p for p in primes for k in range(1, n.bit_length()) if n % p**k == 0]\n"
)
_REFUSE = "if n < 2:\n    raise ValueError('n must be at least 2')\n"


def _divisors(rng: random.Random) -> ToolVariant:
    stat, how, code = rng.choice([("number", "how many there are", "len"), ("sum", "their sum", "sum")])
    name, what, test = rng.choice(
        [
            ("all", "positive divisors", ""),
            ("odd", "odd positive divisors", " if d % 2 == 1"),
            ("even", "even positive divisors", " if d % 2 == 0"),
            ("proper", "positive divisors below n itself", " if d < n"),
            ("one_digit", "positive divisors below 10", " if d < 10"),
            ("two_digit", "positive divisors from 10 to 99", " if 10 <= d < 100"),
        ]
    )
    return ToolVariant(
        name=f"{stat}_of_{name}_divisors",
        args={"n": "int"},
        returns="int",
        does=(
            f"Find the {what} of n and return {how}.",
            f"Of all whole numbers that divide n without a remainder, take the {what} and give {how}.",
            f"List the {what} of n; the answer is {how}.",
        ),
        behaviour=["If n is below 1 the answer is 0, and it is 0 where there are no such divisors."],
        body=(
            "import math\n"
            "if n < 1:\n    return 0\n"
            "small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]\n"
            "divisors = {*small, *(n // d for d in small)}\n"
            f"return {code}([d for d in divisors{test}])"
        ),
        draw={"n": {"kind": "one_of", "of": [_NUMBER, {"kind": "choice", "values": _RICH}]}},
        edges=[1, 2, 4, 10, 13, 99, 100, 360, 0, -12],
        laws=[{"kind": "bounds", "low": 0}],
    )


def _factor_list(rng: random.Random) -> ToolVariant:
    order, word, turn = rng.choice([("ascending", "smallest", ""), ("descending", "largest", ", reverse=True")])
    name, what, code = rng.choice(
        [
            ("prime_factors", "prime factors of n, each as often as it divides n", "factors"),
            ("different_prime_factors", "different prime factors of n, each once", "set(factors)"),
            (
                "repeated_prime_factors",
                "prime factors that divide n at least twice, each once",
                "{p for p in factors if factors.count(p) > 1}",
            ),
            (
                "prime_powers",
                "highest powers of primes that divide n, one for each prime that does, as plain numbers",
                "{p ** factors.count(p) for p in factors}",
            ),
        ]
    )
    squares = [4 * 9 * k for k in (1, 2, 3, 5, 7)] + [k * k * 5 for k in (2, 3, 6, 7, 10, 14, 15)] + [50, 98, 147, 242]
    return ToolVariant(
        name=f"{order}_{name}",
        args={"n": "int"},
        returns="list[int]",
        does=(
            f"Return the {what}, {word} first.",
            f"Split n into primes and list the {what}, in {order} order.",
            f"Make a list that begins with the {word} and holds the {what}.",
        ),
        behaviour=["A prime n is its own only prime factor."],
        body=f"{_REFUSE}{_FACTORS}return sorted({code}{turn})",
        draw={
            "n": {"kind": "one_of", "of": [_NUMBER, {"kind": "choice", "values": squares}]}
            if "rep" in name
            else _NUMBER
        },
        edges=[2, 3, 4, 12, 36, 97, 343, 720],
        raises="n is below 2",
        errors=[1, 0, -6],
    )


def _factor_text(rng: random.Random) -> ToolVariant:
    joint_name, joint = rng.choice([("star", "*"), ("x", " x "), ("dot", "."), ("times", " times ")])
    power_name, power = rng.choice([("caret", "^"), ("double_star", "**"), ("e", "e")])
    return ToolVariant(
        name=f"factors_with_{joint_name}_and_{power_name}",
        args={"n": "int"},
        returns="str",
        does=(
            f"Write n as a product of powers of primes, smallest prime first, with '{joint}' between the powers and "
            f"'{power}' between prime and exponent.",
            f"Return the prime factorisation of n as text: each prime, '{power}' and its exponent, joined by '{joint}' "
            "in ascending order of the primes.",
            f"Factor n into primes. Every different prime is written once, followed by '{power}' and how often it "
            f"divides n; '{joint}' separates them and the smallest comes first.",
        ),
        behaviour=[f"An exponent of 1 is left out, and the '{power}' before it too."],
        body=(
            f"{_REFUSE}{_FACTORS}powers = [(p, factors.count(p)) for p in sorted(set(factors))]\n"
            f"return {joint!r}.join(f'{{p}}{power}{{k}}' if k > 1 else str(p) for p, k in powers)"
        ),
        draw={
            "n": _NUMBER | {"of": [{"kind": "integer", "low": 2, "high": 900}, {"kind": "choice", "values": _RICH[1:]}]}
        },
        edges=[2, 8, 12, 97, 1001, 1200],
        raises="n is below 2",
        errors=[1, 0, -8],
    )


_SPECIAL = [
    (
        "product_of_three_primes",
        "the product of three primes, some or all of which may be equal",
        "len(factors) == 3",
        [8, 12, 18, 20, 27, 28, 30, 42, 44, 45, 50, 52, 63, 66, 68, 70, 75, 76, 78, 92, 98, 99, 102, 105, 110, 125],
    ),
    (
        "powerful",
        "above 1 and divisible by the square of each of its prime factors",
        "n > 1 and all(factors.count(p) > 1 for p in factors)",
        [4, 8, 9, 16, 25, 27, 32, 36, 49, 64, 72, 81, 100, 108, 121, 125, 128, 144, 169, 196, 200, 216, 225, 243, 256],
    ),
    (
        "semiprime",
        "the product of two primes, which may be equal",
        "len(factors) == 2",
        [4, 6, 9, 10, 15, 25, 49, 77, 143, 221],
    ),
    (
        "prime_power",
        "a prime or a prime multiplied with itself once or more often",
        "len(set(factors)) == 1",
        [2, 4, 5, 8, 9, 16, 27, 49, 64, 81, 125, 169, 243],
    ),
    (
        "balanced_in_primes",
        "positive and its prime factors, counted as often as they occur, are even in number",
        "n > 0 and len(factors) % 2 == 0",
        [1, 4, 6, 9, 16, 24, 36, 40, 81, 100, 210],
    ),
]
"""Name, words, code, and numbers that are rare otherwise."""


def _is_special(rng: random.Random) -> ToolVariant:
    name, what, code, rare = rng.choice(_SPECIAL)
    return ToolVariant(
        name=f"is_{name}",
        args={"n": "int"},
        returns="bool",
        does=(
            f"Return whether n is {what}.",
            f"Say True if n is {what}, else False.",
            f"Test a whole number n: the answer is True exactly when it is {what}.",
        ),
        behaviour=["Zero and negative numbers give False."],
        body=f"{_FACTORS}return {code}",
        draw={
            "n": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -3, "high": 150},
                    {"kind": "integer", "low": 2, "high": 400},
                    *[{"kind": "choice", "values": rare}] * (2 if len(rare) > 20 else 1),
                ],
            }
        },
        edges=[-7, 0, 1, 2, 3, 4, 6, 8, 9, 12, 25, 60, 27, 30],
    )


def _prime_below(rng: random.Random) -> ToolVariant:
    limit_name, limit, start = rng.choice([("up_to", "at most n", "n"), ("below", "less than n", "n - 1")])
    name, what, test = rng.choice(
        [
            ("ends_in_1", "whose last digit is 1", "p % 10 == 1"),
            ("ends_in_3", "whose last digit is 3", "p % 10 == 3"),
            ("ends_in_7", "whose last digit is 7", "p % 10 == 7"),
            ("ends_in_9", "whose last digit is 9", "p % 10 == 9"),
            ("is_4k_plus_1", "that leaves remainder 1 when divided by 4", "p % 4 == 1"),
            ("is_4k_plus_3", "that leaves remainder 3 when divided by 4", "p % 4 == 3"),
            ("has_odd_digit_sum", "whose digits have an odd sum", "sum(int(c) for c in str(p)) % 2 == 1"),
        ]
    )
    return ToolVariant(
        name=f"last_prime_{limit_name}_n_that_{name}",
        args={"n": "int"},
        returns="int",
        does=(
            f"Return the largest prime {limit} {what}, or 0 if there is none.",
            f"Go down to find a prime number {limit} {what}; the first one found is the answer, and 0 if none is.",
            f"Among the primes {what}, give the greatest that is {limit}; where none is, give 0.",
        ),
        behaviour=["1 is no prime."],
        body=(
            f"for p in range({start}, 1, -1):\n"
            f"    if {test} and all(p % d for d in range(2, p)):\n"
            "        return p\n"
            "return 0"
        ),
        draw={"n": {"kind": "integer", "low": 0, "high": 1500}},
        edges=[0, 2, 3, 5, 6, 7, 8, 11, 13, 19, 23, 29, 31, 121, 169, -5, 841, 4, 14, 24, 12, 32, 20, 30, 18, 38],
        laws=[{"kind": "monotone"}],
    )


def _smooth(rng: random.Random) -> ToolVariant:
    default, bound = rng.choice([(3, 5), (11, 7), (5, 3), (7, 11)])
    name, what, bad, rule, test = rng.choice(
        [
            ("smooth", "have no prime factor above `bound`", "above", "only 1 is left", "rest == 1"),
            (
                "rough",
                "have no prime factor up to `bound`",
                "up to",
                "it is unchanged",
                "number > 0 and rest == number",
            ),
        ]
    )
    item = {
        "kind": "one_of",
        "of": [
            {"kind": "integer", "low": 1, "high": 150},
            {"kind": "choice", "values": [*_RICH, 13, 17, 22, 33, 49, 77, 121]},
            {"kind": "choice", "values": [1, 11, 13, 17, 19, 23, 49, 121, 143, 169]},
        ],
    }
    return ToolVariant(
        name=f"keep_{bound}_{name}_numbers",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Keep only the numbers that {what}, in their order.",
            f"Return the list without the numbers that have a prime factor {bad} `bound`.",
            "Filter the list: a number stays if, once it is divided by every whole number from 2 to `bound` as often "
            f"as that leaves no remainder, {rule}.",
        ),
        behaviour=["Numbers below 1 are dropped, and 1 stays: it has no prime factors."],
        body=(
            "kept = []\n"
            "for number in numbers:\n"
            "    rest = number\n"
            "    for p in range(2, config.bound + 1):\n"
            "        for _ in range(number.bit_length()):\n"
            "            rest = rest // p if rest % p == 0 else rest\n"
            f"    if {test}:\n"
            "        kept.append(number)\n"
            "return kept"
        ),
        draw={"numbers": {"kind": "list", "item": item, "min": 4, "max": 9}},
        edges=[[], [1], [0, -4, 7, 8], [2, 3, 5, 7, 11, 13, 17], [64, 81, 625, 343, 1331], [26, 4, 169, 2]],
        options={"bound": Option(type="int", default=default, set=bound)},
        laws=[{"kind": "idempotent"}],
    )


FAMILY = Family(
    name="divisors_primes",
    subject="divisors and prime numbers",
    tools=(
        ToolTemplate(level=1, make=_divisors),
        ToolTemplate(level=2, make=_factor_list),
        ToolTemplate(level=3, make=_factor_text),
        ToolTemplate(level=2, make=_is_special),
        ToolTemplate(level=2, make=_prime_below),
        ToolTemplate(level=3, make=_smooth),
    ),
)
