"""Filling values into templates."""

import random
from typing import Any

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_SHAPES = [
    ("<", ">", "angles", "<([a-z]+)>"),
    ("[[", "]]", "squares", r"\[\[([a-z]+)\]\]"),
    ("%", "%", "percents", "%([a-z]+)%"),
    ("${", "}", "dollars", "[$][{]([a-z]+)[}]"),
    ("{", "}", "braces", "[{]([a-z]+)[}]"),
]
_NAMES = ["name", "city", "day", "n", "title", "sum"]


def _text(before: str, after: str) -> dict[str, Any]:
    holes = [f"{before}{name}{after}" for name in _NAMES]
    values = [*holes, *holes, "Dear", "in", f"({holes[1]})", "on", f"{holes[0]}:", f"{before}X1{after}"]
    return {"kind": "words", "values": values, "min": 3, "max": 8, "separator": " "}


def _shape_rule(before: str, after: str) -> str:
    return f'A placeholder is "{before}", one or more letters a to z (its name), and "{after}", without blanks.'


_UNKNOWN = [
    ("kept", "A placeholder whose name is not among the keys stays as it is.", "values.get(m[1], m[0])"),
    ("removed", "A placeholder whose name is not among the keys is replaced by nothing.", "values.get(m[1], '')"),
    ("refused", "", "values[m[1]]"),
]


def _pairs_of(names: list[str], least: int) -> dict[str, Any]:
    pairs = [f"{name}={value}" for name in names for value in ("Ann", "", "7=8", "New York")]
    return {"kind": "list", "item": {"kind": "choice", "values": pairs}, "min": least, "max": 6}


def _maybe_filled(before: str, after: str) -> dict[str, dict[str, Any]]:
    return {"template": _text(before, after), "pairs": _pairs_of(_NAMES, 2)}


def _filled(before: str, after: str) -> dict[str, dict[str, Any]]:
    """Return inputs that mostly have a value for each placeholder."""
    values = [f"{before}n{after}", "Dear", f"{before}day{after}!", "on"]
    return {"template": {"kind": "words", "values": values, "min": 2, "max": 4}, "pairs": _pairs_of(["day", "n"], 4)}


def _pairs(rng: random.Random) -> ToolVariant:
    before, after, word, pattern = rng.choice(_SHAPES)
    unknown, rule, answer = rng.choice(_UNKNOWN)
    wins, code = rng.choice([("first", "values.setdefault(key, value)"), ("last", "values[key] = value")])
    check = (
        f"if set(re.findall({pattern!r}, template)) - set(values):\n    raise ValueError('a value is missing')\n"
        if unknown == "refused"
        else ""
    )
    hole = f"{before}n{after}"
    return ToolVariant(
        name=f"fill_{word}_{wins}_wins_unknown_{unknown}",
        args={"template": "str", "pairs": "list[str]"},
        returns="str",
        does=(
            'Return the template with each placeholder replaced by its value; pairs are "key=value".',
            'Fill in the template: every placeholder gives way to the value of the pair "key=value" whose key is its '
            "name.",
            'Replace all placeholders of the template by the values that the pairs, written "key=value", give for '
            "them.",
        ),
        behaviour=[
            _shape_rule(before, after),
            'The key ends at the first "=" of a pair; a pair without "=" gives the empty value.',
            f"Of several pairs with the same key the {wins} one counts.",
            *([rule] if rule else []),
            "Values are put in as they are: placeholders inside them are not replaced.",
        ],
        body=(
            "import re\n"
            "values = {}\n"
            "for pair in pairs:\n"
            "    key, _, value = pair.partition('=')\n"
            f"    {code}\n"
            f"{check}"
            f"return re.sub({pattern!r}, lambda m: {answer}, template)"
        ),
        draw=_filled(before, after) if unknown == "refused" else _maybe_filled(before, after),
        edges=[
            {"template": "", "pairs": ["n=1"]},
            {"template": f"a {hole}, {hole}", "pairs": ["n=x", "n=y", "m=z"]},
            {"template": f"{hole}!", "pairs": ["n=1=2"]},
            {"template": f"{hole} {before}m m{after} {before}{after}", "pairs": [f"n={hole}"]},
            {"template": f"<{hole}>", "pairs": ["n"]},
        ],
        raises="the name of a placeholder is not among the keys" if unknown == "refused" else "",
        errors=[{"template": hole, "pairs": []}, {"template": f"a {hole}", "pairs": ["m=n"]}]
        if unknown == "refused"
        else [],
    )


