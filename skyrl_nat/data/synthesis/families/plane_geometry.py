"""Figures and points in the plane."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_LENGTH = {"kind": "number", "low": 0.5, "high": 40.0, "digits": 2}
_PLACE = {"kind": "integer", "low": -9, "high": 9}
_POINTS = [{"kind": "list", "item": _PLACE, "min": 2 * count, "max": 2 * count} for count in (3, 4, 4, 5, 6)]
_REAL = {"kind": "number", "low": -9.0, "high": 20.0, "digits": 1}
_REAL_POINTS = [{"kind": "list", "item": _REAL, "min": size, "max": size} for size in (4, 6, 8, 10)]
_SHAPES = {
    "angles": [[3, 4, 5], [5, 12, 13], [8, 15, 17], [2, 3, 4], [4, 5, 8], [3, 5, 7], [5, 5, 6], [4, 5, 6], [7, 7, 7]],
    "sides": [[5, 5, 5], [2, 2, 2], [9, 9, 9], [7, 7, 7], [4, 4, 6], [6, 9, 9], [5, 3, 5], [4, 5, 6], [7, 9, 12]],
}
"""Sides of triangles that are rare otherwise."""
_FLAT = "The list holds x and y of the first point, then x and y of the second, and so on."


def _two_sizes(rng: random.Random) -> ToolVariant:
    digits = rng.choice([3, 4])
    name, what, code = rng.choice(
        [
            (
                "rectangle_diagonal",
                "length of the diagonal of a rectangle with sides a and b",
                "math.sqrt(a * a + b * b)",
            ),
            ("ellipse_area", "area of an ellipse with half axes a and b", "math.pi * a * b"),
            (
                "rhombus_perimeter",
                "perimeter of a rhombus with diagonals a and b",
                "4 * math.sqrt((a / 2) ** 2 + (b / 2) ** 2)",
            ),
            (
                "ring_area",
                "area between two circles about the same centre with radii a and b",
                "math.pi * abs(a * a - b * b)",
            ),
            (
                "right_triangle_height",
                "height over the hypotenuse of a right triangle with legs a and b",
                "a * b / math.sqrt(a * a + b * b)",
            ),
            (
                "right_triangle_inradius",
                "radius of the circle inscribed in a right triangle with legs a and b",
                "(a + b - math.sqrt(a * a + b * b)) / 2",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_to_{digits}_digits",
        args={"a": "float", "b": "float"},
        returns="float",
        does=(
            f"Return the {what}.",
            f"Compute from a and b the {what}.",
            f"Evaluate {code.replace('math.', '')} for two positive lengths: the {what}.",
        ),
        behaviour=[f"The answer is rounded to {digits} digits by Python's round."],
        body=(
            "import math\n"
            "if a <= 0 or b <= 0:\n    raise ValueError('lengths must be positive')\n"
            f"return round({code}, {digits})"
        ),
        draw={"a": _LENGTH, "b": _LENGTH},
        edges=[{"a": 3.0, "b": 4.0}, {"a": 4.0, "b": 3.0}, {"a": 2.0, "b": 2.0}, {"a": 0.9, "b": 0.6}],
        raises="a or b is not positive",
        errors=[{"a": 0.0, "b": 1.0}, {"a": 2.0, "b": -1.0}, {"a": -2.0, "b": 3.0}, {"a": 2.0, "b": 0.0}],
    )


def _regular(rng: random.Random) -> ToolVariant:
    sides, title = rng.choice([(3, "triangle"), (5, "pentagon"), (6, "hexagon"), (8, "octagon"), (12, "dodecagon")])
    name, what, code = rng.choice(
        [
            ("area", "area of a regular {1} with sides of length s", "{0} * s * s / (4 * math.tan(math.pi / {0}))"),
            (
                "circumscribed_perimeter",
                "perimeter of a regular {1} whose sides touch a circle with radius s",
                "2 * {0} * s * math.tan(math.pi / {0})",
            ),
            (
                "inradius",
                "radius of the circle inscribed in a regular {1} with sides of length s",
                "s / (2 * math.tan(math.pi / {0}))",
            ),
            (
                "inscribed_perimeter",
                "perimeter of a regular {1} whose corners lie on a circle with radius s",
                "2 * {0} * s * math.sin(math.pi / {0})",
            ),
        ]
    )
    what = what.format(sides, title)
    return ToolVariant(
        name=f"{name}_of_regular_{title}",
        args={"s": "float"},
        returns="float",
        does=(
            f"Return the {what}.",
            f"Find the {what} (a figure with {sides} equal sides and angles).",
            f"Evaluate {code.format(sides).replace('math.', '')}, which is the {what}.",
        ),
        behaviour=["The sign of s is ignored.", "The answer is rounded to 3 digits by Python's round."],
        body=f"import math\ns = abs(s)\nreturn round({code.format(sides)}, 3)",
        draw={"s": {"kind": "number", "low": -30.0, "high": 60.0, "digits": 1, "edges": [0.0, 1.0]}},
        edges=[0.0, 1.0, -2.0, 10.0],
        laws=[{"kind": "even"}, {"kind": "bounds", "low": 0.0}],
    )


def _path(rng: random.Random) -> ToolVariant:
    metric, far, code = rng.choice(
        [
            ("straight", "straight-line distance", "math.hypot(dx, dy)"),
            ("taxicab", "taxicab distance |dx| + |dy|", "abs(dx) + abs(dy)"),
            ("chessboard", "chessboard distance max(|dx|, |dy|)", "max(abs(dx), abs(dy))"),
        ]
    )
    name, what, pairs, pick = rng.choice(
        [
            ("open_path", "from each point to the next, added up", "zip(points, points[1:])", "sum(steps)"),
            (
                "closed_path",
                "from each point to the next and from the last to the first, added up",
                "zip(points, points[1:] + points[:1])",
                "sum(steps)",
            ),
            (
                "longest_step",
                "from each point to the next, of which the largest counts",
                "zip(points, points[1:])",
                "max(steps)",
            ),
        ]
    )
    return ToolVariant(
        name=f"{metric}_{name}_length",
        args={"numbers": "list[float]"},
        returns="float",
        does=(
            f"Return the {far} {what}.",
            f"For points in the plane, measure the {far} {what}.",
            f"Walk through the points in their order; the answer is the {far} {what}.",
        ),
        behaviour=[_FLAT, "The answer is rounded to 3 digits by Python's round."],
        body=(
            "import math\n"
            "if len(numbers) < 4 or len(numbers) % 2:\n    raise ValueError('two points are needed')\n"
            "points = list(zip(numbers[0::2], numbers[1::2]))\n"
            f"sides = [(bx - ax, by - ay) for (ax, ay), (bx, by) in {pairs}]\n"
            f"steps = [{code} for dx, dy in sides]\n"
            f"return round(float({pick}), 3)"
        ),
        draw={"numbers": {"kind": "one_of", "of": _REAL_POINTS}},
        edges=[[0.0, 0.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0, 4.0, 5.0], [0.0, 2.0, 2.0, 0.0, -5.0, 1.5, 3.0, 3.0]],
        raises="there are fewer than four numbers, or an odd number of them",
        errors=[[], [1.0, 2.0], [1.0, 2.0, 3.0], [1.0, 2.0, 3.0, 4.0, 5.0]],
    )


def _polygon(rng: random.Random) -> ToolVariant:
    sides = "sides = list(zip(corners, corners[1:] + corners[:1]))\n"
    turns = "sum(a * d - c * b for (a, b), (c, d) in sides)"
    rule = "Twice the area is the sum of x1 * y2 - x2 * y1 over all sides from (x1, y1) to (x2, y2)"
    name, what, rules, body = rng.choice(
        [
            ("double_area", "twice the area", [f"{rule}, without its sign."], f"{sides}return abs({turns})"),
            (
                "signed_double_area",
                "twice the area, positive if the corners go counterclockwise and negative if clockwise",
                [f"{rule}."],
                f"{sides}return {turns}",
            ),
            (
                "grid_points",
                "the number of points with two whole coordinates on its sides, corners included",
                ["For each side, its points without the corner where it ends are counted, and these are added up."],
                f"import math\n{sides}return sum(math.gcd(c - a, d - b) for (a, b), (c, d) in sides)",
            ),
            (
                "bounding_box_area",
                "the area of the smallest rectangle with sides parallel to the axes that holds it",
                [],
                "xs, ys = [x for x, _ in corners], [y for _, y in corners]\n"
                "return (max(xs) - min(xs)) * (max(ys) - min(ys))",
            ),
            (
                "squared_sides",
                "the sum of the squared lengths of its sides",
                [],
                f"{sides}return sum((c - a) ** 2 + (d - b) ** 2 for (a, b), (c, d) in sides)",
            ),
        ]
    )
    return ToolVariant(
        name=f"polygon_{name}",
        args={"numbers": "list[int]"},
        returns="int",
        does=(
            f"Return for the polygon with these corners {what}.",
            f"The numbers are the corners of a polygon in the order along its sides. Give {what}.",
            f"Join each corner to the next and the last to the first; of the polygon that arises, find {what}.",
        ),
        behaviour=[_FLAT, *rules, "Sides may cross and corners may repeat; such cases are not treated specially."],
        body=(
            "if len(numbers) < 6 or len(numbers) % 2:\n    raise ValueError('three corners are needed')\n"
            f"corners = list(zip(numbers[0::2], numbers[1::2]))\n{body}"
        ),
        draw={"numbers": {"kind": "one_of", "of": _POINTS}},
        edges=[[0, 0, 4, 0, 0, 3], [0, 0, 0, 3, 4, 0], [1, 1, 5, 1, 5, 4, 1, 4], [2, 1, -3, 7, 6, -2]],
        raises="there are fewer than six numbers, or an odd number of them",
        errors=[[], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]],
    )


def _triangle_kind(rng: random.Random) -> ToolVariant:
    name, what, words, code = rng.choice(
        [
            (
                "angles",
                "by its largest angle",
                ("acute", "right", "obtuse"),
                "words[(c * c >= a * a + b * b) + (c * c > a * a + b * b)]",
            ),
            (
                "sides",
                "by how many of its sides are equal",
                ("scalene", "isosceles", "equilateral"),
                "words[3 - len({a, b, c})]",
            ),
        ]
    )
    none = rng.choice(["no triangle", "impossible", "none"])
    if name == "angles":
        rule = "below 90 degrees, 90 degrees, and above 90 degrees"
    else:
        rule = "all three different, two equal, and all three equal"
    shapes = _SHAPES[name]
    return ToolVariant(
        name=f"triangle_{name}_or_{none.replace(' ', '_')}",
        args={"sides": "list[int]"},
        returns="str",
        does=(
            f"Classify the triangle with these three sides {what}: '{words[0]}', '{words[1]}' or '{words[2]}' mean "
            f"{rule}.",
            f"Say what kind of triangle three lengths make {what}. The answers '{words[0]}', '{words[1]}', "
            f"'{words[2]}' stand for {rule}.",
            f"Return the kind of the triangle {what} ({rule} give '{words[0]}', '{words[1]}', '{words[2]}').",
        ),
        behaviour=[
            f"Sides that make no triangle, because the longest is at least as long as both others together, give "
            f"'{none}'.",
            "The sides may come in any order.",
        ],
        body=(
            "if len(sides) != 3 or min(sides) < 1:\n    raise ValueError('three positive sides are needed')\n"
            f"words = {words}\n"
            "a, b, c = sorted(sides)\n"
            f"return {code} if a + b > c else {none!r}"
        ),
        draw={
            "sides": {
                "kind": "one_of",
                "of": [
                    {"kind": "choice", "values": [*shapes, *[shape[::-1] for shape in shapes]]},
                    {"kind": "choice", "values": [shape[1:] + shape[:1] for shape in shapes]},
                    {"kind": "list", "item": {"kind": "integer", "low": 1, "high": 15}, "min": 3, "max": 3},
                ],
            }
        },
        edges=[[3, 4, 5], [1, 2, 3], [5, 5, 5], [1, 1, 2], [1, 1, 1], [2, 2, 3], [10, 2, 3]],
        raises="there are not exactly three sides, or one is below 1",
        errors=[[], [3, 4], [3, 4, 0], [2, 2, 2, 2]],
        laws=[{"kind": "permutation_invariant"}],
    )


def _move(rng: random.Random) -> ToolVariant:
    default, offset = rng.choice([(0, 3), (1, -2), (2, 5), (0, -4)])
    name, what, pair = rng.choice(
        [
            ("quarter_turn", "turned counterclockwise by 90 degrees about the origin", "(-y, x)"),
            ("clockwise_turn", "turned clockwise by 90 degrees about the origin", "(y, -x)"),
            ("mirror_x_axis", "mirrored in the x axis", "(x, -y)"),
            ("mirror_y_axis", "mirrored in the y axis", "(-x, y)"),
            ("mirror_diagonal", "mirrored in the line y = x", "(y, x)"),
            ("double", "moved to twice their distance from the origin", "(2 * x, 2 * y)"),
        ]
    )
    return ToolVariant(
        name=f"points_{name}_then_up_{str(offset).replace('-', 'minus_')}",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Return the points {what} and then moved by `offset` in the direction of y.",
            f"First the points are {what}, then `offset` is added to every y; return the points that result.",
            f"Map each point: {what}, and after that shifted up by `offset` (down if it is negative).",
        ),
        behaviour=[_FLAT, "The result has the same form and order.", "An odd number at the end is left out."],
        body=(
            "moved = []\n"
            "for x, y in zip(numbers[0::2], numbers[1::2]):\n"
            f"    x, y = {pair}\n"
            "    moved += [x, y + config.offset]\n"
            "return moved"
        ),
        draw={"numbers": {"kind": "list", "item": _PLACE, "min": 2, "max": 8}},
        edges=[[], [7], [1, 2], [3, -5, 0, 4, 6, 6], [2, 3, 9]],
        options={"offset": Option(type="int", default=default, set=offset)},
    )


FAMILY = Family(
    name="plane_geometry",
    subject="figures in the plane",
    tools=(
        ToolTemplate(level=1, make=_two_sizes),
        ToolTemplate(level=1, make=_regular),
        ToolTemplate(level=2, make=_path),
        ToolTemplate(level=3, make=_polygon),
        ToolTemplate(level=2, make=_triangle_kind),
        ToolTemplate(level=2, make=_move),
    ),
)
