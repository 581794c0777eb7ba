"""Run-length coding."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_RUN = "A run is a stretch of equal neighbouring characters that cannot be made longer; a single character is one too."
_RUNS = {
    "kind": "words",
    "values": ["a", "aa", "aaa", "A", "bb", "bbbb", "c", "  ", "B", "cc"],
    "min": 2,
    "max": 7,
    "separator": "",
}


def _encode(rng: random.Random) -> ToolVariant:
    form, shown, code = rng.choice(
        [
            ("count_after", "cN", "f'{c}{count}'"),
            ("count_before", "Nc", "f'{count}{c}'"),
            ("star", "c*N,", "f'{c}*{count},'"),
            ("brackets", "c(N)", "f'{c}({count})'"),
        ]
    )
    least = rng.choice([1, 2, 3])
    short = (
        f"Runs of fewer than {least} characters are copied as they are" if least > 1 else "Runs of one are coded too"
    )
    return ToolVariant(
        name=f"encode_runs_{form}_from_{least}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text with every run of N equal characters c written as "{shown}".',
            f'Run-length encode the text: "{shown}" stands for N times the character c in a row.',
            f'Replace each run of the text by "{shown}", where c is its character and N its length.',
        ),
        behaviour=[
            _RUN,
            f"{short}; there is nothing between the codes.",
            "Upper and lower case differ, and blanks count.",
        ],
        body=(
            "from itertools import groupby\n"
            "coded = ''\n"
            "for c, run in groupby(text):\n"
            "    count = len(list(run))\n"
            f"    coded += {code} if count >= {least} else c * count\n"
            "return coded"
        )
        if least > 1
        else (
            "from itertools import groupby\n"
            "runs = [(c, len(list(run))) for c, run in groupby(text)]\n"
            f"return ''.join({code} for c, count in runs)"
        ),
        draw={"text": _RUNS},
        edges=["", "z", "aab", "aaaaaaaaaaaa", "abc", "a  bBb", "xxyyyzzzz"],
    )


def _decode(rng: random.Random) -> ToolVariant:
    order, shown, one, many = rng.choice(
        [
            ("before", "Nc", "([0-9]{N})([a-z])", "n, c"),
            ("after", "cN", "([a-z])([0-9]{N})", "c, n"),
        ]
    )
    is_bare = rng.random() < 0.5
    marks = rng.choice(["letters", "capitals"])
    letters, wording = {"letters": ("a-z", "a to z"), "capitals": ("A-Z", "A to Z")}[marks]
    pattern = one.replace("a-z", letters).replace("{N}", "{0,2}" if is_bare else "{1,2}")
    low = "a" if marks == "letters" else "A"
    mid, high = chr(ord(low) + 1), chr(ord(low) + 2)

    def code(count: str, letter: str) -> str:
        return f"{count}{letter}" if order == "before" else f"{letter}{count}"

    count = "int(n or 1)" if is_bare else "int(n)"
    values = [code(n, c) for n, c in [("2", low), ("1", mid), ("3", high), ("11", low), ("0", mid), ("4", mid)]]
    single = [code("", high), code("", low)] if is_bare else []
    return ToolVariant(
        name=f"decode_count_{order}_{marks}_{'bare_too' if is_bare else 'always'}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Decode the text, in which "{shown}" stands for N times the letter c.',
            f'Return the text that the codes "{shown}" describe, each meaning the letter c repeated N times.',
            f'Undo run-length coding: replace each "{shown}" by N letters c.',
        ),
        behaviour=[
            f"Letters c are {wording}; a count N has one or two digits 0 to 9 and may be zero.",
            "A letter without a count stands for itself, once." if is_bare else "Every letter has a count.",
            "Codes follow each other with nothing in between; the empty text gives the empty text.",
        ],
        body=(
            "import re\n"
            f"if not re.fullmatch({f'({pattern})*'!r}, text):\n"
            "    raise ValueError('not a code')\n"
            f"return ''.join(c * {count} for {many} in re.findall({pattern!r}, text))"
        ),
        draw={"text": {"kind": "words", "values": [*values, *single], "min": 1, "max": 5, "separator": ""}},
        edges=["", code("12", low), code("3", high) + code("2", low), code("99", mid), *single],
        raises="the text is not a sequence of such codes",
        errors=["7", "-", code("100", low), f"{values[0]} {values[1]}", code("2", "?"), *([] if is_bare else [low])],
    )


def _count(rng: random.Random) -> ToolVariant:
    size = rng.choice([1, 2, 3])
    how, wording, sign = rng.choice(
        [("at_least", "at least {n} characters", ">="), ("exactly", "exactly {n} characters", "==")]
    )
    is_blind = rng.random() < 0.5
    case = "if lower-casing makes them the same" if is_blind else "only if they have the same case"
    wording = wording.format(n=size).replace("1 characters", "1 character")
    return ToolVariant(
        name=f"count_runs_of_{how}_{size}_{'any_case' if is_blind else 'by_case'}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return how many runs of {wording} the text has.",
            f"Count the runs of the text that consist of {wording}.",
            f"Split the text into runs and give the number of those with {wording}.",
        ),
        behaviour=[_RUN, f"Characters are equal {case}; blanks are characters."],
        body=(
            "from itertools import groupby\n"
            f"runs = [list(run) for _, run in groupby(text{'.lower()' if is_blind else ''})]\n"
            f"return len([run for run in runs if len(run) {sign} {size}])"
        ),
        draw={
            "text": {**_RUNS, "values": ["a", "aa", "bbb", "AA", "BB", "c", "cc", "d", "ddd", "B"], "min": 2, "max": 14}
        },
        edges=["", "a", "aA", "aab bccc", "aabbcc", "aaaaabbbcc", "ßss", "ßs", "ßSs", "xßß"],
    )


def _longest(rng: random.Random) -> ToolVariant:
    tie = rng.choice(["first", "last"])
    kind, wording, test = rng.choice(
        [
            ("any", "characters", ""),
            ("letters", "letters a to z (in either case)", "run[0].isascii() and run[0].isalpha()"),
            ("digits", "digits 0 to 9", "run[0].isascii() and run[0].isdigit()"),
        ]
    )
    filtered = f" if {test}" if test else ""
    order = "runs" if tie == "first" else "reversed(runs)"
    return ToolVariant(
        name=f"longest_run_of_{kind}_{tie}_tie",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the longest run of equal {wording} in the text.",
            f"Find the runs of equal {wording} in the text and return the longest of them.",
            f"Look only at runs of {wording}, and give the longest as it stands in the text.",
        ),
        behaviour=[
            _RUN,
            f"Of several equally long ones the {tie} is returned; without any, the empty text.",
            "Upper and lower case differ.",
        ],
        body=(
            "from itertools import groupby\n"
            "runs = [''.join(run) for _, run in groupby(text)]\n"
            f"return max((run for run in {order}{filtered}), key=len, default='')"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["a", "aa", "b", "BBB", "77", "1", "000", "   ", "--", "cc", "2", "99", "d", "x"],
                "min": 3,
                "max": 8,
                "separator": "",
            }
        },
        edges=["", "-", "Aaa", "aabb1122", "12", "ab", "   zz33", "üüüü--²²"],
        laws=[{"kind": "idempotent"}],
    )


def _lengths(rng: random.Random) -> ToolVariant:
    least = rng.choice([1, 2, 3])
    order, wording, code = rng.choice(
        [
            ("as_found", "in the order of the text", "lengths"),
            ("longest_first", "from the longest to the shortest", "sorted(lengths, reverse=True)"),
            ("shortest_first", "from the shortest to the longest", "sorted(lengths)"),
        ]
    )
    return ToolVariant(
        name=f"run_lengths_from_{least}_{order}",
        args={"text": "str"},
        returns="list[int]",
        does=(
            f"Return the lengths of all runs of at least `least` equal characters, {wording}.",
            f"List how long the runs of the text are, without those of fewer than `least` characters, {wording}.",
            f"Split the text into runs and give the lengths that are `least` or more, {wording}.",
        ),
        behaviour=[_RUN, "Upper and lower case differ, and blanks count.", "Equal lengths are listed each time."],
        body=(
            "from itertools import groupby\n"
            "lengths = [len(list(run)) for _, run in groupby(text)]\n"
            "lengths = [length for length in lengths if length >= config.least]\n"
            f"return {code}"
        ),
        draw={"text": {**_RUNS, "min": 4, "max": 10}},
        edges=["", "a", "aabccc  d", "zzzzyyx", "xyyzzzz", "aAa"],
        options={"least": Option(type="int", default=least + 3, set=least)},
    )


def _expand(rng: random.Random) -> ToolVariant:
    order, wording, value, count = rng.choice(
        [
            ("value_count", "a value and how often it comes", "pairs[at]", "pairs[at + 1]"),
            ("count_value", "a count and the value that comes so often", "pairs[at + 1]", "pairs[at]"),
        ]
    )
    step, rule, change = rng.choice(
        [
            ("as_is", "", ""),
            ("growing", "The value grows by 1 at each repetition: 5 repeated 3 times gives 5, 6, 7.", "+ offset"),
            ("falling", "The value falls by 1 at each repetition: 5 repeated 3 times gives 5, 4, 3.", "- offset"),
        ]
    )
    item = f"{value} {change}".strip()
    added = f"[{item} for offset in range({count})]" if change else f"[{item}] * {count}"
    counts = "pairs[1::2]" if order == "value_count" else "pairs[::2]"
    return ToolVariant(
        name=f"expand_pairs_{order}_{step}",
        args={"pairs": "list[int]"},
        returns="list[int]",
        does=(
            f"Return the list that the pairs describe; two numbers at a time are {wording}.",
            f"Read the numbers two by two, each time {wording}, and return all values with their repetitions, in "
            "order.",
            f"Expand a run-length coded list in which every two numbers are {wording}.",
        ),
        behaviour=[*([rule] if rule else []), "A count of 0 gives nothing; no numbers give an empty list."],
        body=(
            f"if len(pairs) % 2 or not all(0 <= count <= 20 for count in {counts}):\n"
            "    raise ValueError('not pairs with counts from 0 to 20')\n"
            "expanded = []\n"
            "for at in range(0, len(pairs), 2):\n"
            f"    expanded += {added}\n"
            "return expanded"
        ),
        draw={
            "pairs": {
                "kind": "one_of",
                "of": [
                    {"kind": "list", "item": {"kind": "integer", "low": 0, "high": 6}, "min": size, "max": size}
                    for size in (2, 4, 4, 6)
                ],
            }
        },
        edges=[[], [20, 20], [0, 1], [1, 0, 3, 2], [7, 3, 2, 4, 2, 1]],
        raises="there is an odd number of numbers, or a count is less than 0 or greater than 20",
        errors=[[1], [2, 3, 4], [-1, -1], [21, 21], [3, 2, -2, -2]],
    )


FAMILY = Family(
    name="run_length_coding",
    subject="run-length coding",
    tools=(
        ToolTemplate(level=2, make=_encode),
        ToolTemplate(level=3, make=_decode),
        ToolTemplate(level=1, make=_count),
        ToolTemplate(level=2, make=_longest),
        ToolTemplate(level=2, make=_lengths),
        ToolTemplate(level=3, make=_expand),
    ),
)
