"""Version numbers of software."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VERSIONS = ["1.2", "1.2.0", "1.10.3", "0.9", "2", "2.0.1", "1.2.10", "10.0", "1.02.3", "1.9.9", "2.0.0", "0.9.12"]
_CLOSE = [
    "1.2",
    "1.2.0",
    "1.2.3",
    "1.2.0.1",
    "1.2.3.4",
    "1.2.3.10",
    "1.02.3.5",
    "1.2.10",
    "1.10.3",
    "1.10.3.7",
    "2.0.1",
]
_CLOSE += ["1"]
_COUNT = {2: "two", 3: "three", 4: "four"}


def _compare(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4])
    name, newer, older, sign = rng.choice([("newer", "higher", "lower", ">"), ("older", "lower", "higher", "<")])
    zeros = ", 0" * (size - 1)
    return ToolVariant(
        name=f"place_where_left_is_{name}_in_{_COUNT[size]}_parts",
        args={"left": "str", "right": "str"},
        returns="int",
        does=(
            f"Compare the first {size} parts of two version numbers and return the place (1 to {size}) of the first "
            f"part that differs, as a negative number if left's part is {older} there; 0 if none differs.",
            f"Find the first of {size} parts in which the versions differ. Return its place, counted from 1, if left's "
            f"number is {newer} there than right's, and minus its place if it is {older}; return 0 for equal versions.",
            f"Return 0 if left and right agree in their first {size} parts. Otherwise return n or -n, where part n is "
            f"the first that is different, and the sign is plus if left has the {newer} number there.",
        ),
        behaviour=[
            "A version is one to four whole numbers with dots between; parts are compared as numbers, from the left.",
            f"Parts that are missing count as 0, and parts that are not among the first {size} are ignored.",
        ],
        body=(
            f"a, b = [[*map(int, version.split('.')){zeros}][:{size}] for version in (left, right)]\n"
            f"for place in range({size}):\n"
            "    if a[place] != b[place]:\n"
            f"        return place + 1 if a[place] {sign} b[place] else -place - 1\n"
            "return 0"
        ),
        draw={side: {"kind": "choice", "values": _VERSIONS if size == 2 else _CLOSE} for side in ("left", "right")},
        edges=[
            {"left": "1", "right": "1.0.0.0"},
            {"left": "1.0", "right": "1.0.0.5"},
            {"left": "1.0.1", "right": "1"},
            {"left": "3.9", "right": "3.10"},
            {"left": "3", "right": "3.0.1"},
            {"left": "3.0.0.1", "right": "3.0"},
            {"left": "4", "right": "4.1"},
        ],
    )


def _bump(rng: random.Random) -> ToolVariant:
    name, place, rest = rng.choice([("first", 0, "0, 0"), ("second", 1, "0"), ("third", 2, "")])
    default, step = rng.choice([(1, 2), (1, 10), (1, 5), (2, 100)])
    later = {"first": "The second and the third become 0.", "second": "The first stays, the third becomes 0."}
    return ToolVariant(
        name=f"raise_{name}_version_part_by_{step}",
        args={"version": "str"},
        returns="str",
        does=(
            f"Raise the {name} number of a version such as 1.4.12 by `step` and return the new version.",
            f"Return the version that comes after this one when its {name} part grows by `step`.",
            f"Add `step` to the {name} of the three numbers between the dots, and write the version again.",
        ),
        behaviour=[later.get(name, "The first and the second stay."), "Zeros in front of any number are dropped."],
        body=(
            "import re\n\n"
            "if not re.fullmatch('[0-9]+[.][0-9]+[.][0-9]+', version):\n    raise ValueError('no version')\n"
            "parts = [int(part) for part in version.split('.')]\n"
            f"parts[{place}:] = [parts[{place}] + config.step{', ' + rest if rest else ''}]\n"
            "return '.'.join(str(part) for part in parts)"
        ),
        draw={
            "version": {
                "kind": "template",
                "pattern": "{a}.{b}.{c}",
                "parts": {
                    "a": {"kind": "integer", "low": 0, "high": 12},
                    "b": {"kind": "integer", "low": 0, "high": 30},
                    "c": {"kind": "choice", "values": ["0", "7", "15", "007", "99"]},
                },
            }
        },
        edges=["0.0.0", "01.02.03", "9.9.9"],
        raises="version is not three whole numbers with two dots between them",
        errors=["", "1.2", "1.2.3.4", "v1.2.3", "1.x.3"],
        options={"step": Option(type="int", default=default, set=step)},
    )


def _extreme(rng: random.Random) -> ToolVariant:
    name, word, code = rng.choice([("newest", "highest", "max"), ("oldest", "lowest", "min")])
    mark, cut, written, code_of_cut = rng.choice(
        [
            ("blanks", " ", "white space", ""),
            ("commas", ",", "','", "','"),
            ("bars", "|", "'|'", "'|'"),
            ("slashes", "/", "'/'", "'/'"),
        ]
    )
    return ToolVariant(
        name=f"{name}_version_between_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the {name} of the version numbers in the text, which has {written} between its items.",
            f"Split the text at {written}, keep the items that are version numbers, and return the {word} one.",
            f"Find among the items of the text, separated by {written}, the {word} version number.",
        ),
        behaviour=[
            "A version is one or more whole numbers with single dots between; other items are ignored, and so is white "
            "space around an item.",
            "Versions are compared number by number from the left; one that another begins with is the lower one.",
            "Of equal ones the first in the text is returned, as it is written; without any the result is ''.",
        ],
        body=(
            "import re\n\n"
            f"items = [item.strip() for item in text.split({code_of_cut})]\n"
            "found = [item for item in items if re.fullmatch('[0-9]+([.][0-9]+)*', item)]\n"
            f"return {code}(found, key=lambda item: [int(part) for part in item.split('.')], default='')"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [*_VERSIONS, "v3", "beta", "1..2", "9.", "01.10.3", "3.1-x"],
                "min": 2,
                "max": 5,
                "separator": cut + " ",
            }
        },
        edges=["", "none", f"2.0{cut}02.0", cut.join(_VERSIONS[::-1])],
    )


def _normal(rng: random.Random) -> ToolVariant:
    size = rng.choice([2, 3, 4])
    name, sign, how = rng.choice([("plain", "", "without a 'v'"), ("with_v", "'v' + ", "with one 'v' in front")])
    zeros = ", '0'" * (size - 1)
    return ToolVariant(
        name=f"version_in_{_COUNT[size]}_parts_{name}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Write a version number with exactly {size} numbers and {how}.",
            f"Bring a version into a fixed form: {size} numbers with dots between, {how}.",
            f"Return the version {how}, padded with zeros or cut so that it has {size} numbers.",
        ),
        behaviour=[
            "A version is one or more whole numbers with single dots between, maybe with one 'v' or 'V' in front; "
            "white space around it is ignored.",
            "Missing numbers are 0, numbers that are too many at the end are dropped, and numbers lose zeros in front.",
            "A text that is no version is returned unchanged.",
        ],
        body=(
            "import re\n\n"
            "if not re.fullmatch('[vV]?[0-9]+([.][0-9]+)*', text.strip()):\n    return text\n"
            "parts = [str(int(part)) for part in re.findall('[0-9]+', text)]\n"
            f"return {sign}'.'.join([*parts{zeros}][:{size}])"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{v}{a}{b}{end}",
                "parts": {
                    "v": {"kind": "choice", "values": ["", "v", "V", " v", "ver"]},
                    "a": {"kind": "choice", "values": ["1", "0", "02", "10", "7"]},
                    "b": {"kind": "choice", "values": ["", ".5", ".0.03", ".1.20.3", ".4.4.4.4.4", ".9.1"]},
                    "end": {"kind": "choice", "values": ["", "", " ", ".", ".6"]},
                },
            }
        },
        edges=["", "v", "1..2", "v1.2.3.4.5", "3"],
        laws=[{"kind": "idempotent"}],
    )


def _fits(rng: random.Random) -> ToolVariant:
    mark, written = rng.choice([("comma", "commas"), ("blank", "blanks")])
    cut = {"comma": ", ", "blank": " "}[mark]
    name, every, code = rng.choice([("all", "every one", "all"), ("any", "at least one", "any")])
    return ToolVariant(
        name=f"fits_{name}_limits_between_{written}",
        args={"version": "str", "limits": "str"},
        returns="bool",
        does=(
            f"Say whether the version satisfies {every} of the limits, such as '>=1.2.0{cut}<2.0.0'.",
            f"Return True if {every} of the conditions in limits holds for the version; a condition is one of the "
            f"signs <, <=, >, >=, = and a version, as in '>1.0.0{cut}<=1.4.2'.",
            f"Test a version against limits like '<3.0.0{cut}>=2.1.0', {every} of which must be met.",
        ),
        behaviour=[
            f"Limits have '{cut}' between them; there is at least one, and none has white space inside.",
            "All versions are three whole numbers with dots between, compared as numbers from the left.",
        ],
        body=(
            "def numbers(text: str) -> list[int]:\n    return [int(part) for part in text.strip('<=>').split('.')]\n\n"
            "own, met = numbers(version), []\n"
            f"for limit in limits.split({cut!r}):\n"
            "    other = numbers(limit)\n"
            "    sign = '<' if own < other else '>' if own > other else '='\n"
            "    met.append(sign in limit)\n"
            f"return {code}(met)"
        ),
        draw={
            "version": {"kind": "choice", "values": ["1.2.3", "1.10.0", "2.0.0", "1.4.9", "0.9.9", "2.0.1", "1.3.0"]},
            "limits": {
                "kind": "words",
                "values": (
                    [">=1.2.3", "<2.0.0", ">0.9.9", "<=2.0.0", ">=1.4.9", "<1.10.0", ">1.3.0", "<1.4.0"]
                    if name == "all"
                    else ["=1.2.3", "<1.4.0", ">2.0.0", ">=1.10.0", "<1.3.0", "=2.0.1"]
                ),
                "min": 1 if name == "all" else 2,
                "max": 2 if name == "all" else 3,
                "separator": cut,
            },
        },
        edges=[
            {"version": "1.2.3", "limits": f">=1.2.3{cut}<1.2.3"},
            {"version": "1.2.3", "limits": "<=1.2.3"},
            {"version": "1.10.0", "limits": f">1.9.0{cut}=1.9.0"},
            {"version": "1.2.3", "limits": "=1.2.4"},
            {"version": "0.1.0", "limits": ">=0.2.0"},
        ],
    )


def _sorted(rng: random.Random) -> ToolVariant:
    name, stages = rng.choice(
        [
            ("alpha_beta_rc", ["alpha", "beta", "rc"]),
            ("dev_test_gold", ["dev", "test", "gold"]),
            ("nightly_weekly", ["nightly", "weekly"]),
        ]
    )
    order, first, tail = rng.choice([("oldest", "oldest", ""), ("newest", "newest", ", reverse=True")])
    listed = ", ".join(stages)
    return ToolVariant(
        name=f"releases_{name}_{order}_first",
        args={"versions": "list[str]"},
        returns="list[str]",
        does=(
            f"Sort versions such as '1.4.0' and '1.4.0-{stages[0]}', the {first} first. With equal numbers, stages are "
            f"older than the release itself and rank in this order: {listed}.",
            f"Return the versions ordered by their numbers and then by stage ({listed}, and last the plain version "
            f"without a stage), so that the {first} comes first.",
            f"Order releases and their early stages ('-' and one of {listed} behind the numbers), beginning with the "
            f"{first}. Of versions with the same numbers the oldest is that of the earliest stage, and the newest the "
            "one without a stage.",
        ),
        behaviour=[
            "The numbers are three whole ones with dots between, compared as numbers from the left.",
            "Duplicates stay, and an empty list gives an empty list.",
        ],
        body=(
            f"stages = {stages}\n\n"
            "def rank(version: str) -> tuple[list[int], int]:\n"
            "    numbers, dash, stage = version.partition('-')\n"
            "    return [int(part) for part in numbers.split('.')], stages.index(stage) if dash else len(stages)\n\n"
            f"return sorted(versions, key=rank{tail})"
        ),
        draw={
            "versions": {
                "kind": "list",
                "item": {
                    "kind": "choice",
                    "values": [v + s for v in ("1.2.0", "1.10.0", "1.9.4") for s in ("", *(f"-{s}" for s in stages))],
                },
                "min": 2,
                "max": 6,
            }
        },
        edges=[[], ["2.0.0", *(f"2.0.0-{stage}" for stage in stages)], ["1.0.10", "1.0.9", "10.0.0", "9.0.0"]],
        laws=[{"kind": "idempotent"}, {"kind": "permutation_invariant"}],
    )


FAMILY = Family(
    name="version_numbers",
    subject="version numbers of software",
    tools=(
        ToolTemplate(level=2, make=_compare),
        ToolTemplate(level=2, make=_bump),
        ToolTemplate(level=2, make=_extreme),
        ToolTemplate(level=1, make=_normal),
        ToolTemplate(level=3, make=_fits),
        ToolTemplate(level=3, make=_sorted),
    ),
)
