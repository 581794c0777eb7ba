"""Solids: volumes, surfaces and distances in space."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_SIZE = {"kind": "number", "low": 0.5, "high": 25.0, "digits": 1}
_EDGE = {"kind": "integer", "low": 1, "high": 30}


def _by_one_size(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("sphere_volume", "volume of a ball with radius a", "4 / 3 * math.pi * a**3"),
            ("sphere_surface", "surface of a ball with radius a", "4 * math.pi * a**2"),
            ("hemisphere_surface", "surface, flat side included, of half a ball with radius a", "3 * math.pi * a**2"),
            (
                "tetrahedron_volume",
                "volume of a regular tetrahedron with edges of length a",
                "a**3 / (6 * math.sqrt(2))",
            ),
            ("tetrahedron_surface", "surface of a regular tetrahedron with edges of length a", "math.sqrt(3) * a**2"),
            ("octahedron_volume", "volume of a regular octahedron with edges of length a", "math.sqrt(2) / 3 * a**3"),
            ("octahedron_surface", "surface of a regular octahedron with edges of length a", "2 * math.sqrt(3) * a**2"),
            (
                "cube_in_sphere_volume",
                "volume of the largest cube inside a ball with radius a",
                "(2 * a / math.sqrt(3)) ** 3",
            ),
        ]
    )
    digits = rng.choice([2, 3])
    return ToolVariant(
        name=f"{name}_to_{digits}_digits",
        args={"a": "float"},
        returns="float",
        does=(
            f"Return the {what}.",
            f"Given a, compute the {what}.",
            f"Evaluate {code.replace('math.', '')}: the {what}.",
        ),
        behaviour=["The sign of a is ignored.", f"The answer is rounded to {digits} digits by Python's round."],
        body=f"import math\na = abs(a)\nreturn round({code}, {digits})",
        draw={"a": {"kind": "number", "low": -9.0, "high": 25.0, "digits": 1, "edges": [0.0, 1.0]}},
        edges=[0.0, 1.0, -2.0, 3.5],
        laws=[{"kind": "even"}, {"kind": "bounds", "low": 0.0}],
    )


def _from_volume(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("ball_radius", "radius of the ball", "(3 * volume / (4 * math.pi)) ** (1 / 3)"),
            ("cube_diagonal", "diagonal through the middle of the cube", "math.sqrt(3) * volume ** (1 / 3)"),
            ("cube_surface", "surface of the cube", "6 * volume ** (2 / 3)"),
            ("ball_surface", "surface of the ball", "4 * math.pi * (3 * volume / (4 * math.pi)) ** (2 / 3)"),
            ("tetrahedron_edge", "edge of the regular tetrahedron", "(6 * math.sqrt(2) * volume) ** (1 / 3)"),
        ]
    )
    digits = rng.choice([2, 3, 4])
    return ToolVariant(
        name=f"{name}_from_volume_to_{digits}_digits",
        args={"volume": "float"},
        returns="float",
        does=(
            f"Return the {what} that has this volume.",
            f"Find, for a given volume, the {what} with that volume.",
            f"Evaluate {code.replace('math.', '')}, which is the {what} of the given volume.",
        ),
        behaviour=[f"The answer is rounded to {digits} digits by Python's round.", "Volume 0 gives 0.0."],
        body=(
            "import math\n"
            "if volume < 0:\n    raise ValueError('the volume must not be negative')\n"
            f"return round({code}, {digits})"
        ),
        draw={"volume": {"kind": "number", "low": 0.0, "high": 3000.0, "digits": 2, "edges": [0.0, 1.0, 8.0]}},
        edges=[0.0, 0.5, 1.0, 8.0, 100.0],
        raises="the volume is negative",
        errors=[-1.0, -0.25],
        laws=[{"kind": "monotone"}],
    )


def _round_solid(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            (
                "cylinder_surface",
                "surface, both ends included, of a cylinder",
                "2 * math.pi * radius * (radius + height)",
            ),
            (
                "open_cylinder_surface",
                "surface, bottom but not top included, of a cylinder",
                "math.pi * radius * (radius + 2 * height)",
            ),
            ("cone_volume", "volume of a straight cone", "math.pi * radius**2 * height / 3"),
            (
                "cone_surface",
                "surface, bottom included, of a straight cone",
                "math.pi * radius * (radius + math.hypot(radius, height))",
            ),
            (
                "capsule_volume",
                "volume of a cylinder with half a ball of its radius on each end, where height is that of the cylinder "
                "alone,",
                "math.pi * radius**2 * (4 / 3 * radius + height)",
            ),
            (
                "silo_volume",
                "volume of a cylinder with half a ball of its radius on top, where height is that of the cylinder "
                "alone,",
                "math.pi * radius**2 * (2 / 3 * radius + height)",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_by_radius_and_height",
        args={"radius": "float", "height": "float"},
        returns="float",
        does=(
            f"Return the {what} with the given radius and height.",
            f"Compute from radius and height the {what} with these measures.",
            f"Evaluate {code.replace('math.', '')}: the {what} of known radius and height.",
        ),
        behaviour=["The answer is rounded to 3 digits by Python's round."],
        body=(
            "import math\n"
            "if radius < 0 or height < 0:\n    raise ValueError('lengths must not be negative')\n"
            f"return round({code}, 3)"
        ),
        draw={"radius": _SIZE, "height": _SIZE},
        edges=[{"radius": 1.0, "height": 2.0}, {"radius": 0.0, "height": 3.0}, {"radius": 2.0, "height": 0.0}],
        raises="radius or height is negative",
        errors=[{"radius": -1.0, "height": 2.0}, {"radius": 1.0, "height": -0.5}],
    )


def _box(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("surface", "the sum of the areas of its six faces", "2 * (a * b + b * c + c * a)"),
            (
                "open_top_surface",
                "the area of its faces without the one that is left open, a largest one",
                "2 * (a * b + b * c + c * a) - b * c",
            ),
            ("edge_total", "the total length of its twelve edges", "4 * (a + b + c)"),
            (
                "smallest_face_perimeter",
                "the smallest perimeter that one of its faces has",
                "2 * (a + b)",
            ),
            (
                "shortest_walk",
                "the squared length of the shortest way over its surface between two opposite corners",
                "(a + b) ** 2 + c**2",
            ),
            ("slack", "how much its volume is below that of the cube with its longest edge", "c**3 - a * b * c"),
        ]
    )
    return ToolVariant(
        name=f"box_{name}",
        args={"edges": "list[int]"},
        returns="int",
        does=(
            f"Return for a box with these three edges {what}.",
            f"The numbers are length, width and height of a box in any order. Give {what}.",
            f"Take a box (all angles are right angles) with the three given edges and compute {what}.",
        ),
        behaviour=["Edges are whole and positive."],
        body=(
            "if len(edges) != 3 or min(edges) < 1:\n    raise ValueError('three positive edges are needed')\n"
            "a, b, c = sorted(edges)\n"
            f"return {code}"
        ),
        draw={"edges": {"kind": "list", "item": _EDGE, "min": 3, "max": 3}},
        edges=[[1, 1, 1], [1, 2, 3], [3, 1, 2], [5, 5, 2], [10, 4, 7]],
        raises="there are not exactly three edges, or one is below 1",
        errors=[[], [1, 2], [1, 2, 3, 4], [3, 0, 2], [2, 2, -2]],
        laws=[{"kind": "permutation_invariant"}],
    )


def _fits(rng: random.Random) -> ToolVariant:
    container = rng.choice([(10, 14, 20), (8, 8, 25), (12, 15, 16), (9, 18, 24)])
    default, gap = rng.choice([(0, 1), (1, 2), (2, 3)])
    name, what, code = rng.choice(
        [
            ("turned", "turned in any way along the axes", "zip(sorted(edges), {0})"),
            (
                "upright",
                "turned about the third edge only, which stays upright",
                "zip([*sorted(edges[:2]), edges[2]], {0})",
            ),
        ]
    )
    a, b, c = container
    high = c + 5 if name == "turned" else b + 4
    return ToolVariant(
        name=f"box_{name}_fits_{a}_{b}_{c}_gap_{gap}",
        args={"edges": "list[int]"},
        returns="bool",
        does=(
            f"Return whether a box with these three edges, {what}, fits into a container of {a} x {b} x {c} with at "
            "least `gap` left over in each direction.",
            f"Say True if the box can be put, {what}, into a space {a} long, {b} wide and {c} high such that box and "
            "space differ by `gap` or more in all three directions, else False.",
            f"A container measures {a}, {b} and {c}, the last one upwards. Can the box stand in it, {what}, with at "
            "least `gap` of air per direction in total? Answer True or False.",
        ),
        behaviour=["Edges stay parallel to those of the container, and the third edge is the upright one at first."],
        body=(
            "if len(edges) != 3 or min(edges) < 1:\n    raise ValueError('three positive edges are needed')\n"
            f"return all(edge + config.gap <= space for edge, space in {code.format(container)})"
        ),
        draw={
            "edges": {
                "kind": "one_of",
                "of": [
                    {"kind": "list", "item": {"kind": "integer", "low": 2, "high": high}, "min": 3, "max": 3},
                    {"kind": "list", "item": {"kind": "integer", "low": 2, "high": high}, "min": 3, "max": 3},
                    {"kind": "list", "item": {"kind": "integer", "low": 2, "high": a - gap}, "min": 3, "max": 3},
                ],
            }
        },
        edges=[
            [a - gap, b - gap, c - gap],
            [b - gap, a - gap, c - gap],
            [a - gap + 1, b - gap, c - gap],
            [b - gap + 1, a - gap, c - gap],
            [a - gap, b - gap, c - gap + 1],
            [c - gap, a - gap, b - gap],
            [1, 1, 1],
        ],
        raises="there are not exactly three edges, or one is below 1",
        errors=[[], [2, 3], [2, 3, 0], [1, 1, 1, 1]],
        options={"gap": Option(type="int", default=default, set=gap)},
    )


def _towers(rng: random.Random) -> ToolVariant:
    side = rng.choice([1, 2, 3])
    surface = (
        "padded = [0, *heights, 0]\n"
        "steps = sum(abs(a - b) for a, b in zip(padded, padded[1:]))\n"
        "walls = {0} * (2 * sum(heights) + steps)\n"
    )
    touch = "Faces where towers touch do not count; of two neighbours the higher one shows what stands out."
    name, what, rule, code = rng.choice(
        [
            (
                "surface",
                "the whole surface, bottom included",
                touch,
                surface + "return walls + 2 * {1} * sum(height > 0 for height in heights)",
            ),
            (
                "visible_faces",
                "the area of their upright faces and tops, without the bottom",
                touch,
                surface + "return walls + {1} * sum(height > 0 for height in heights)",
            ),
            ("upright_faces", "the area of their upright faces alone", touch, surface + "return walls"),
            (
                "water",
                "the volume of water that can stand between them",
                "Water stands over a tower up to the lower one of the highest towers left and right of it, if that is "
                "higher than the tower.",
                "total = 0\n"
                "for i, height in enumerate(heights):\n"
                "    level = min(max(heights[: i + 1]), max(heights[i:]))\n"
                "    total += {1} * (level - height)\n"
                "return total",
            ),
        ]
    )
    return ToolVariant(
        name=f"{name}_of_towers_{side}_wide",
        args={"heights": "list[int]"},
        returns="int",
        does=(
            f"Towers stand in a row without gaps, each with a base of {side} x {side} and the given height. Return "
            f"{what}.",
            f"The numbers are heights of square towers, {side} wide and {side} deep, side by side. Give {what}.",
            f"Think of a row of blocks, {side} by {side} at the bottom and as high as the numbers say, in this order; "
            f"compute {what}.",
        ),
        behaviour=[rule, "A tower of height 0 is an empty place, and an empty list gives 0."],
        body=(
            "if any(height < 0 for height in heights):\n    raise ValueError('heights must not be negative')\n"
            f"{code.format(side, side**2)}"
        ),
        draw={"heights": {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 9}, "min": 4, "max": 9}},
        edges=[[], [0], [3], [2, 0, 2], [5, 1, 3, 0, 4], [1, 2, 3, 2, 1], [0, 4, 4, 0, 1], [1, 0, 1, 1]],
        raises="a height is negative",
        errors=[[-1], [2, -3, 4]],
    )


FAMILY = Family(
    name="solid_geometry",
    subject="volumes and surfaces of solids",
    tools=(
        ToolTemplate(level=1, make=_by_one_size),
        ToolTemplate(level=1, make=_from_volume),
        ToolTemplate(level=2, make=_round_solid),
        ToolTemplate(level=2, make=_box),
        ToolTemplate(level=2, make=_fits),
        ToolTemplate(level=3, make=_towers),
    ),
)
