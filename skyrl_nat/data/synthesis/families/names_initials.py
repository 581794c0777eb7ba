"""Names of people and their initials."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_FIRST = {"kind": "choice", "values": ["Ada", "grace", "Jean-Luc", "Zoë", "OMAR", "Li", "Rosalie"]}
_MIDDLE = {"kind": "choice", "values": ["", " ", "M. ", "van ", "de la ", "Mary Jo ", "Lee "]}
_LAST = {"kind": "choice", "values": ["Lovelace", "Hopper", "Smith-Jones", "berg", "O'Hara", "Lee", "Dyk"]}
_NAME = {"kind": "template", "pattern": "{f} {m}{l}", "parts": {"f": _FIRST, "m": _MIDDLE, "l": _LAST}}
_PARTS = "The parts of a name lie between white space."


def _initials(rng: random.Random) -> ToolVariant:
    after, word = rng.choice([(".", "dots"), ("", "nothing"), ("-", "dashes"), ("/", "slashes")])
    is_split = rng.random() < 0.5
    source = "name.replace('-', ' ')" if is_split else "name"
    mark = f', each followed by "{after}"' if after else ""
    return ToolVariant(
        name=f"initials_with_{word}_{'hyphens_split' if is_split else 'hyphens_inside'}",
        args={"name": "str"},
        returns="str",
        does=(
            f"Return the initials of the name in upper case{mark}, without blanks.",
            f"Take the first character of every part of the name, in upper case{mark}, and put them together.",
            f"Shorten the name to the upper-case first characters of its parts{mark}, with no blanks between.",
        ),
        behaviour=[
            "The parts of a name lie between white space or hyphens." if is_split else _PARTS,
            "An empty or blank name gives the empty text.",
        ],
        body=f"return ''.join(part[0].upper() + {after!r} for part in {source}.split())"
        if after
        else f"return ''.join(part[0].upper() for part in {source}.split())",
        draw={"name": _NAME},
        edges=["", "  ", "x", "Anna-Maria  von\tStein", "- dash-", "3 Of 9"],
    )


def _last_first(rng: random.Random) -> ToolVariant:
    sign, word = rng.choice([(", ", "comma"), ("; ", "semicolon"), (" / ", "slash")])
    small = rng.choice([("van", "de", "la"), ("von", "der"), ()])
    style, last = rng.choice([("as_is", "' '.join(parts[at:])"), ("capitals", "' '.join(parts[at:]).upper()")])
    rule = "The last name is put in upper case, but only where there are two parts or more."
    particles = f" and all parts directly before it that are one of {', '.join(small)} (in lower case)" if small else ""
    loop = f"for part in parts[-2:0:-1]:\n    if part not in {small!r}:\n        break\n    at -= 1\n" if small else ""
    rest = "_".join(small) or "no_particles"
    middles = ["", "Jo ", "la ", *(f"{s} " for s in small), f"{' '.join(small)} "]
    return ToolVariant(
        name=f"last_name_first_{word}_{style}_{rest}",
        args={"name": "str"},
        returns="str",
        does=(
            f'Return the name as "last{sign}others": the last name, "{sign}", then the other parts of the name.',
            f'Put the last name first, followed by "{sign}" and all parts that come before it.',
            f'Turn "others last" into "last{sign}others".',
        ),
        behaviour=[
            _PARTS,
            f"The last name is the last part{particles}, but never the first part.",
            "Parts keep their order within both halves and are joined by one blank.",
            "A name of fewer than two parts is returned without white space at its ends.",
            *([rule] if style == "capitals" else []),
        ],
        body=(
            "parts = name.split()\n"
            "if len(parts) < 2:\n"
            "    return name.strip()\n"
            "at = len(parts) - 1\n"
            f"{loop}"
            f"return {last} + {sign!r} + ' '.join(parts[:at])"
        ),
        draw={"name": {**_NAME, "parts": {**_NAME["parts"], "m": {"kind": "choice", "values": middles}}}},
        edges=[
            "",
            " Li ",
            "ada lee",
            "van Dyk",
            "de la Cruz",
            f"Ann  Jo {' '.join(small)} Berg",
            "von der Heide",
            "la la Land",
        ],
    )


def _account(rng: random.Random) -> ToolVariant:
    form, wording, code = rng.choice(
        [
            ("initial_last", "the first character of the first part and the whole last part", "first[:1] + last"),
            ("first_dot_last", 'the first part, "." and the last part', "first + '.' + last"),
            ("last_initial", "the last part and the first character of the first part", "last + first[:1]"),
            ("first_underscore_last", 'the first part, "_" and the last part', "first + '_' + last"),
        ]
    )
    limit = rng.choice([6, 8, 10])
    return ToolVariant(
        name=f"account_{form}_up_to_{limit}",
        args={"name": "str"},
        returns="str",
        does=(
            f"Return an account name made of {wording} of the name, cut to its first `limit` characters.",
            f"Build an account name: {wording} of the name, of which only the first `limit` characters are kept.",
            f"Join {wording} of the name and cut that to at most `limit` characters.",
        ),
        behaviour=[
            _PARTS,
            "The name is lower-cased, and in both parts all characters other than a to z are dropped first.",
        ],
        body=(
            "parts = name.lower().split()\n"
            "if len(parts) < 2:\n"
            "    raise ValueError('a name has two parts or more')\n"
            "first = ''.join(c for c in parts[0] if c.isascii() and c.isalpha())\n"
            "last = ''.join(c for c in parts[-1] if c.isascii() and c.isalpha())\n"
            f"return ({code})[: config.limit]"
        ),
        draw={"name": _NAME},
        edges=["Zoë Ünal-Öz", "a b c", "Maximilian Featherstonehaugh", "4U R2-D2", "Al Bo"],
        raises="the name has fewer than two parts",
        errors=["", "Cher", "  Li "],
        options={"limit": Option(type="int", default=limit + 10, set=limit)},
    )


def _sort(rng: random.Random) -> ToolVariant:
    key, wording, code = rng.choice(
        [
            ("last", "their last parts", "n.lower().split()[-1]"),
            (
                "last_then_all",
                "their last parts and, where these are equal, the whole names",
                "(n.lower().split()[-1], n.lower())",
            ),
            ("first", "their first parts", "n.lower().split()[0]"),
            (
                "parts_then_last",
                "their number of parts and, where that is equal, their last parts",
                "(len(n.split()), n.lower().split()[-1])",
            ),
        ]
    )
    is_reverse = rng.random() < 0.5
    order = "descending" if is_reverse else "ascending"
    return ToolVariant(
        name=f"sort_names_by_{key}_{order}",
        args={"names": "list[str]"},
        returns="list[str]",
        does=(
            f"Return the names sorted by {wording}, in {order} order.",
            f"Sort the names in {order} order of {wording}.",
            f"Put the names in {order} order, comparing {wording}.",
        ),
        behaviour=[
            f"{_PARTS[:-1]}; texts are compared by code points after lower-casing.",
            "Names that are equal in this keep their order; names themselves are not changed.",
        ],
        body=(
            "if not all(n.split() for n in names):\n"
            "    raise ValueError('there is an empty name')\n"
            f"return sorted(names, key=lambda n: {code}{', reverse=True' if is_reverse else ''})"
        ),
        draw={"names": {"kind": "list", "item": _NAME, "min": 3, "max": 6}},
        edges=[
            [],
            ["Bo Lee", "al lee", "Cy LEE"],
            ["B _a", "A aa", "C Ba"],
            ["_z b", "az b", "Bz b"],
            ["x z", "a b z", "y z", "Q"],
            ["b _b", "a ab", "c Ab"],
        ],
        raises="one of the names is empty or only white space",
        errors=[[""], ["Ada Lee", " "]],
    )


def _letters(rng: random.Random) -> ToolVariant:
    which, wording, code = rng.choice(
        [
            ("first", "in the first part of the name", "parts[0]"),
            ("last", "in the last part of the name", "parts[-1]"),
            ("all_but_last", "in all parts of the name but the last", "''.join(parts[:-1])"),
            ("all", "in all parts of the name", "''.join(parts)"),
        ]
    )
    kind, unit, test = rng.choice(
        [
            ("characters", "characters", ""),
            ("ascii_letters", "letters a to z (in either case)", "c.isascii() and c.isalpha()"),
        ]
    )
    count = f"sum(1 for c in {code} if {test})" if test else f"len({code})"
    return ToolVariant(
        name=f"count_{kind}_of_name_{which}",
        args={"name": "str"},
        returns="int",
        does=(
            f"Return the number of {unit} {wording}.",
            f"Count the {unit} {wording}.",
            f"Tell how many {unit} there are {wording}.",
        ),
        behaviour=[_PARTS, "White space is not counted, and an empty or blank name gives 0."],
        body=f"parts = name.split() or ['']\nreturn {count}",
        draw={"name": _NAME},
        edges=["", "  ", "Li", "Zoë O'Neill-3", "a bb ccc dddd"],
    )


def _matches(rng: random.Random) -> ToolVariant:
    is_blind = rng.random() < 0.5
    which, wording, code = rng.choice(
        [
            ("all_parts", "all parts of the name in order", "parts"),
            ("first_and_last", "the first and the last part of the name", "[parts[0], parts[-1]]"),
            ("backwards", "all parts of the name from the last to the first", "parts[::-1]"),
        ]
    )
    lower = ".lower()" if is_blind else ""
    pool = ["L.A.", "LA", "LA.", "L A", "L.J.A."] if which == "backwards" else ["A.L.", "AL", "A.L", "A L", "AJL"]
    middles = ["", "Jo ", "de "] if which == "first_and_last" else ["", "", "", "Jo "]
    parts = {
        "f": {"kind": "choice", "values": ["Ada", "Al", "Ann", "Alan", "Abe", "Ava", "Amy", "Bo"]},
        "m": {"kind": "choice", "values": middles},
        "l": {
            "kind": "choice",
            "values": ["Lee", "Lovelace", "Lamb", "lake" if is_blind else "Lake", "Lund", "Low", "Moss"],
        },
    }
    return ToolVariant(
        name=f"initials_fit_{which}_{'any_case' if is_blind else 'by_case'}",
        args={"name": "str", "initials": "str"},
        returns="bool",
        does=(
            f"Return whether the initials are the first characters of {wording}.",
            f"Tell if taking the first character of {wording} gives the initials.",
            f"Check the initials against the first characters of {wording}.",
        ),
        behaviour=[
            _PARTS,
            "Dots and blanks in the initials do not matter, " + ("nor does case." if is_blind else "but case does."),
            *(["For a name of one part, this part is the first and the last."] if which == "first_and_last" else []),
        ],
        body=(
            f"parts = name{lower}.split()\n"
            "if not parts:\n"
            "    raise ValueError('the name is empty')\n"
            f"given = initials{lower}.replace('.', '').replace(' ', '')\n"
            f"return given == ''.join(part[0] for part in {code})"
        ),
        draw={
            "name": {"kind": "template", "pattern": "{f} {m}{l}", "parts": parts},
            "initials": {"kind": "choice", "values": pool},
        },
        edges=[
            {"name": "Bo", "initials": "B"},
            {"name": "Bo", "initials": "BB"},
            {"name": "x Y z", "initials": "x. Y. z."},
            {"name": "x y z", "initials": "x z"},
            {"name": "x y z", "initials": "z.Y.x"},
            {"name": "x y z", "initials": "z y x"},
            {"name": "a b", "initials": ""},
        ],
        raises="the name is empty or only white space",
        errors=[{"name": "", "initials": ""}, {"name": " ", "initials": "A"}],
    )


FAMILY = Family(
    name="names_initials",
    subject="names and their initials",
    tools=(
        ToolTemplate(level=1, make=_initials),
        ToolTemplate(level=3, make=_last_first),
        ToolTemplate(level=2, make=_account),
        ToolTemplate(level=3, make=_sort),
        ToolTemplate(level=1, make=_letters),
        ToolTemplate(level=2, make=_matches),
    ),
)
