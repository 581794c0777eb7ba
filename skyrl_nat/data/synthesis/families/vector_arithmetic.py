"""Arithmetic with vectors, given as lists of numbers."""

import random
from typing import Any

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_WHOLE = {"kind": "integer", "low": -9, "high": 12}
_REAL = {"kind": "number", "low": -9.0, "high": 12.0, "digits": 1}
_VECTOR = {"kind": "list", "item": _REAL, "min": 2, "max": 6}


def _whole_numbers(size: int) -> dict[str, Any]:
    return {"kind": "list", "item": _WHOLE, "min": size, "max": size}


def _combine(rng: random.Random) -> ToolVariant:
    a, b = rng.choice([(2, 3), (3, -1), (1, -2), (-2, 5)])
    name, what, code = rng.choice(
        [
            ("padded", "The shorter one is filled up with zeros.", "zip_longest(left, right, fillvalue=0)"),
            ("cut", "The longer one is cut to the length of the shorter one.", "zip(left, right)"),
            (
                "from_the_end",
                "The longer one loses its first items until both are equally long.",
                "zip(left[::-1], right[::-1])",
            ),
        ]
    )
    turn = "[::-1]" if name == "from_the_end" else ""
    start = "from itertools import zip_longest\n" if name == "padded" else ""
    signed = [f"plus_{factor}" if factor > 0 else f"minus_{-factor}" for factor in (a, b)]
    return ToolVariant(
        name=f"{signed[0]}_left_and_{signed[1]}_right_{name}",
        args={"left": "list[int]", "right": "list[int]"},
        returns="list[int]",
        does=(
            f"Return the vector {a} * left {'+' if b > 0 else '-'} {abs(b)} * right.",
            f"Multiply left by {a} and right by {b} and add both vectors item by item.",
            f"Compute the linear combination of left and right with the factors {a} and {b}.",
        ),
        behaviour=[what],
        body=f"{start}return [{a} * x {'+' if b > 0 else '-'} {abs(b)} * y for x, y in {code}]{turn}",
        draw={key: {"kind": "list", "item": _WHOLE, "min": 1, "max": 5} for key in ("left", "right")},
        edges=[
            {"left": [1, 2], "right": [3, 4]},
            {"left": [], "right": [5]},
            {"left": [1, 2, 3], "right": [10]},
            {"left": [7], "right": [0, 0, 1]},
        ],
    )


def _norm(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("taxicab_norm", "sum of the absolute values of the items", "sum(abs(x) for x in vector)"),
            ("euclidean_norm", "square root of the sum of the squared items", "sum(x * x for x in vector) ** 0.5"),
            (
                "cubic_norm",
                "cube root of the sum of the cubes of the absolute values of the items",
                "sum(abs(x) ** 3 for x in vector) ** (1 / 3)",
            ),
            (
                "maximum_norm",
                "largest absolute value of an item, 0 if there is none",
                "max([abs(x) for x in vector], default=0)",
            ),
            (
                "root_mean_square",
                "square root of the mean of the squared items, 0 if there are none",
                "(sum(x * x for x in vector) / max(len(vector), 1)) ** 0.5",
            ),
        ]
    )
    default, factor = rng.choice([(1.0, 1.3732), (1.0, 0.3336), (2.0, 2.7188)])
    factor_name = str(factor).replace(".", "_")
    return ToolVariant(
        name=f"{name}_times_{factor_name}",
        args={"vector": "list[float]"},
        returns="float",
        does=(
            f"Return `factor` times the {name.replace('_', ' ')} of the vector, which is the {what}.",
            f"Compute the {what}, and multiply it by `factor`.",
            f"Measure the vector by the {what}; the answer is that number times `factor`.",
        ),
        behaviour=["The answer is rounded to 3 digits by Python's round.", "An empty vector gives 0.0."],
        body=f"return round(config.factor * {code}, 3)",
        draw={"vector": _VECTOR},
        edges=[[], [0.0, 0.0], [3.0, -4.0], [-2.5], [1.0, 1.0, 1.0], [0.2, -7.0, 0.1]],
        options={"factor": Option(type="float", default=default, set=factor)},
        laws=[{"kind": "permutation_invariant"}, {"kind": "bounds", "low": 0.0}],
    )


_MEASURES = [
    ("cosine", "cosine of the angle between both vectors", "dot / math.sqrt(left_square * right_square)"),
    (
        "projection_length",
        "length of the projection of left on the direction of right, negative if it points the other way",
        "dot / math.sqrt(right_square)",
    ),
    (
        "parallelogram_area",
        "area of the parallelogram that both vectors span",
        "math.sqrt(max(left_square * right_square - dot * dot, 0))",
    ),
    (
        "squared_distance",
        "squared distance between the end points of both vectors",
        "left_square + right_square - 2 * dot",
    ),
    (
        "overlap",
        "dot product of both vectors, divided by the larger one of their squared lengths",
        "dot / max(left_square, right_square)",
    ),
]
"""Name, words and code of what two vectors have together."""


