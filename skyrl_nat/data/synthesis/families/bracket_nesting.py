"""Brackets and how they are nested."""

import random
from itertools import combinations

from skyrl_nat.data.synthesis.family import Family, ToolTemplate, ToolVariant

_PAIRS = [("round", "(", ")"), ("square", "[", "]"), ("curly", "{", "}"), ("angle", "<", ">")]


def _depth(rng: random.Random) -> ToolVariant:
    name, left, right = rng.choice(_PAIRS)
    which, what, other, code = rng.choice(
        [
            ("deepest", "highest", "never below 0", "max(deepest, depth)"),
            ("lowest", "lowest", "never above 0", "min(deepest, depth)"),
        ]
    )
    most = left if which == "deepest" else right
    return ToolVariant(
        name=f"{which}_depth_of_{name}_brackets",
        args={"text": "str"},
        returns="int",
        does=(
            f"Count up by 1 at every '{left}' and down by 1 at every '{right}', from 0; return the {what} number "
            "reached.",
            f"For each beginning of the text take the number of '{left}' minus the number of '{right}' in it, and "
            f"return the {what} of these differences.",
            f"Follow the level of nesting, which starts at 0, rises at '{left}' and falls at '{right}', and give its "
            f"{what} value.",
        ),
        behaviour=[
            f"The start of the text counts, so the result is {other}.",
            "The level may become negative; all other characters are ignored.",
        ],
        body=(
            "depth = deepest = 0\n"
            "for c in text:\n"
            f"    depth += (c == {left!r}) - (c == {right!r})\n"
            f"    deepest = {code}\n"
            "return deepest"
        ),
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    {"kind": "text", "alphabet": f"{side}a{left}{right} {side}", "min": 1, "max": 14}
                    for side in (most, 2 * most, 4 * most, "b")
                ],
            }
        },
        edges=["", f"{left}{left}x{right}{right}", f"{right}{left}{left}{left}", f"{right}{right}{left}{right}{right}"],
        laws=[{"kind": "bounds", "low": 0} if which == "deepest" else {"kind": "bounds", "high": 0}],
    )


def _balanced(rng: random.Random) -> ToolVariant:
    (one, a, b), (two, c, d) = rng.choice(list(combinations(_PAIRS, 2)))
    return ToolVariant(
        name=f"is_balanced_{one}_and_{two}",
        args={"text": "str"},
        returns="bool",
        does=(
            f"Say whether the brackets {a}{b} and {c}{d} of the text are balanced: each one that opens is closed by "
            "one of its own kind, and pairs do not cross.",
            f"Return True if every '{a}' and '{c}' can be paired with a later '{b}' or '{d}' of its kind, none is "
            "left, and of two pairs one lies wholly inside or wholly outside the other.",
            f"Check the nesting of {a}{b} and {c}{d}: a closing bracket must fit the latest opening one that is still "
            "open, and at the end none may be open.",
        ),
        behaviour=["Other characters, also other brackets, are ignored.", "A text without these brackets is balanced."],
        body=(
            f"pairs, waiting = {{{a!r}: {b!r}, {c!r}: {d!r}}}, []\n"
            "for c in text:\n"
            "    if c in pairs:\n"
            "        waiting.append(pairs[c])\n"
            "    elif c in pairs.values() and (not waiting or waiting.pop() != c):\n"
            "        return False\n"
            "return not waiting"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    *(f"{a}x{b}", f"{c}{d}", f"{a}{c}y{d}{b}", f"{c}{a}{b} {d}", "z", f"{a}{b}{c}{d}"),
                    *(f"{c}1{d}", f"{a}{a}{b}{b}", f"{a}{c}{b}{d}", f"{a}k", f"{d}", f"{c}"),
                ],
                "min": 1,
                "max": 3,
                "separator": "",
            }
        },
        edges=["", f"{a}{c}", f"{b}{a}", f"{a}{c}{b}{d}", f"{a}{c}{d}{b}{b}", f"{a}{d}", f"{c}{b}", f"x{c}{d}{a}{b}"],
    )