def _count(rng: random.Random) -> ToolVariant:
    before, after, word, pattern = rng.choice(_SHAPES)
    what, wording, code = rng.choice(
        [
            ("all", "placeholders, repeated ones each time,", "len(names)"),
            ("different", "different placeholders", "len(set(names))"),
            ("letters_of", "letters in the names of all placeholders, repeated ones each time,", "len(''.join(names))"),
        ]
    )
    return ToolVariant(
        name=f"count_{what}_placeholders_in_{word}",
        args={"template": "str"},
        returns="int",
        does=(
            f"Return the number of {wording} in the template.",
            f"Count the {wording} in the template.",
            f"Tell how many {wording} there are in the template.",
        ),
        behaviour=[_shape_rule(before, after), "They are found from left to right and do not overlap."],
        body=f"import re\nnames = re.findall({pattern!r}, template)\nreturn {code}",
        draw={"template": {**_text(before, after), "min": 2, "max": 9}},
        edges=["", f"{before}a{after}{before}b{after}{before}a{after}", f"{before}A{after} {before}{after}", "name"],
    )


def _names(rng: random.Random) -> ToolVariant:
    before, after, word, pattern = rng.choice(_SHAPES)
    order, wording, code = rng.choice(
        [
            ("as_found", "in the order of the template, repeated ones each time", "names"),
            ("first_seen", "each once, in the order in which they occur first", "list(dict.fromkeys(names))"),
            ("sorted", "each once, in alphabetical order", "sorted(set(names))"),
            ("backwards", "from the last to the first, repeated ones each time", "names[::-1]"),
        ]
    )
    return ToolVariant(
        name=f"names_in_{word}_{order}",
        args={"template": "str"},
        returns="list[str]",
        does=(
            f"Return the names of the template's placeholders, {wording}.",
            f"List which names the placeholders of the template have, {wording}.",
            f"Find all placeholders and give their names without the marks around them, {wording}.",
        ),
        behaviour=[_shape_rule(before, after), "Without placeholders the list is empty."],
        body=f"import re\nnames = re.findall({pattern!r}, template)\nreturn {code}",
        draw={"template": _text(before, after)},
        edges=[
            "",
            f"{before}b{after}{before}a{after}{before}b{after}",
            f"{before}A{after}",
            f"{before}{before}x{after}{after}",
        ],
    )


def _numbered(rng: random.Random) -> ToolVariant:
    sign, word = rng.choice([("$", "dollar"), ("#", "hash"), ("@", "at_sign"), ("%", "percent")])
    first = rng.choice([0, 1])
    unknown = rng.choice(["kept", "refused"])
    index = "int(m[1])" if first == 0 else "int(m[1]) - 1"
    test = "int(d) < len(values)" if first == 0 else "1 <= int(d) <= len(values)"
    bad = "raise ValueError('there is no such value')"
    kept = f"values[{index}] if {test.replace('d)', 'm[1])')} else m[0]"
    check = f"for d in re.findall({f'[{sign}]([0-9])'!r}, template):\n    if not {test}:\n        {bad}\n"
    values = ["red", "", "two words", "7", f"{sign}1"]
    digits = range(first, first + 4)
    return ToolVariant(
        name=f"fill_numbers_after_{word}_from_{first}_{unknown}",
        args={"template": "str", "values": "list[str]"},
        returns="str",
        does=(
            f'Return the template with each "{sign}" and digit replaced by the value with that number.',
            f'Fill the values into the template where "{sign}" followed by one digit stands; the digit says which '
            "value.",
            f'Replace every "{sign}" that is followed by a digit, and that digit, by the value that the digit names.',
        ),
        behaviour=[
            f"The first value has number {first}.",
            f'Only one digit belongs to it: "{sign}12" is value 1 and the character 2.',
            *([f'"{sign}" with a digit for which there is no value stays as it is.'] if unknown == "kept" else []),
            "Values are put in as they are, and nothing inside them is replaced.",
        ],
        body=(
            "import re\n"
            f"{check if unknown == 'refused' else ''}"
            f"return re.sub({f'[{sign}]([0-9])'!r}, lambda m: {kept if unknown == 'kept' else f'values[{index}]'}, "
            "template)"
        ),
        draw={
            "template": {
                "kind": "words",
                "values": [*(f"{sign}{d}" for d in digits), "and", f"{sign}{first}{first + 1}.", sign, "so"],
                "min": 1,
                "max": 4,
            },
            "values": {"kind": "list", "item": {"kind": "choice", "values": values}, "min": 2, "max": 6},
        },
        edges=[
            {"template": "", "values": []},
            {"template": f"{sign}1{sign}1 {sign}{first}", "values": ["a", "b"]},
            {"template": f"{sign}{first + 1}", "values": ["a", "b"]},
            {"template": f"{sign}x 5 {sign}", "values": ["a"]},
            *([{"template": f"{sign}0 {sign}1 {sign}2 {sign}9", "values": ["p", "q"]}] if unknown == "kept" else []),
        ],
        raises="the template asks for a value that does not exist" if unknown == "refused" else "",
        errors=[
            {"template": f"{sign}{first}", "values": []},
            {"template": f"a {sign}{first + 2}", "values": ["b", "c"]},
            {"template": f"{sign}{0 if first else 9}", "values": ["b", "c"]},
        ]
        if unknown == "refused"
        else [],
    )


