"""Windows that move over a list."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_NUMBERS = {"kind": "list", "item": {"kind": "integer", "low": -9, "high": 20}, "min": 3, "max": 9}
_RUNS = [
    [3] * level + list(range(up)) + list(range(8, 8 - down, -1))
    for level in (1, 2, 3, 5)
    for up in (1, 3, 4)
    for down in (2, 3, 4, 6)
]
_SIZES = {2: "two", 3: "three", 4: "four", 5: "five"}


def _sliding(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4])
    name, what, code = rng.choice(
        [
            ("sums", "sum", "sum(numbers[i : i + {0}])"),
            ("maxima", "largest number", "max(numbers[i : i + {0}])"),
            ("minima", "smallest number", "min(numbers[i : i + {0}])"),
            (
                "spreads",
                "largest number minus the smallest one",
                "max(numbers[i : i + {0}]) - min(numbers[i : i + {0}])",
            ),
        ]
    )
    return ToolVariant(
        name=f"sliding_{name}_over_{_SIZES[size]}",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"For every window of {size} neighbouring numbers, from left to right, give the {what} of the window.",
            f"Slide a window of width {size} over the list one place at a time and collect for each place: the {what} "
            "in the window.",
            f"Return a list of which item number i is the {what} among the {size} numbers that start at number i.",
        ),
        behaviour=[
            "Only whole windows count.",
            f"A list with fewer than {size} numbers gives an empty list.",
        ],
        body=f"return [{code.format(size)} for i in range(len(numbers) - {size - 1})]",
        draw={"numbers": _NUMBERS},
        edges=[[], [5, 1, 4, 2], [1, 2, 3, 4, 5, 6, 7], [7]],
    )


def _smooth(rng: random.Random) -> ToolVariant:
    default, value = rng.choice([(2, 3), (3, 5), (4, 6), (3, 7)])
    name, what, place, part = rng.choice(
        [
            ("trailing", "ends with", "before it", "values[max(0, i - config.size + 1) : i + 1]"),
            ("leading", "starts with", "after it", "values[i : i + config.size]"),
        ]
    )
    return ToolVariant(
        name=f"{name}_means_over_up_to_{value}",
        args={"values": "list[float]"},
        returns="list[float]",
        does=(
            f"Replace each value by the mean of the window of `size` values that {what} it.",
            f"Return the moving average: for each value, the mean of itself and the `size` - 1 values {place}.",
            f"Smooth the list: every value becomes the average of at most `size` values, namely itself and those right "
            f"{place}.",
        ),
        behaviour=[
            "Where the list has fewer values on that side, the mean is over those that there are.",
            "Each mean is rounded to 3 digits.",
        ],
        body=(
            "if not values:\n    raise ValueError('no values')\n"
            "means = []\n"
            "for i in range(len(values)):\n"
            f"    window = {part}\n"
            "    means.append(round(sum(window) / len(window), 3))\n"
            "return means"
        ),
        draw={
            "values": {
                "kind": "list",
                "item": {"kind": "number", "low": -20.0, "high": 60.0, "digits": 1},
                "min": 2,
                "max": 9,
            }
        },
        edges=[[1.5], [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0]],
        raises="values is an empty list",
        errors=[[], []],
        options={"size": Option(type="int", default=default, set=value)},
    )


def _blocks(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4])
    stat, what = rng.choice([("sum", "the sum"), ("max", "the largest number")])
    name, rest, stop = rng.choice(
        [
            ("with_rest", "A shorter block at the end counts like any other.", "len(numbers)"),
            ("without_rest", "A shorter block at the end is ignored.", f"len(numbers) - {size - 1}"),
        ]
    )
    return ToolVariant(
        name=f"{stat}_of_blocks_of_{_SIZES[size]}_{name}",
        args={"numbers": "list[int]"},
        returns="list[int]",
        does=(
            f"Cut the list into blocks of {size} numbers and return {what} of every block.",
            f"Take the numbers {size} at a time, never one twice, and give {what} for each group of {size}.",
            f"Return, block after block, {what} of each {size} successive numbers, where blocks do not overlap.",
        ),
        behaviour=["Blocks are counted from the start of the list.", rest, "An empty list gives an empty list."],
        body=f"return [{stat}(numbers[i : i + {size}]) for i in range(0, {stop}, {size})]",
        draw={"numbers": {**_NUMBERS, "min": 4, "max": 10}},
        edges=[[], [3], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [9, 8, 7, 6, 5]],
    )


def _run(rng: random.Random) -> ToolVariant:
    name, what, each, test = rng.choice(
        [
            ("rising", "strictly rising", "higher than", "n > numbers[i - 1]"),
            ("falling", "strictly falling", "lower than", "n < numbers[i - 1]"),
            ("level", "equal", "equal to", "n == numbers[i - 1]"),
            ("not_falling", "never falling", "at least as high as", "n >= numbers[i - 1]"),
            ("not_rising", "never rising", "at most as high as", "n <= numbers[i - 1]"),
            ("changing", "ever changing", "different from", "n != numbers[i - 1]"),
        ]
    )
    return ToolVariant(
        name=f"length_of_longest_{name}_run",
        args={"numbers": "list[int]"},
        returns="int",
        does=(
            f"Return how long the longest {what} stretch is: neighbouring numbers of which each is {each} the one "
            "right before it.",
            f"Find the longest run of neighbours where every number but the first is {each} its predecessor, and give "
            "the number of its members.",
            f"Count the members of the longest piece of the list (without gaps) in which each further number is {each} "
            "the previous one.",
        ),
        behaviour=["A single number is a run of length 1.", "An empty list gives 0."],
        body=(
            "best = length = 0\n"
            "for i, n in enumerate(numbers):\n"
            f"    length = length + 1 if i > 0 and {test} else 1\n"
            "    best = max(best, length)\n"
            "return best"
        ),
        draw={
            "numbers": {
                "kind": "one_of",
                "of": [
                    {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 4}, "min": 1, "max": 12},
                    {"kind": "choice", "values": _RUNS},
                    {"kind": "choice", "values": _RUNS},
                ],
            }
        },
        edges=[[], [4], [2, 2, 2, 1, 3, 5, 7, 9, 9], [9, 7, 5, 3, 3, 8, 8, 8, 8], [1, 2, 3, 3, 2, 1]],
        laws=[{"kind": "bounds", "low": 0}],
    )


def _phrases(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3])
    mark, joint = rng.choice([("dash", "-"), ("plus", "+"), ("underscore", "_"), ("dot", ".")])
    return ToolVariant(
        name=f"phrases_of_{_SIZES[size]}_words_with_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return all phrases of {size} neighbouring words of the text, each with '{joint}' between its words and "
            "one blank between phrases.",
            f"List the word groups of length {size}: for every word with {size - 1} more after it, that word and these "
            f"joined by '{joint}'. The groups are separated by one blank.",
            f"Slide a window of {size} words over the text, write each window with '{joint}' instead of white space, "
            "and separate the windows by one blank.",
        ),
        behaviour=[
            "Words are separated by white space, and the phrases keep the order of the text.",
            f"Fewer than {size} words give the empty string.",
        ],
        body=(
            "words = text.split()\n"
            f"phrases = [{joint!r}.join(words[i : i + {size}]) for i in range(len(words) - {size - 1})]\n"
            "return ' '.join(phrases)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["red", "Sky", "over", "the", "old", "sea", "x1", "end."],
                "min": size,
                "max": 7,
            }
        },
        edges=["", "one", "a  b\tc d e"],
    )


def _densest(rng: random.Random) -> ToolVariant:
    size = rng.choice([4, 5, 8])
    name, what, characters, code = rng.choice(
        [
            (
                "vowels",
                "vowels (a, e, i, o, u, in either case)",
                "aeiouAEIOU",
                "sum(c in 'aeiou' for c in part.lower())",
            ),
            ("digits", "digits 0 to 9", "0123456789", "sum(c in '0123456789' for c in part)"),
            ("blanks", "blanks", "  ", "part.count(' ')"),
            ("different", "different characters", "abcdefgh", "len(set(part))"),
        ]
    )
    filler = "a" if name == "different" else "x"
    return ToolVariant(
        name=f"most_{name}_in_any_{size}_characters",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the largest number of {what} that any {size} successive characters of the text have.",
            f"Slide a window of {size} characters over the text, count the {what} in each, and return the highest "
            "count.",
            f"Find the piece of {size} neighbouring characters with the most {what}, and return how many it has.",
        ),
        behaviour=[f"A text with fewer than {size} characters is one piece, also if it is empty."],
        body=(
            f"parts = [text[i : i + {size}] for i in range(len(text) - {size - 1})] or [text]\n"
            f"return max({code} for part in parts)"
        ),
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    {"kind": "text", "alphabet": alphabet, "min": 3, "max": 16}
                    for alphabet in (
                        characters + "xx",
                        characters + 2 * len(characters) * "x",
                        characters[:2] + 6 * "x",
                    )
                ],
            }
        },
        edges=[
            "",
            "a",
            "x" * size,
            *((filler * size + characters * size)[: end + size] for end in (size, size + 1)),
            "oOuUiE 789",
        ],
        laws=[{"kind": "bounds", "low": 0, "high": size}],
    )


FAMILY = Family(
    name="list_windows",
    subject="windows over a list",
    tools=(
        ToolTemplate(level=1, make=_sliding),
        ToolTemplate(level=2, make=_smooth),
        ToolTemplate(level=2, make=_blocks),
        ToolTemplate(level=3, make=_run),
        ToolTemplate(level=2, make=_phrases),
        ToolTemplate(level=3, make=_densest),
    ),
)
