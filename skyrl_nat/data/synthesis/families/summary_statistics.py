"""Numbers that sum up a list of values."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUE = {"kind": "number", "low": -20.0, "high": 90.0, "digits": 1}
_VALUES = {"kind": "list", "item": _VALUE, "min": 2, "max": 7}
_POSITIVE = {"kind": "list", "item": {"kind": "number", "low": 0.5, "high": 60.0, "digits": 1}, "min": 2, "max": 7}
_EXAMPLES = [[3.0], [1.0, 2.0], [4.0, 1.0, 7.5], [2.5, 2.5, 9.0, 1.0], [10.0, 0.5, 3.3, 8.1, 6.2]]
_ANY_ORDER = {"kind": "permutation_invariant"}


def _mean(rng: random.Random) -> ToolVariant:
    digits = rng.choice([3, 4])
    name, what, code = rng.choice(
        [
            ("geometric_mean", "n-th root of the product of the n values", "math.prod(values) ** (1 / len(values))"),
            (
                "harmonic_mean",
                "number of values divided by the sum of their reciprocals",
                "len(values) / sum(1 / v for v in values)",
            ),
            (
                "quadratic_mean",
                "square root of the mean of the squared values",
                "math.sqrt(sum(v * v for v in values) / len(values))",
            ),
            ("midrange", "half of the sum of the smallest and the largest value", "(min(values) + max(values)) / 2"),
            (
                "contraharmonic_mean",
                "sum of the squared values divided by the sum of the values",
                "sum(v * v for v in values) / sum(values)",
            ),
        ]
    )
    title = name.replace("_", " ")
    return ToolVariant(
        name=f"{name}_to_{digits}_digits",
        args={"values": "list[float]"},
        returns="float",
        does=(
            f"Return the {title} of the values: the {what}.",
            f"Compute the {what} (their {title}).",
            f"Sum up the values by their {title}, which is the {what}.",
        ),
        behaviour=[f"The answer is rounded to {digits} digits by Python's round."],
        body=(
            "import math\n"
            "if not values or min(values) <= 0:\n    raise ValueError('positive values are needed')\n"
            f"return round({code}, {digits})"
        ),
        draw={"values": _POSITIVE},
        edges=_EXAMPLES,
        raises="the list is empty or has a value that is not positive",
        errors=[[], [0.0, 1.0], [2.0, -3.5]],
        laws=[_ANY_ORDER],
    )


def _trimmed(rng: random.Random) -> ToolVariant:
    low, high = rng.choice([(1, 1), (1, 0), (0, 1), (2, 1), (1, 2)])
    name, what, keep, few = rng.choice(
        [
            ("without", "left out", "ordered[{0} : len(ordered) - {1}]", "no value would be left"),
            (
                "clamped",
                "replaced by the nearest value that is not among them",
                "[min(max(v, ordered[{0}]), ordered[len(ordered) - {1} - 1]) for v in ordered]",
                "all values would be replaced",
            ),
        ]
    )
    keep = keep.format(low, high)
    words = ["", "the", "the two"]
    parts = [f"{words[count]} {which}" for count, which in ((low, "smallest"), (high, "largest")) if count]
    extremes = " and ".join(parts)
    return ToolVariant(
        name=f"mean_{name}_{low}_lowest_{high}_highest",
        args={"values": "list[float]"},
        returns="float",
        does=(
            f"Return the mean of the values with {extremes} of them {what}.",
            f"Average the list after {extremes} of its values have been {what}.",
            f"First sort the values; {extremes} are {what}. The answer is the mean of the list that results.",
        ),
        behaviour=[
            "The answer is rounded to 4 digits by Python's round.",
            f"If {few}, because the list has {low + high} values or fewer, the answer is 0.0.",
            "Equal values are counted one by one.",
        ],
        body=(
            "ordered = sorted(values)\n"
            f"if len(ordered) <= {low + high}:\n    return 0.0\n"
            f"kept = {keep}\n"
            "return round(sum(kept) / len(kept), 4)"
        ),
        draw={"values": {**_VALUES, "min": 4}},
        edges=[[], *_EXAMPLES, [5.0, -5.0, 5.0, 90.0, -90.0, 7.3], [1.5, 2.5, 4.0, 8.0]],
        laws=[_ANY_ORDER],
    )


def _quantile(rng: random.Random) -> ToolVariant:
    percent = rng.choice([10, 25, 40, 75, 90])
    name, what, code = rng.choice(
        [
            (
                "linear",
                "interpolated linearly between the two values next to p",
                "round(ordered[low] + (p - low) * (ordered[high] - ordered[low]), 4)",
            ),
            ("lower", "the value at p rounded down", "ordered[low]"),
            ("higher", "the value at p rounded up", "ordered[high]"),
            (
                "midpoint",
                "the mean of the values at p rounded down and p rounded up",
                "round((ordered[low] + ordered[high]) / 2, 4)",
            ),
        ]
    )
    return ToolVariant(
        name=f"percentile_{percent}_{name}",
        args={"values": "list[float]"},
        returns="float",
        does=(
            f"Return the {percent}th percentile: in the sorted values, numbered from 0 to n - 1, it is at "
            f"p = {percent} / 100 * (n - 1), and the answer is {what}.",
            f"Sort the n values in ascending order, compute the place p = {percent} / 100 * (n - 1), counted from 0, "
            f"and give {what}.",
            f"Give the {percent} % quantile. With p = {percent} * (n - 1) / 100 as a place among the n values in "
            f"ascending order (the first has place 0), it is {what}.",
        ),
        behaviour=[
            "If p is whole, the answer is the value at p.",
            "A value that is not in the list is rounded to 4 digits by Python's round.",
        ],
        body=(
            "import math\n"
            "if not values:\n    raise ValueError('values are needed')\n"
            "ordered = sorted(values)\n"
            f"p = {percent} * (len(ordered) - 1) / 100\n"
            "low, high = math.floor(p), math.ceil(p)\n"
            f"return {code}"
        ),
        draw={"values": {**_VALUES, "max": 9}},
        edges=[*_EXAMPLES, [float(v) for v in (9, 1, 8, 2, 7, 3, 6, 4, 5, 0, 10)]],
        raises="the list is empty",
        errors=[[], []],
        laws=[_ANY_ORDER],
    )


def _spread(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            (
                "sample_standard_deviation",
                "square root of the squared distances from the mean, added up and divided by n - 1",
                "math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))",
            ),
            (
                "population_standard_deviation",
                "square root of the squared distances from the mean, added up and divided by n",
                "math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))",
            ),
            (
                "mean_absolute_deviation",
                "sum of the absolute distances from the mean, divided by n",
                "sum(abs(v - mean) for v in values) / len(values)",
            ),
            (
                "largest_deviation",
                "largest absolute distance of a value from the mean",
                "max(abs(v - mean) for v in values)",
            ),
            (
                "standard_error",
                "square root of the squared distances from the mean, added up and divided by n * (n - 1)",
                "math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) * (len(values) - 1)))",
            ),
        ]
    )
    digits = rng.choice([4, 5])
    title = name.replace("_", " ")
    return ToolVariant(
        name=f"{name}_to_{digits}_digits",
        args={"values": "list[float]"},
        returns="float",
        does=(
            f"Return the {title} of the n values: the {what}.",
            f"Measure how far the n values lie apart by their {title}, that is the {what}.",
            f"For a list of n values give the {what}.",
        ),
        behaviour=[f"The answer is rounded to {digits} digits by Python's round.", "The mean is the arithmetic mean."],
        body=(
            "import math\n"
            "if len(values) < 2:\n    raise ValueError('two values are needed')\n"
            "mean = sum(values) / len(values)\n"
            f"return round({code}, {digits})"
        ),
        draw={"values": _VALUES},
        edges=[*_EXAMPLES[1:], [4.0, 4.0, 4.0]],
        raises="there are fewer than two values",
        errors=[[], [5.0]],
        laws=[_ANY_ORDER, {"kind": "bounds", "low": 0.0}],
    )


def _mode(rng: random.Random) -> ToolVariant:
    how_name, how, sign = rng.choice([("most", "most often", "-"), ("least", "least often", "")])
    tie_name, tie, key = rng.choice(
        [
            ("smallest", "the smallest", "v"),
            ("largest", "the largest", "-v"),
            ("first", "the one that occurs first", "numbers.index(v)"),
            ("last", "the one whose last occurrence is last", "numbers[::-1].index(v)"),
        ]
    )
    return ToolVariant(
        name=f"{how_name}_frequent_ties_to_{tie_name}",
        args={"numbers": "list[int]"},
        returns="int",
        does=(
            f"Return the number that occurs {how} in the list.",
            f"Count how often each number of the list occurs and give the one that does so {how}.",
            f"Which of the numbers in the list is there {how}? Return it.",
        ),
        behaviour=[f"Of several such numbers the answer is {tie}.", "Only numbers that occur are considered."],
        body=(
            "if not numbers:\n    raise ValueError('numbers are needed')\n"
            f"return min(numbers, key=lambda v: ({sign}numbers.count(v), {key}))"
        ),
        draw={"numbers": {"kind": "list", "item": {"kind": "integer", "low": -6, "high": 7}, "min": 3, "max": 10}},
        edges=[[7], [3, 1, 2], [1, 2, 2, 1, 3], [5, 5, 4, 4, 9], [0, -1, 0, -1, 8, 8, -7], [-2, 3, 4, 3, -2, 4, 1]],
        raises="the list is empty",
        errors=[[], []],
    )


def _outliers(rng: random.Random) -> ToolVariant:
    default, factor = rng.choice([(3.0, 1.5), (2.0, 1.0), (1.5, 1.25), (1.0, 1.75)])
    keep_name, keep, test = rng.choice([("keep", "at most", "<="), ("drop", "more than", ">")])
    center_name, center, middle = rng.choice(
        [("mean", "mean", "sum(values) / len(values)"), ("median", "median", "statistics.median(values)")]
    )
    name = "values_near" if keep_name == "keep" else "values_far_from"
    return ToolVariant(
        name=f"{name}_{center_name}_factor_{str(factor).replace('.', '_')}",
        args={"values": "list[float]"},
        returns="list[float]",
        does=(
            f"Return the values whose distance from the {center} is {keep} `factor` times the average distance from "
            f"the {center}.",
            f"Let d be the mean of the absolute distances of all values from their {center}; keep the values that are "
            f"{keep} `factor` * d away from it.",
            f"List those values that lie {keep} `factor` average deviations from the {center}, where the average "
            f"deviation is the mean of |value - {center}| over all values.",
        ),
        behaviour=[
            "The values keep their order.",
            "An empty list gives an empty list.",
            "The median of an even number of values is the mean of the middle two.",
            "A distance above the limit by no more than 1e-9 counts as equal to it.",
        ],
        body=(
            "import statistics\n"
            "if not values:\n    return []\n"
            f"middle = {middle}\n"
            "far = [abs(v - middle) for v in values]\n"
            "limit = config.factor * sum(far) / len(far) + 1e-9\n"
            f"return [v for v, d in zip(values, far) if d {test} limit]"
        ),
        draw={
            "values": {
                "kind": "list",
                "item": {"kind": "one_of", "of": [_VALUE, {"kind": "number", "low": 20.0, "high": 40.0, "digits": 1}]},
                "min": 3,
                "max": 8,
            }
        },
        edges=[[], *_EXAMPLES, [1.0, 3.0], [0.0, 0.0, 0.0, 8.0], [1.0, 2.0, 3.0, 4.0, 40.0]],
        options={"factor": Option(type="float", default=default, set=factor)},
    )


def _pairs(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("slope", "slope of the least-squares line of y over x, sxy / sxx", "sxy / {xx}"),
            (
                "intercept",
                "value at x = 0 of the least-squares line of y over x, my - sxy / sxx * mx",
                "sum(y) / n - sxy / {xx} * sum(x) / n",
            ),
            (
                "correlation",
                "correlation coefficient of Pearson, sxy / sqrt(sxx * syy)",
                "sxy / math.sqrt({xx} * {yy})",
            ),
            ("covariance", "sample covariance, sxy / (n - 1)", "sxy / (n - 1)"),
        ]
    )
    squares = {k * 2: f"(sum(v * v for v in {k}) - sum({k}) ** 2 / n)" for k in "xy"}
    return ToolVariant(
        name=f"{name}_of_paired_values",
        args={"x": "list[float]", "y": "list[float]"},
        returns="float",
        does=(
            f"Return the {what}, for the pairs of an item of x and the item of y at the same place.",
            f"Pair the items of x and y by their place and compute the {what}.",
            f"The lists x and y hold n paired measurements. Give the {what}.",
        ),
        behaviour=[
            "Here n is the number of pairs, mx and my are the means, sxx the sum of (x - mx)**2, syy that of "
            "(y - my)**2 and sxy that of (x - mx) * (y - my).",
            "The answer is rounded to 4 digits by Python's round.",
        ],
        body=(
            f"{'import math' if name == 'correlation' else ''}\n"
            "n = len(x)\n"
            "if n != len(y) or len(set(x)) < 2 or len(set(y)) < 2:\n"
            "    raise ValueError('x and y must be equally long and not constant')\n"
            "sxy = sum(a * b for a, b in zip(x, y)) - sum(x) * sum(y) / n\n"
            f"return round({code.format(**squares)}, 4)"
        ).lstrip(),
        draw={key: {"kind": "list", "item": _VALUE, "min": 5, "max": 5} for key in ("x", "y")},
        edges=[
            {"x": [1.0, 2.0], "y": [3.0, 5.0]},
            {"x": [1.0, 2.0, 4.0], "y": [2.0, 1.0, 0.5]},
            {"x": [0.0, 1.0, 1.0, 3.5], "y": [7.0, -2.0, 4.0, 4.0]},
        ],
        raises="x and y differ in length, or one of them has fewer than two different values",
        errors=[
            {"x": [1.0, 2.0], "y": [3.0]},
            {"x": [1.0, 1.0], "y": [3.0, 4.0]},
            {"x": [1.0, 2.0], "y": [3.0, 3.0]},
            {"x": [], "y": []},
        ],
    )


FAMILY = Family(
    name="summary_statistics",
    subject="statistics of a list of values",
    tools=(
        ToolTemplate(level=1, make=_mean),
        ToolTemplate(level=2, make=_trimmed),
        ToolTemplate(level=3, make=_quantile),
        ToolTemplate(level=2, make=_spread),
        ToolTemplate(level=2, make=_mode),
        ToolTemplate(level=3, make=_outliers),
        ToolTemplate(level=2, make=_pairs),
    ),
)