def _greeting(rng: random.Random) -> ToolVariant:
    word = rng.choice(["Hello", "Welcome", "Dear", "Good morning"])
    form, wording, code = rng.choice(
        [
            ("name_last", '"<greeting>, <name>!"', "f'{config.greeting}, {name}!'"),
            ("name_first", '"<name>: <greeting>"', "f'{name}: {config.greeting}'"),
            ("bracketed", '"<greeting> (<name>)"', "f'{config.greeting} ({name})'"),
        ]
    )
    return ToolVariant(
        name=f"greet_{form}_{word.lower().replace(' ', '_')}",
        args={"name": "str"},
        returns="str",
        does=(
            f"Return {wording}, where <greeting> is the option `greeting` and <name> the cleaned name.",
            f"Write a greeting of the form {wording} with the option `greeting` and the cleaned name.",
            f"Fill the cleaned name and the option `greeting` into {wording}.",
        ),
        behaviour=[
            "To clean a name, remove white space at both ends and make every run of white space in it one blank."
        ],
        body=(f"name = ' '.join(name.split())\nif not name:\n    raise ValueError('the name is empty')\nreturn {code}"),
        draw={"name": {"kind": "words", "values": ["Ann", "van Dyk", "Li", "Zoë", "O'Hara", ""], "min": 2, "max": 4}},
        edges=["x", " Ann  Lee ", "Bo\tB"],
        raises="the name is empty or only white space",
        errors=["", "  ", "\t"],
        options={"greeting": Option(type="str", default="Hi", set=word)},
    )


def _gaps(rng: random.Random) -> ToolVariant:
    gap, word = rng.choice([("___", "underscores"), ("...", "dots"), ("???", "question_marks"), ("---", "dashes")])
    before, after, sign = rng.choice([("(", ")", "brackets"), ("#", "", "hash"), ("[", "]", "squares")])
    first, step = rng.choice([(1, 1), (0, 1), (1, 2), (10, 10)])
    return ToolVariant(
        name=f"number_{word}_in_{sign}_from_{first}_by_{step}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text with each gap "{gap}" replaced by "{before}N{after}", N being {first} for the first '
            "gap and "
            f"{step} more for each next one.",
            f'Number the gaps "{gap}" of the text from left to right: the first becomes "{before}{first}{after}", the '
            f'second "{before}{first + step}{after}", and so on in steps of {step}.',
            f'Replace every "{gap}" in the text by its number, written "{before}N{after}"; numbers start at {first} '
            "and "
            f"grow by {step}.",
        ),
        behaviour=[f'Gaps are found from left to right and do not overlap: "{gap[0] * 7}" is two gaps and "{gap[0]}".'],
        body=(
            f"pieces = text.split({gap!r})\n"
            "filled = pieces[0]\n"
            "for at, piece in enumerate(pieces[1:]):\n"
            f"    filled += f'{before}{{{first} + at * {step}}}{after}' + piece\n"
            "return filled"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [gap, gap, "The", "sky", gap[:2], f"{gap}.", "is", f"({gap})"],
                "min": 3,
                "max": 8,
            }
        },
        edges=["", gap, gap[0] * 7, f"a {gap} b {gap} c {gap}", gap[0] * 2],
    )


FAMILY = Family(
    name="fill_in_templates",
    subject="filling values into templates",
    tools=(
        ToolTemplate(level=3, make=_pairs),
        ToolTemplate(level=2, make=_count),
        ToolTemplate(level=2, make=_names),
        ToolTemplate(level=3, make=_numbered),
        ToolTemplate(level=1, make=_greeting),
        ToolTemplate(level=2, make=_gaps),
    ),
)
