"""Settings as lines of keys and values."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_MARKS = [("equals", "="), ("colon", ":"), ("arrow", "->")]
_TRIMMED = "White space around keys and values is removed."


def _lines(mark: str, extra: tuple[str, ...] = ()) -> list[str]:
    """Return lines to draw from: keys and values with and without white space."""
    return [
        f"port{mark}80",
        f"port {mark} 8080",
        f"host{mark}web",
        f"Host{mark} db ",
        f"user {mark}{mark}x",
        f"mode{mark}",
        f" mode{mark}fast",
        f"host{mark}a{mark}b",
        "note",
        *extra,
    ]


def _value(rng: random.Random) -> ToolVariant:
    name, mark = rng.choice(_MARKS)
    which, place = rng.choice([("first", 0), ("last", -1)])
    default, value = rng.choice([("", "none"), ("?", "unset")])
    return ToolVariant(
        name=f"{which}_value_at_{name}_or_{value}",
        args={"text": "str", "key": "str"},
        returns="str",
        does=(
            f"Return the value of the {which} line of the text that has this key; each line is 'key{mark}value'. "
            "Without such a line return `fallback`.",
            f"Look the key up in lines of the form 'key{mark}value'. If several have it, the {which} of them counts; "
            "if none has, the answer is `fallback`.",
            f"What stands after '{mark}' in the {which} line whose part before '{mark}' is the key? Give it, or "
            "`fallback` if no line has that key.",
        ),
        behaviour=[
            f"Only the first '{mark}' of a line separates, and lines without it are ignored.",
            _TRIMMED + " Case counts, and a value may be empty.",
        ],
        body=(
            f"pairs = [line.split({mark!r}, 1) for line in text.splitlines() if {mark!r} in line]\n"
            "found = [value.strip() for name, value in pairs if name.strip() == key]\n"
            f"return found[{place}] if found else config.fallback"
        ),
        draw={
            "text": {"kind": "words", "values": _lines(mark), "min": 6, "max": 10, "separator": "\n"},
            "key": {"kind": "choice", "values": ["port", "host", "host", "port", "mode", "user", "note"]},
        },
        edges=[
            {"text": "", "key": "a"},
            {"text": f"a{mark}1\na{mark}2{mark}3\na{mark}4", "key": "a"},
            {"text": f"A{mark}1\n b {mark} 2 {mark}3 \nb{mark}4\nb{mark}", "key": "b"},
        ],
        options={"fallback": Option(type="str", default=default, set=value)},
    )


def _clean(rng: random.Random) -> ToolVariant:
    name, mark = rng.choice(_MARKS)
    sign_name, sign = rng.choice([("hash", "#"), ("semicolon", ";")])
    order, rule, code = rng.choice(
        [("sorted", "The lines are sorted by character codes.", "sorted(kept)"), ("as_is", "The order stays.", "kept")]
    )
    return ToolVariant(
        name=f"clean_{name}_lines_without_{sign_name}_{order}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the settings 'key{mark}value' of the text, a line each, without white space around key and value, "
            f"and without comments, which are lines that begin with '{sign}'.",
            f"Tidy up a settings file: drop lines that start with '{sign}' and lines without '{mark}', and write the "
            f"others as 'key{mark}value' with no white space at either side of key and value.",
            f"Keep only lines that have '{mark}' and do not begin with '{sign}'; remove white space at their ends "
            f"and on both sides of their first '{mark}'.",
        ),
        behaviour=[
            f"White space before '{sign}' does not matter. Only the first '{mark}' separates; lines without it go "
            "away.",
            rule + " Lines are joined by a line break; no line gives the empty string.",
        ],
        body=(
            "kept = []\n"
            "for line in text.splitlines():\n"
            f"    key, found, value = line.strip().partition({mark!r})\n"
            f"    if found and not key.startswith({sign!r}):\n"
            f"        kept.append(f'{{key.strip()}}{mark}{{value.strip()}}')\n"
            f"return '\\n'.join({code})"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": _lines(mark, (f"{sign}port{mark}1", f" {sign} a {mark} b", "", f"z{mark} 1 {sign} y")),
                "min": 3,
                "max": 7,
                "separator": "\n",
            }
        },
        edges=["", f"b {mark} 2\n{sign}x{mark}1\n a{mark}{mark} 1\nrest\n{mark}", f"k{sign}{mark}v"],
        laws=[{"kind": "idempotent"}],
    )


def _merge(rng: random.Random) -> ToolVariant:
    name, mark = rng.choice(_MARKS)
    winner, loser, strong, weak = rng.choice(
        [("second", "first", "other", "base"), ("first", "second", "base", "other")]
    )
    joint_name, joint = rng.choice([("semicolon", "; "), ("bar", " | "), ("comma", ", ")])
    return ToolVariant(
        name=f"merge_{name}_lines_{winner}_wins_{joint_name}",
        args={"base": "str", "other": "str"},
        returns="str",
        does=(
            f"Merge the settings (lines 'key{mark}value') of base, the first text, and other, the second one: where "
            f"both have a key, the {winner} text's value wins. Return 'key{mark}value' per key, sorted by key, joined "
            f"by '{joint}'.",
            f"Return all keys of both texts, in alphabetical order, as 'key{mark}value' with '{joint}' between them. A "
            f"key's value is that of {strong}, or that of {weak} where {strong} lacks the key. Both have lines of "
            f"the form 'key{mark}value'.",
            f"Read lines 'key{mark}value' of two texts. Let the {winner} override the {loser}, sort what results by "
            f"key and write it as one line with '{joint}' between the entries 'key{mark}value'.",
        ),
        behaviour=[
            f"If a text has a key more than once, its last value counts. Only the first '{mark}' of a line separates.",
            _TRIMMED + f" Lines without '{mark}' are ignored.",
            "Sorting goes by character codes; no key at all gives the empty string.",
        ],
        body=(
            "merged = {}\n"
            f"for line in {weak}.splitlines() + {strong}.splitlines():\n"
            f"    if {mark!r} in line:\n"
            f"        key, value = line.split({mark!r}, 1)\n"
            "        merged[key.strip()] = value.strip()\n"
            f"return {joint!r}.join(f'{{key}}{mark}{{merged[key]}}' for key in sorted(merged))"
        ),
        draw={
            side: {"kind": "words", "values": _lines(mark), "min": 1, "max": 5, "separator": "\n"}
            for side in ("base", "other")
        },
        edges=[
            {"base": "", "other": ""},
            {"base": f"b{mark}1\na{mark}2\nb{mark}3", "other": f"a{mark}9{mark}8\nc{mark} 4\nb"},
            {"base": f"x{mark}1", "other": f"x {mark} 2\nB{mark}"},
        ],
    )


def _sum(rng: random.Random) -> ToolVariant:
    name, mark = rng.choice(_MARKS)
    prefix, others = rng.choice([("max", "maximum"), ("min", "mint"), ("num", "number")])
    return ToolVariant(
        name=f"sum_of_{prefix}_keys_at_{name}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Add up the values of all lines 'key{mark}value' whose key begins with '{prefix}_'.",
            f"Return the sum of the numbers that stand after '{mark}' in those lines whose part before it starts with "
            f"'{prefix}_'.",
            f"The text has lines 'key{mark}value'; give the total of the values of those keys of which the first four "
            f"characters are '{prefix}_'.",
        ),
        behaviour=[
            _TRIMMED + f" Lines without '{mark}' are ignored, and only the first '{mark}' of a line separates.",
            "A value counts only if it consists of one or more digits 0 to 9; any other is ignored.",
            "A key that occurs several times counts each time; nothing to add gives 0.",
        ],
        body=(
            "total = 0\n"
            "for line in text.splitlines():\n"
            f"    key, _, value = line.partition({mark!r})\n"
            "    number = value.strip()\n"
            f"    if key.strip().startswith('{prefix}_') and number.isascii() and number.isdecimal():\n"
            "        total += int(number)\n"
            "return total"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    f"{key}{mark}{value}"
                    for key in (f"{prefix}_a", f" {prefix}_x ", f"{prefix}_", others, "size")
                    for value in ("7", " 12", "30 ", "x", "1.5", "-4", "100")
                ],
                "min": 3,
                "max": 9,
                "separator": "\n",
            }
        },
        edges=[
            "",
            f"{prefix}_a{mark}5\n{prefix}_x{mark}\n{prefix}{mark}9\n {prefix}_b{mark} 6",
            f"{prefix}_c 4\nsize{mark}3",
        ],
        laws=[{"kind": "bounds", "low": 0}],
    )


def _invert(rng: random.Random) -> ToolVariant:
    name, mark = rng.choice(_MARKS)
    keep, joint, what = rng.choice(
        [("in_order", "keys", "in the order of the lines"), ("sorted", "sorted(keys)", "in alphabetical order")]
    )
    return ToolVariant(
        name=f"keys_by_value_at_{name}_{keep}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Turn lines 'key{mark}value' around: return a line 'value{mark}keys' for every different value, with all "
            f"keys that have it, {what} and joined by a comma.",
            f"Group the keys of lines 'key{mark}value' by value. Each value gives a line: the value, '{mark}', and its "
            f"keys {what} with ',' between them.",
            f"For each different value of the settings 'key{mark}value' list which keys have it, as a line such as "
            f"'value{mark}key,key' with the keys {what}.",
        ),
        behaviour=[
            "Values come in the order in which they first occur; lines are joined by a line break.",
            _TRIMMED + f" Lines without '{mark}' are ignored, and only the first '{mark}' of a line separates.",
            "A line that occurs twice gives its key twice.",
        ],
        body=(
            "found = {}\n"
            "for line in text.splitlines():\n"
            f"    if {mark!r} in line:\n"
            f"        key, value = line.split({mark!r}, 1)\n"
            "        found.setdefault(value.strip(), []).append(key.strip())\n"
            f"return '\\n'.join(f\"{{value}}{mark}{{','.join({joint})}}\" for value, keys in found.items())"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [f"{key}{mark}{value}" for key in ("d", "a ", "c") for value in ("on", " off", f"x{mark}y")]
                + ["b"],
                "min": 2,
                "max": 7,
                "separator": "\n",
            }
        },
        edges=["", f"b{mark}1\na{mark}1\nb{mark}2", f"z {mark} q{mark}r\ny{mark}q{mark}r\nalone"],
    )


def _sections(rng: random.Random) -> ToolVariant:
    name, mark = rng.choice(_MARKS)
    joint_name, joint = rng.choice([("dot", "."), ("slash", "/"), ("dash", "-")])
    return ToolVariant(
        name=f"full_keys_with_{joint_name}_at_{name}",
        args={"text": "str"},
        returns="str",
        does=(
            "The text has sections: a line '[name]' starts one, and lines 'key" + mark + "value' belong to the section "
            f"above them. Return the lines 'name{joint}key{mark}value', without section lines.",
            f"Put the section's name and '{joint}' before every key of a settings file in which '[name]' on a line of "
            f"its own opens a section and settings are lines 'key{mark}value'; return only the settings.",
            f"Flatten a file of sections '[name]' and settings 'key{mark}value': one line per setting, its key "
            f"preceded by the name of the latest section and '{joint}'.",
        ),
        behaviour=[
            "Before the first section, and in a section '[]', keys stay as they are.",
            _TRIMMED + f" The same goes for lines; lines that are no section and have no '{mark}' are ignored.",
            f"Only the first '{mark}' separates; order and duplicates stay; lines are joined by a line break.",
        ],
        body=(
            "start, lines = '', []\n"
            "for line in text.splitlines():\n"
            "    line = line.strip()\n"
            "    if line.startswith('[') and line.endswith(']'):\n"
            f"        start = line[1:-1] + {joint!r} if line != '[]' else ''\n"
            f"    elif {mark!r} in line:\n"
            f"        key, value = line.split({mark!r}, 1)\n"
            f"        lines.append(f'{{start}}{{key.strip()}}{mark}{{value.strip()}}')\n"
            "return '\\n'.join(lines)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [*_lines(mark)[::2], f"port{mark}80", "[web]", " [db] ", "[]", "[x]y", f"x{mark}[z]", ""],
                "min": 3,
                "max": 9,
                "separator": "\n",
            }
        },
        edges=[
            "",
            f"a{mark}1\n[s]\na{mark}2{mark}3\n[]\nb{mark}4\n[t",
            f"[p]\n[q] \n c {mark} d\n[x]y{mark}1\ny{mark}[r]",
        ],
    )


FAMILY = Family(
    name="key_value_lines",
    subject="settings as key and value lines",
    tools=(
        ToolTemplate(level=1, make=_value),
        ToolTemplate(level=2, make=_clean),
        ToolTemplate(level=3, make=_merge),
        ToolTemplate(level=2, make=_sum),
        ToolTemplate(level=2, make=_invert),
        ToolTemplate(level=3, make=_sections),
    ),
)