def _two_vectors(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(_MEASURES)
    digits = rng.choice([3, 4])
    squares = "".join(
        f"{side}_square = sum(x * x for x in {side})\n" for side in ("left", "right") if f"{side}_square" in code
    )
    return ToolVariant(
        name=f"{name}_of_vectors_to_{digits}_digits",
        args={"left": "list[int]", "right": "list[int]"},
        returns="float",
        does=(
            f"Return the {what}.",
            f"For two vectors of the same length, compute the {what}.",
            f"The lists hold the coordinates of two vectors. Find the {what}.",
        ),
        behaviour=[f"The answer is a float, rounded to {digits} digits by Python's round."],
        body=(
            f"{'import math' if 'math' in code else ''}\n"
            "if len(left) != len(right) or not any(left) or not any(right):\n"
            "    raise ValueError('vectors must be equally long and not zero')\n"
            f"dot = sum(x * y for x, y in zip(left, right))\n{squares}"
            f"return round(float({code}), {digits})"
        ).lstrip(),
        draw={"left": _whole_numbers(3), "right": _whole_numbers(3)},
        edges=[
            {"left": [1, 0], "right": [1, 1]},
            {"left": [3, 4], "right": [-4, 3]},
            {"left": [2, -1, 0, 5], "right": [1, 7, -3, 2]},
            {"left": [2, 2], "right": [-5, -5]},
            {"left": [0, 3], "right": [0, 7]},
        ],
        raises="the vectors differ in length, or one has no items that are not zero",
        errors=[
            {"left": [1, 2], "right": [1, 2, 3]},
            {"left": [0, 0], "right": [1, 2]},
            {"left": [4, 1], "right": [0, 0]},
            {"left": [], "right": []},
        ],
    )


def _scaled(rng: random.Random) -> ToolVariant:
    target = rng.choice([1, 10, 100])
    name, what, code = rng.choice(
        [
            ("length", "Euclidean length", "sum(x * x for x in vector) ** 0.5"),
            ("total", "sum of absolute values", "sum(abs(x) for x in vector)"),
            ("peak", "largest absolute value", "max([abs(x) for x in vector], default=0.0)"),
        ]
    )
    return ToolVariant(
        name=f"scale_vector_to_{name}_{target}",
        args={"vector": "list[float]"},
        returns="list[float]",
        does=(
            f"Multiply the vector by the positive number that makes its {what} {target}.",
            f"Scale all items by the same factor above 0, so that the {what} becomes {target}.",
            f"Return the vector of the same direction whose {what} is {target}.",
        ),
        behaviour=[
            "Every item of the result is rounded to 5 digits by Python's round.",
            "A vector of zeros only, and an empty one, are returned as they are.",
        ],
        body=f"size = {code}\nreturn [round({target} * x / size, 5) for x in vector] if size else vector",
        draw={"vector": _VECTOR},
        edges=[[], [0.0, 0.0], [3.0, 4.0], [-2.0], [1.0, -1.0, 2.0], [0.1, 0.0, -0.3]],
    )


def _matrix(rng: random.Random) -> ToolVariant:
    title, rows = rng.choice(
        [
            ("2_1_0_3", ((2, 1), (0, 3))),
            ("0_minus_1_1_0", ((0, -1), (1, 0))),
            ("1_2_3_4", ((1, 2), (3, 4))),
            ("5_minus_2_1_1", ((5, -2), (1, 1))),
            ("1_1_0_0_2_1_3_0_1", ((1, 1, 0), (0, 2, 1), (3, 0, 1))),
            ("0_1_2_1_0_2_2_2_1", ((0, 1, 2), (1, 0, 2), (2, 2, 1))),
        ]
    )
    times, word = rng.choice([(1, "once"), (2, "twice"), (3, "three times")])
    shown = " and ".join(str(list(row)) for row in rows)
    size = len(rows)
    return ToolVariant(
        name=f"matrix_{title}_{word.replace(' ', '_')}",
        args={"vector": "list[int]"},
        returns="list[int]",
        does=(
            f"Multiply the matrix with rows {shown} with the vector (as a column) {word} and return the result.",
            f"Replace the vector {word} by the vector whose items are the dot products of the rows {shown} with it.",
            f"Apply {word} the linear map with the matrix rows {shown} to the column vector.",
        ),
        behaviour=["From the second time on, what came out before is multiplied."] if times > 1 else [],
        body=(
            f"if len(vector) != {size}:\n    raise ValueError('the vector must have {size} items')\n"
            f"rows = {rows}\n"
            f"for _ in range({times}):\n"
            "    vector = [sum(a * x for a, x in zip(row, vector)) for row in rows]\n"
            "return vector"
        ),
        draw={"vector": _whole_numbers(size)},
        edges=[[1] + [0] * (size - 1), [0] * (size - 1) + [1], [0] * size, [3, -5, 2][:size]],
        raises=f"the vector does not have {size} items",
        errors=[[], [1] * (size - 1), [1, 2, 3, 4]],
    )


def _nearest(rng: random.Random) -> ToolVariant:
    names = rng.choice([("north", "east", "home"), ("alpha", "beta", "gamma"), ("red", "green", "blue")])
    anchors = rng.choice([((0, 8), (7, 1), (0, 0)), ((-4, 3), (5, 5), (2, -6)), ((1, 1), (6, -2), (-5, 0))])
    metric, far, code = rng.choice(
        [
            ("straight", "squared straight-line distance", "(x - a) ** 2 + (y - b) ** 2"),
            ("taxicab", "distance |dx| + |dy|", "abs(x - a) + abs(y - b)"),
            ("chessboard", "distance max(|dx|, |dy|)", "max(abs(x - a), abs(y - b))"),
        ]
    )
    shown = ", ".join(f"'{name}' is at {place}" for name, place in zip(names, anchors, strict=True))
    corner = "_".join(str(number).replace("-", "minus_") for number in anchors[0])
    return ToolVariant(
        name=f"nearest_{metric}_of_{names[0]}_at_{corner}",
        args={"point": "list[int]"},
        returns="str",
        does=(
            f"Return the name of the place with the smallest {far} from the point, a blank, and that "
            f"distance: {shown}.",
            f"Places have names: {shown}. Find the one that is nearest to the point, measured by the {far}, and write "
            "its name, one blank and the distance.",
            f"Measure the {far} from the point to each of these and write '<name> <distance>' for the closest one: "
            f"{shown}.",
        ),
        behaviour=[
            "The point is given as a list of x and y, and dx and dy are differences of x and of y.",
            f"Of places at equal distance, the one that comes first in the order {', '.join(names)} is taken.",
        ],
        body=(
            "if len(point) != 2:\n    raise ValueError('a point has two numbers')\n"
            "x, y = point\n"
            f"places = {dict(zip(names, anchors, strict=True))}\n"
            f"far = {{name: {code} for name, (a, b) in places.items()}}\n"
            "best = min(far, key=lambda name: far[name])\n"
            "return f'{best} {far[best]}'"
        ),
        draw={"point": {"kind": "list", "item": {"kind": "integer", "low": -9, "high": 12}, "min": 2, "max": 2}},
        edges=[[0, 0], [3, 3], [4, 4], [-1, 5], [5, -5], [0, 4], [9, 9], [-9, -9], [2, 6]],
        raises="the point does not have exactly two numbers",
        errors=[[], [1], [1, 2, 3]],
    )


def _text(rng: random.Random) -> ToolVariant:
    factor = rng.choice([2, 3, 5, -1])
    name, what, code = rng.choice(
        [
            ("scaled", f"every item is {factor} times the old one", "[{0} * x for x in items]"),
            (
                "minus_first",
                f"every item is {factor} times its difference from the first one (item minus first)",
                "[{0} * (x - items[0]) for x in items]",
            ),
            (
                "summed",
                f"every item is {factor} times the sum of the items up to and including it",
                "[{0} * sum(items[: i + 1]) for i in range(len(items))]",
            ),
        ]
    )
    mark_name, opening, closing = rng.choice([("round", "(", ")"), ("square", "[", "]"), ("angle", "<", ">")])
    return ToolVariant(
        name=f"{name}_by_{str(factor).replace('-', 'minus_')}_in_{mark_name}_text",
        args={"text": "str"},
        returns="str",
        does=(
            f"The text has a vector of whole numbers. Write that in which {what}, as '{opening}1, 2, 3{closing}'.",
            f"Read all whole numbers in the text as one vector and return, in the form '{opening}1, 2, 3{closing}', "
            f"the one in which {what}.",
            f"Collect the whole numbers of the text; make a list in which {what}, and write it as "
            f"'{opening}1, 2, 3{closing}'.",
        ),
        behaviour=[
            "A number is digits 0 to 9 with '-' directly before them if it is negative, and other text is ignored.",
            f"Without numbers the result is '{opening}{closing}'.",
        ],
        body=(
            "import re\n"
            "items = [int(found) for found in re.findall(r'-?[0-9]+', text)]\n"
            f"return '{opening}' + ', '.join(str(x) for x in {code.format(factor)}) + '{closing}'"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{start}{a}{gap}{b}{gap}{c}",
                "parts": {
                    "start": {"kind": "choice", "values": ["", "v = ", "(", "at "]},
                    "gap": {"kind": "choice", "values": [" ", ", ", "; ", " / "]},
                    "a": _WHOLE,
                    "b": _WHOLE,
                    "c": {"kind": "integer", "low": -99, "high": 99},
                },
            }
        },
        edges=["", "none", "7", "(1, -2)", "[3; 0; -11; 4]", "10,20"],
    )


FAMILY = Family(
    name="vector_arithmetic",
    subject="arithmetic with vectors",
    tools=(
        ToolTemplate(level=1, make=_combine),
        ToolTemplate(level=1, make=_norm),
        ToolTemplate(level=2, make=_two_vectors),
        ToolTemplate(level=2, make=_scaled),
        ToolTemplate(level=2, make=_matrix),
        ToolTemplate(level=3, make=_nearest),
        ToolTemplate(level=3, make=_text),
    ),
)