def _first_error(rng: random.Random) -> ToolVariant:
    (one, a, b), (two, c, d) = rng.choice(list(combinations(_PAIRS[:3], 2)))
    which, word, place = rng.choice([("outermost", "first", 0), ("innermost", "last", -1)])
    return ToolVariant(
        name=f"wrong_{one}_or_{two}_bracket_else_{which}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the position of the first '{b}' or '{d}' that does not close the latest bracket still open; if "
            f"all of them do, that of the {word} bracket that is never closed; -1 if there is none either.",
            f"Find the first mistake in the nesting of {a}{b} and {c}{d}. It is the first closing bracket for which "
            "the latest open one is of another kind or missing; without such a mistake it is, of the brackets still "
            f"open at the end, the {word}; without any the answer is -1, else its position.",
            f"Read the text from the left, remembering which of '{a}' and '{c}' are open. Give the position where a "
            "closing bracket does not fit the latest open one, or, if the end is reached, the position of the "
            f"{word} one that is open then, or -1.",
        ),
        behaviour=["Positions are counted from 0.", "All other characters are ignored, but counted."],
        body=(
            f"pairs, waiting = {{{b!r}: {a!r}, {d!r}: {c!r}}}, []\n"
            "for i, c in enumerate(text):\n"
            "    if c in pairs.values():\n"
            "        waiting.append(i)\n"
            "    elif c in pairs and (not waiting or text[waiting.pop()] != pairs[c]):\n"
            "        return i\n"
            f"return waiting[{place}] if waiting else -1"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{start}{rest}",
                "parts": {
                    "start": {"kind": "text", "alphabet": "nm", "min": 0, "max": 6},
                    "rest": {
                        "kind": "words",
                        "values": [f"{a}x{b}", f"{c}{d}", f"{a}{c}y{d}{b}", f"{a}k", d, c, f"w{a}", f"{c}{a}{b}", b],
                        "min": 1,
                        "max": 5,
                        "separator": "",
                    },
                },
            }
        },
        edges=["", f"{a}{c}", f"x{b}{a}", f"{a}{c}{b}{d}", f"{a}{c}{d}{b}", f"yy{a}{a}{b}{c}", f"{c}{c}{c}{d}"],
        laws=[{"kind": "bounds", "low": -1}],
    )


def _level(rng: random.Random) -> ToolVariant:
    name, left, right = rng.choice(_PAIRS)
    where, what, other, test = rng.choice(
        [
            ("outside", "outside of all", "inside of any", "depth == 0"),
            ("inside", "inside of at least one", "outside of all", "depth > 0"),
            ("twice_inside", "inside of at least two", "inside of fewer than two", "depth > 1"),
        ]
    )
    return ToolVariant(
        name=f"text_{where}_{name}_brackets",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the characters of the text that are {what} pairs of '{left}' and '{right}', without these "
            "brackets.",
            f"Remove every '{left}' and '{right}', and all characters that are {other} such pairs; return the rest.",
            f"Keep of the text only what is {what} pairs {left}{right}; the brackets themselves are never kept.",
        ),
        behaviour=[
            f"A '{right}' closes the latest '{left}' that is open; one that has nothing to close is dropped.",
            f"A '{left}' that is never closed reaches to the end of the text.",
        ],
        body=(
            "depth, kept = 0, ''\n"
            "for c in text:\n"
            f"    if c == {left!r}:\n"
            "        depth += 1\n"
            f"    elif c == {right!r}:\n"
            "        depth = max(0, depth - 1)\n"
            f"    elif {test}:\n"
            "        kept += c\n"
            "return kept"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    *(
                        f"{left}a{left}b{right}c{right}",
                        f"{left}d{left}",
                        "e f",
                        "x",
                        "or",
                        "y z",
                        f"g{right}",
                        f"{left}h{right}",
                    ),
                    *(f"{left}{left}i{right}", f"j{left}{left}k{left}l{right}", f"{right}m{left}"),
                ],
                "min": 2,
                "max": 6,
                "separator": "",
            }
        },
        edges=["", f"{right}{right}a{left}b{left}c{left}d{right}e{right}f{right}g", f"p{left}q{left}r"],
    )


