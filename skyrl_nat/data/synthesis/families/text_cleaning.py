"""Cleaning text of what does not belong in it."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = ["Red", "green", "BLUE", "a1", "don't", "two-fold", "Über", "42", "(old)", "so,", "x_y", "end."]
_SIGNS = [("-", "dashes"), (".", "dots"), ("_", "underscores"), ("!", "exclamation_marks"), ("*", "stars")]


def _collapse(rng: random.Random) -> ToolVariant:
    sign, word = rng.choice(_SIGNS)
    most = rng.choice([1, 2, 3])
    is_trimmed = rng.random() < 0.5
    trim = f".strip({sign!r})" if is_trimmed else ""
    one = f"{most} of them" if most > 1 else "one of them"
    return ToolVariant(
        name=f"at_most_{most}_{word}_{'trimmed' if is_trimmed else 'in_a_row'}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text with every run of more than {most} "{sign}" shortened to {one}.',
            f'Wherever the text has more than {most} "{sign}" in a row, keep only {one}.',
            f'Cut each run of "{sign}" in the text to a length of at most {most}.',
        ),
        behaviour=[
            f'Runs at the two ends of the text are removed wholly instead, even a single "{sign}".'
            if is_trimmed
            else "That goes for the two ends of the text too.",
            "Everything else stays as it is.",
        ],
        body=f"import re\nreturn re.sub({'[' + sign + ']{' + str(most + 1) + ',}'!r}, {sign * most!r}, text{trim})",
        draw={"text": {"kind": "text", "alphabet": f"{sign}{sign}{sign}a b", "min": 5, "max": 16}},
        edges=[
            "",
            f"x{sign * (most + 1)}y",
            f"x{sign * most}y{sign * (most + 2)}z",
            sign * 7,
            f"{sign}x{sign * 2}y{sign * 3}z{sign * 4}",
            f"a {sign * 2} b",
        ],
        laws=[{"kind": "idempotent"}],
    )


def _remove(rng: random.Random) -> ToolVariant:
    what, wording, test = rng.choice(
        [
            ("digits", "digits 0 to 9", "c not in '0123456789'"),
            ("vowels", "vowels (a, e, i, o, u in either case)", "c.lower() not in 'aeiou'"),
            ("punctuation", "punctuation marks (any of . , ; : ! ?)", "c not in '.,;:!?'"),
            ("brackets", "brackets (any of ( ) [ ] { } < >)", "c not in '()[]{}<>'"),
            ("non_ascii", "characters with a code point above 127", "c.isascii()"),
        ]
    )
    ends, rule, code = rng.choice(
        [
            ("trimmed", "After that, white space at both ends is removed.", "kept.strip()"),
            (
                "single_blanks",
                "After that, every run of white space becomes one blank, none at the ends.",
                "' '.join(kept.split())",
            ),
            ("all_kept", "White space is not changed.", "kept"),
        ]
    )
    return ToolVariant(
        name=f"remove_{what}_{ends}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the text without its {wording}.",
            f"Delete all {wording} from the text.",
            f"Keep only those characters of the text that are not {wording}.",
        ),
        behaviour=[rule],
        body=f"kept = ''.join(c for c in text if {test})\nreturn {code}",
        draw={"text": {"kind": "text", "alphabet": "aEbX19 .,!([ ü>", "min": 6, "max": 18}},
        edges=["", " a 1 b ", "0123456789", "AEIOU aeiou xyz", ".,;:!? - '", "([{<x>}])", "é\u20ac ~"],
        laws=[{"kind": "idempotent"}],
    )


def _lines(rng: random.Random) -> ToolVariant:
    marker, word = rng.choice([("#", "hash"), ("//", "slashes"), (";", "semicolon"), ("--", "dashes")])
    is_blank_kept = rng.random() < 0.5
    test = "not line.lstrip().startswith(config.marker)"
    test = test if is_blank_kept else f"line.strip() and {test}"
    return ToolVariant(
        name=f"lines_without_{word}_{'blanks_kept' if is_blank_kept else 'no_blank_lines'}",
        args={"text": "str"},
        returns="str",
        does=(
            "Return the lines of the text without comments; a line is a comment if its first characters after leading "
            "white space are `marker`.",
            "Drop every line of the text that, leading white space aside, starts with `marker`.",
            "Keep only lines that do not begin with `marker`, where white space before `marker` does not matter.",
        ),
        behaviour=[
            "Lines are what lies between line breaks, and are joined by line breaks again.",
            "Empty lines and lines of white space are " + ("kept." if is_blank_kept else "dropped too."),
            "White space at the end of each kept line is removed.",
        ],
        body=f"kept = [line.rstrip() for line in text.split('\\n') if {test}]\nreturn '\\n'.join(kept)",
        draw={
            "text": {
                "kind": "words",
                "values": ["x = 1", f"{marker} note", f"  {marker}old", "", "  y: 2  ", f"z {marker} 3", "\t", "end "],
                "min": 2,
                "max": 6,
                "separator": "\n",
            }
        },
        edges=["", marker, "a \n\n b", f"a\n\t{marker}b\n", "  \nq"],
        options={"marker": Option(type="str", default="%", set=marker)},
        laws=[{"kind": "idempotent"}],
    )


def _repeated(rng: random.Random) -> ToolVariant:
    which, wording, test = rng.choice(
        [
            ("adjacent", "that equals the word directly before it", "at > 0 and keys[at - 1] == keys[at]"),
            ("later", "that occurred anywhere before in the text", "keys[at] in keys[:at]"),
            ("earlier", "that occurs once more further on in the text", "keys[at] in keys[at + 1 :]"),
        ]
    )
    is_blind = rng.random() < 0.5
    return ToolVariant(
        name=f"drop_{which}_repeats_{'any_case' if is_blind else 'same_case'}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the text without each word {wording}.",
            f"Remove every word {wording}.",
            f"Go through the words of the text and leave out any word {wording}.",
        ),
        behaviour=[
            "A word is a run of characters that are not white space; the result has one blank between words.",
            "Words are equal "
            + ("if lower-casing makes them the same." if is_blind else "only if their case is the same too."),
            "Words of the given text are compared, whether they are left out or not.",
        ],
        body=(
            "words = text.split()\n"
            f"keys = [word{'.lower()' if is_blind else ''} for word in words]\n"
            f"return ' '.join(word for at, word in enumerate(words) if not ({test}))"
        ),
        draw={
            "text": {"kind": "words", "values": ["sky", "Sky", "sky", "red", "red", "RED", "up"], "min": 3, "max": 9}
        },
        edges=["", "a a  A a", "a b a b", "B b B", "c\tc d", "Straße STRASSE strasse straße"],
        laws=[{"kind": "idempotent"}],
    )


def _dirt(rng: random.Random) -> ToolVariant:
    what, wording, test = rng.choice(
        [
            ("trailing_blank", "end in a blank", "line.endswith(' ')"),
            ("leading_blank", "start with a blank", "line.startswith(' ')"),
            ("double_blank", "have two blanks in a row", "'  ' in line"),
            ("no_full_stop", 'do not end in "."', "not line.endswith('.')"),
        ]
    )
    measure, unit, code = rng.choice(
        [
            ("lines", "the number of lines of the text", "len(bad)"),
            ("percent", "the percentage, rounded down, of lines of the text", "100 * len(bad) // len(lines)"),
        ]
    )
    return ToolVariant(
        name=f"{measure}_with_{what}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return {unit} that {wording}.",
            f"Look at each line of the text and give {unit} that {wording}.",
            f"Compute {unit} that {wording}.",
        ),
        behaviour=["Lines are what lies between line breaks; the empty text is one empty line."],
        body=f"lines = text.split('\\n')\nbad = [line for line in lines if {test}]\nreturn {code}",
        draw={
            "text": {
                "kind": "words",
                "values": ["So it is.", "two  words ", " start", "a  b.", "end ", " both. ", "", "fine", "  "],
                "min": 2,
                "max": 9,
                "separator": "\n",
            }
        },
        edges=["", " ", "a\nb", " a \n  b.\n", "x. \n y  z."],
    )


def _amount(rng: random.Random) -> ToolVariant:
    group, group_word, point, point_word = rng.choice(
        [
            (",", "commas", ".", "dot"),
            (".", "dots", ",", "comma"),
            ("'", "apostrophes", ".", "dot"),
            ("_", "underscores", ",", "comma"),
        ]
    )
    currency = rng.choice(["EUR", "USD", "kg"])
    return ToolVariant(
        name=f"{currency.lower()}_amount_{group_word}_{point_word}",
        args={"text": "str"},
        returns="float",
        does=(
            f'Return the amount in the text as a number; its digits may be grouped by "{group}", its decimals come '
            "after "
            f'"{point}", and "{currency}" may follow.',
            f'Read the amount: leave out "{currency}" at the end and every "{group}", and take "{point}" as the '
            "decimal "
            "point.",
            f'Turn an amount with "{group}" between groups of digits, "{point}" before the decimals and possibly '
            f'"{currency}" after it into a float.',
        ),
        behaviour=[
            f'White space at both ends and before "{currency}" does not matter; a leading "-" is allowed.',
            f'Groups may have any size: every "{group}" is ignored.',
        ],
        body=(
            "import re\n"
            f"number = text.strip().removesuffix({currency!r}).rstrip().replace({group!r}, '').replace({point!r}, "
            "'.')\n"
            "if not re.fullmatch('-?[0-9]+([.][0-9]+)?', number):\n"
            "    raise ValueError('not an amount')\n"
            "return float(number)"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": f"{{start}}{{sign}}{{whole}}{{rest}}{point}{{cents}}{{end}}",
                "parts": {
                    "start": {"kind": "choice", "values": ["", " ", "\t"]},
                    "sign": {"kind": "choice", "values": ["", "", "-"]},
                    "whole": {"kind": "integer", "low": 0, "high": 999},
                    "rest": {"kind": "choice", "values": ["", f"{group}000", f"{group}250{group}001"]},
                    "cents": {"kind": "integer", "low": 0, "high": 99},
                    "end": {"kind": "choice", "values": ["", currency, f" {currency}", f"  {currency} "]},
                },
            }
        },
        edges=["7", f"-0{point}5 {currency}", f"1{group}2{point}25", f"12{currency}"],
        raises='what is left is not digits 0 to 9, perhaps with "-" before or a decimal point and digits after',
        errors=["", currency, "12 apples", f"1{point}", f"{point}5", f"1{point}2{point}3", "--1"],
    )


FAMILY = Family(
    name="text_cleaning",
    subject="cleaning up text",
    tools=(
        ToolTemplate(level=2, make=_collapse),
        ToolTemplate(level=1, make=_remove),
        ToolTemplate(level=2, make=_lines),
        ToolTemplate(level=3, make=_repeated),
        ToolTemplate(level=1, make=_dirt),
        ToolTemplate(level=3, make=_amount),
    ),
)
