"""Sequences of whole numbers."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_TERMS = {"kind": "list", "item": {"kind": "integer", "low": -9, "high": 30}, "min": 4, "max": 8}
_AHEAD = {1: "one", 2: "two", 3: "three"}


def _recurrence(rng: random.Random) -> ToolVariant:
    p, q = rng.choice([(1, 1), (2, 1), (1, 2), (3, -1), (1, 3)])
    first, second = rng.choice([(0, 1), (2, 1), (1, 3), (3, 2)])
    shown = f"{p} * a(n - 1) {'+' if q > 0 else '-'} {abs(q)} * a(n - 2)"
    return ToolVariant(
        name=f"recurrence_{p}_{'minus_' if q < 0 else ''}{abs(q)}_from_{first}_{second}",
        args={"n": "int"},
        returns="int",
        does=(
            f"Return a(n) of the sequence with a(0) = {first}, a(1) = {second} and a(n) = {shown} after that.",
            f"A sequence starts with {first}, {second}, and its further terms are a(n) = {shown}. Return the term with "
            "index n, where the first one has index 0.",
            f"Compute a(n), given a(0) = {first}, a(1) = {second} and the rule a(n) = {shown} for n > 1.",
        ),
        body=(
            "if n < 0:\n    raise ValueError('n must not be negative')\n"
            f"a, b = {first}, {second}\n"
            "for _ in range(n):\n"
            f"    a, b = b, {p} * b {'+' if q > 0 else '-'} {abs(q)} * a\n"
            "return a"
        ),
        draw={"n": {"kind": "integer", "low": 0, "high": 37}},
        edges=[0, 1, 2, 3, 10, 17, 25, 31, 36],
        raises="n is negative",
        errors=[-1, -8],
    )


def _figurate(rng: random.Random) -> ToolVariant:
    sides, name = rng.choice(
        [(3, "triangular"), (5, "pentagonal"), (6, "hexagonal"), (7, "heptagonal"), (8, "octagonal")]
    )
    kind, formula, code = rng.choice(
        [
            (
                "",
                f"(({sides} - 2) * n * n - ({sides} - 4) * n) / 2",
                f"(({sides} - 2) * n * n - ({sides} - 4) * n) // 2",
            ),
            ("centred_", f"{sides} * n * (n - 1) / 2 + 1", f"{sides} * n * (n - 1) // 2 + 1"),
        ]
    )
    title = f"{kind.replace('_', ' ')}{name}"
    return ToolVariant(
        name=f"{kind}{name}_number",
        args={"n": "int"},
        returns="int",
        does=(
            f"Return the {title} number with index n, which is {formula}.",
            f"Evaluate the formula {formula} of the {title} numbers for n.",
            f"Give the n-th {title} number by its formula, {formula}.",
        ),
        behaviour=["The formula holds for zero and negative n too.", "The result is always whole, and an int."],
        body=f"return {code}",
        draw={"n": {"kind": "integer", "low": -20, "high": 200, "edges": [0, 1, 2]}},
        edges=[0, 1, 2, 3, -1, 10],
    )


def _orbit(rng: random.Random) -> ToolVariant:
    default, limit = rng.choice([(10, 25), (50, 30), (100, 20), (15, 40)])
    rule_name, rule, step = rng.choice(
        [
            ("halve_or_triple", "halve n if it is even, otherwise 3 * n + 1", "n // 2 if n % 2 == 0 else 3 * n + 1"),
            (
                "third_or_double",
                "divide n by 3 if that is whole, otherwise 2 * n + 1",
                "n // 3 if n % 3 == 0 else 2 * n + 1",
            ),
            ("halve_or_add_five", "halve n if it is even, otherwise n + 5", "n // 2 if n % 2 == 0 else n + 5"),
            ("third_or_add_four", "divide n by 3 if that is whole, otherwise n + 4", "n // 3 if n % 3 == 0 else n + 4"),
        ]
    )
    return ToolVariant(
        name=f"orbit_of_{rule_name}_{limit}_steps",
        args={"n": "int"},
        returns="int",
        does=(
            f"Start at n and repeat `limit` times: {rule}. Return the largest number met, n itself included.",
            f"Follow the rule '{rule}' from n for `limit` steps; the answer is the maximum of all numbers on the way, "
            "of n and of the last one.",
            f"Return the highest value among n and the `limit` numbers that follow it, where each next one comes from "
            f"the rule: {rule}.",
        ),
        behaviour=["In the rule, n is the number that was reached last."],
        body=(
            "if n < 1:\n    raise ValueError('n must be positive')\n"
            "top = n\n"
            "for _ in range(config.limit):\n"
            f"    n = {step}\n"
            "    top = max(top, n)\n"
            "return top"
        ),
        draw={"n": {"kind": "integer", "low": 1, "high": 400}},
        edges=[1, 2, 3, 7, 27, 64, 81],
        raises="n is below 1",
        errors=[0, -3],
        options={"limit": Option(type="int", default=default, set=limit)},
    )


def _differences(rng: random.Random) -> ToolVariant:
    name, what, short, body = rng.choice(
        [
            (
                f"differences_with_lag_{lag}",
                f"each term from the {which} on minus the term {lag} places before it",
                f"no more than {lag} terms",
                f"return [b - a for a, b in zip(terms, terms[{lag}:])]",
            )
            for lag, which in ((1, "second"), (2, "third"), (3, "fourth"))
        ]
        + [
            (
                f"differences_taken_{order}_times",
                f"what is left after taking differences {order} times: each term but the first minus the one before it",
                f"no more than {order} terms",
                f"for _ in range({order}):\n    terms = [b - a for a, b in zip(terms, terms[1:])]\nreturn terms",
            )
            for order in (2, 3)
        ]
        + [
            (
                "differences_around_the_ring",
                "each term minus the one before it, where the last one is taken to be before the first",
                "no terms",
                "return [term - terms[i - 1] for i, term in enumerate(terms)]",
            ),
            (
                "alternating_running_sums",
                "the running sums of the terms, in which the second, fourth, sixth term and so on is subtracted",
                "no terms",
                "sums = []\nfor i in range(len(terms)):\n"
                "    sums.append(sum(t if k % 2 == 0 else -t for k, t in enumerate(terms[: i + 1])))\nreturn sums",
            ),
        ]
    )
    return ToolVariant(
        name=name,
        args={"terms": "list[int]"},
        returns="list[int]",
        does=(
            f"Return a list of {what}.",
            f"From the terms of a sequence make a new one: {what}.",
            f"List {what}, in the order of the terms.",
        ),
        behaviour=[f"The result is empty if there are {short}."],
        body=body,
        draw={"terms": _TERMS},
        edges=[[], [4], [4, 9], [1, 4, 9, 16, 25, 36], [2, 3, 5, 7, 11]],
    )


def _continue(rng: random.Random) -> ToolVariant:
    ahead = rng.choice(list(_AHEAD))
    name, other, fallback = rng.choice(
        [
            ("last", "the last term", "terms[-1]"),
            ("sum", "the sum of all terms", "sum(terms)"),
            ("largest", "the largest term", "max(terms)"),
        ]
    )
    last = {1: "next term", 2: "term after the next one", 3: "third of the terms that follow"}[ahead]
    known = [
        [start + k * step + k * (k - 1) // 2 * bend for k in range(length)]
        for start, step, bend, length in [
            (3, 2, 0, 4),
            (10, -3, 0, 5),
            (0, 7, 0, 3),
            (1, 1, 1, 5),
            (2, 3, 2, 4),
            (5, -1, 3, 5),
            (-4, 6, -1, 6),
            (8, 0, 0, 4),
        ]
    ]
    return ToolVariant(
        name=f"continue_{_AHEAD[ahead]}_ahead_or_{name}",
        args={"terms": "list[int]"},
        returns="int",
        does=(
            f"Continue the sequence and return the {last}: with equal differences of neighbours they stay equal, and "
            f"if instead the differences change by the same amount each time they go on so. Otherwise return {other}.",
            f"If the first or the second differences of the terms are all equal, extend the sequence by that rule and "
            f"give the {last}; for any other sequence give {other}.",
            f"Return the {last} of an arithmetic or quadratic sequence (constant first or second differences), and "
            f"{other} where the terms are neither.",
        ),
        behaviour=["Two terms have equal differences, and of three terms the second differences are always equal."],
        body=(
            "if len(terms) < 2:\n    raise ValueError('two terms are needed')\n"
            "steps = [b - a for a, b in zip(terms, terms[1:])]\n"
            "bends = [b - a for a, b in zip(steps, steps[1:])] or [0]\n"
            "if len(set(bends)) > 1:\n"
            f"    return {fallback}\n"
            f"return terms[-1] + {ahead} * steps[-1] + {ahead * (ahead + 1) // 2} * bends[0]"
        ),
        draw={"terms": {"kind": "one_of", "of": [{"kind": "choice", "values": known}, {**_TERMS, "min": 2, "max": 4}]}},
        edges=[[1, 2], [5, 5, 5], [1, 4, 9], [1, 2, 4, 8], *known[3:6]],
        raises="there are fewer than two terms",
        errors=[[], [7]],
    )


def _circle(rng: random.Random) -> ToolVariant:
    step, nth = rng.choice([(2, "second"), (3, "third"), (4, "fourth"), (5, "fifth"), (7, "seventh")])
    name, which, none, code = rng.choice(
        [
            ("last", "goes last", "If n is below 1 the answer is 0.", "gone[-1]"),
            ("last_but_one", "goes last but one", "If n is below 2 the answer is 0.", "gone[-2:][0]"),
        ]
    )
    return ToolVariant(
        name=f"{name}_to_go_in_circle_of_steps_{step}",
        args={"n": "int"},
        returns="int",
        does=(
            f"The numbers 1 to n stand in a circle. Counting from 1, every time one reaches {step} that number goes "
            f"and the count starts anew with the one after it, until all are gone. Return the number that {which}.",
            f"Put 1 to n in a ring, start at 1 and remove every {nth} number of those that are still there, round and "
            f"round, until the ring is empty. The answer is the number that {which}.",
            f"Play the counting-out game with n players, numbered from 1, where every {nth} player still in the ring "
            f"goes until nobody is left, and return the number of the player that {which}.",
        ),
        behaviour=[none],
        body=(
            "ring, place, gone = list(range(1, n + 1)), 0, [0]\n"
            "for _ in range(n):\n"
            f"    place = (place + {step - 1}) % len(ring)\n"
            "    gone.append(ring.pop(place))\n"
            f"return {code}"
        ),
        draw={"n": {"kind": "integer", "low": 1, "high": 60}},
        edges=[0, 1, 2, 3, 4, 5, 41, -6],
        laws=[{"kind": "bounds", "low": 0}],
    )


FAMILY = Family(
    name="number_sequences",
    subject="sequences of whole numbers",
    tools=(
        ToolTemplate(level=1, make=_recurrence),
        ToolTemplate(level=1, make=_figurate),
        ToolTemplate(level=2, make=_orbit),
        ToolTemplate(level=2, make=_differences),
        ToolTemplate(level=3, make=_continue),
        ToolTemplate(level=3, make=_circle),
    ),
)