def _repair(rng: random.Random) -> ToolVariant:
    name, left, right = rng.choice(_PAIRS)
    where, then, closing = rng.choice(
        [
            (
                "at_end",
                f"append one '{right}' at the end for each '{left}' that is still open",
                f"return kept + {right!r} * depth",
            ),
            (
                "by_removal",
                f"remove the last '{left}' again and again until there are as many '{left}' as '{right}'",
                f"for _ in range(depth):\n    kept = ''.join(kept.rpartition({left!r})[::2])\nreturn kept",
            ),
        ]
    )
    return ToolVariant(
        name=f"repair_{name}_brackets_{where}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Repair the brackets: drop every '{right}' that has no open '{left}' before it, then {then}.",
            f"Return the text without each '{right}' before which all '{left}' are closed already; after that, {then}.",
            f"Go through the text, leave out a '{right}' wherever nothing is open, and at the end {then}.",
        ),
        behaviour=[f"A '{right}' closes one open '{left}'; all other characters stay as they are."],
        body=(
            "depth, kept = 0, ''\n"
            "for c in text:\n"
            f"    if c != {right!r} or depth > 0:\n"
            f"        depth += (c == {left!r}) - (c == {right!r})\n"
            "        kept += c\n"
            f"{closing}"
        ),
        draw={"text": {"kind": "text", "alphabet": f"{left}{left}{left}{right}{right}abx ", "min": 2, "max": 12}},
        edges=["", f"{right}{right}{left}", f"{left}{left}a{right}{right}{right}b", f"{left}x{left}y{right}{left}z"],
        laws=[{"kind": "idempotent"}],
    )


def _split(rng: random.Random) -> ToolVariant:
    name, left, right = rng.choice(_PAIRS)
    mark, cut = rng.choice([("comma", ","), ("semicolon", ";"), ("plus", "+")])
    return ToolVariant(
        name=f"split_at_{mark}_outside_{name}_brackets",
        args={"text": "str"},
        returns="list[str]",
        does=(
            f"Split the text at each '{cut}' that is not inside of '{left}' and '{right}', and return the parts.",
            f"Return the parts between those '{cut}' of the text before which every '{left}' is closed again.",
            f"Cut the text into pieces wherever '{cut}' stands outside of all brackets {left}{right}.",
        ),
        behaviour=[
            f"A '{right}' closes the latest open '{left}'; one that has nothing to close is a character like others.",
            "White space around a part is removed; brackets stay; parts may be empty, and an empty text has one.",
        ],
        body=(
            "depth, parts = 0, ['']\n"
            "for c in text:\n"
            f"    if c == {cut!r} and depth == 0:\n"
            "        parts.append('')\n"
            "    else:\n"
            f"        depth = max(0, depth + (c == {left!r}) - (c == {right!r}))\n"
            "        parts[-1] += c\n"
            "return [part.strip() for part in parts]"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    f"f{left}a{cut} b{right}",
                    "x ",
                    f"{left}y{cut}{left}z{right}{cut}1{right}",
                    f"c{right}",
                    cut,
                    " w",
                ],
                "min": 2,
                "max": 5,
                "separator": cut,
            }
        },
        edges=["", f"{cut}", f"{right}{cut}{left}a{cut}b", f"{left}{left}p{right}{cut}q{right}{cut}r{right}{cut}s"],
    )


FAMILY = Family(
    name="bracket_nesting",
    subject="nested brackets",
    tools=(
        ToolTemplate(level=1, make=_depth),
        ToolTemplate(level=3, make=_balanced),
        ToolTemplate(level=3, make=_first_error),
        ToolTemplate(level=2, make=_level),
        ToolTemplate(level=2, make=_repair),
        ToolTemplate(level=3, make=_split),
    ),
)
