"""Numbers written as words."""

import random
from typing import Any

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_DIGITS = "zero one two three four five six seven eight nine"
_TABLES = f"small = {_SMALL!r}.split()\ntens = {_TENS!r}.split()\n"


def _spell(rng: random.Random) -> ToolVariant:
    dash, dash_word = rng.choice([("-", "hyphen"), (" ", "blank"), ("", "nothing")])
    glue, glue_word = rng.choice([(" and ", "and"), (" ", "plain"), (", ", "comma")])
    between = {"": "nothing", " ": "a blank", "-": "a hyphen"}[dash]
    return ToolVariant(
        name=f"spell_number_{dash_word}_{glue_word}",
        args={"number": "int"},
        returns="str",
        does=(
            "Return the number in English words.",
            "Spell out the number in English.",
            "Write the number as English words instead of digits.",
        ),
        behaviour=[
            f'All is in lower case, and tens and ones have {between} between them: "forty{dash}two".',
            f'What follows the hundreds comes after "{glue}": "one hundred{glue}five"; 300 is "three hundred".',
        ],
        body=(
            "if not 0 <= number <= 999:\n"
            "    raise ValueError('the number must be from 0 to 999')\n"
            f"{_TABLES}"
            "rest = number % 100\n"
            "words = small[rest]"
            " if rest < 20 else "
            "tens[rest // 10 - 2]\n"
            "if rest > 20 and rest % 10:\n"
            f"    words += {dash!r} + small[rest % 10]\n"
            "if number < 100:\n"
            "    return words\n"
            "hundreds = small[number // 100] + ' hundred'\n"
            f"return hundreds + {glue!r} + words if rest else hundreds"
        ),
        draw={"number": {"kind": "integer", "low": 0, "high": 999, "edges": [7, 30, 100, 342, 501]}},
        edges=[0, 12, 19, 20, 21, 90, 99, 100, 101, 220, 999],
        raises="the number is negative or greater than 999",
        errors=[-1, 1000, -20],
    )


def _number_text(scale: str, more: list[str]) -> dict[str, Any]:
    parts = {
        "first": ["two", "Seven", "nineteen", "five four", "ten", "twelve"],
        "gap": [" ", "-", "  "],
        "scale": [scale, scale.upper(), "one", "zero"],
        "last": ["three", "Eleven", "one-six", "eight", "", *more],
    }
    drawn = {name: {"kind": "choice", "values": values} for name, values in parts.items()}
    return {"kind": "template", "pattern": "{first}{gap}{scale} {last}", "parts": drawn}


def _read(rng: random.Random) -> ToolVariant:
    limit, tens, wording = rng.choice(
        [
            (100, _TENS, 'any of "zero" to "nineteen", "twenty", "thirty" and so on to "ninety"'),
            (10, "", 'any of "zero" to "nineteen"'),
        ]
    )
    scale, word, factor = rng.choice([("hundred", "hundreds", 100), ("dozen", "dozens", 12), ("score", "scores", 20)])
    table = f"values = {{w: n for n, w in enumerate({_SMALL!r}.split())}}\n"
    if tens:
        table += f"values.update((w, 10 * n) for n, w in enumerate({tens!r}.split(), 2))\n"
    return ToolVariant(
        name=f"read_number_words_{word}_{'tens' if limit == 100 else 'small'}",
        args={"text": "str"},
        returns="int",
        does=(
            "Read the number words of the text from left to right, starting with 0: each adds its value, but "
            f'"{scale}" multiplies what there is so far by {factor}.',
            "Return the number that the words say: go through them with a total of 0, add the value of each word, and "
            f'at "{scale}" take {factor} times the total.',
            f'Compute a total, 0 at first: each number word is added to it, each "{scale}" multiplies it by {factor}.',
        ),
        behaviour=[
            f'Number words are {wording}; other words than these and "{scale}" are not allowed.',
            "Words are separated by white space or hyphens, and case does not matter.",
        ],
        body=(
            f"{table}"
            "words = text.lower().replace('-', ' ').split()\n"
            f"if not words or set(words) - {{*values, {scale!r}}}:\n"
            "    raise ValueError('number words are needed')\n"
            "total = 0\n"
            "for word in words:\n"
            f"    total = total * {factor} if word == {scale!r} else total + values[word]\n"
            "return total"
        ),
        draw={"text": _number_text(scale, ["sixty-six", "forty"] if tens else [])},
        edges=[
            *("zero", "nineteen", "ONE-TWO-THREE", "four", "nine", "fourteen"),
            *(scale, f"one {scale}", f"two {scale} three {scale}"),
            *(["twenty", "ninety-nine", f"thirty {scale} eighty"] if tens else []),
        ],
        raises="there are no words, or one of them is not allowed",
        errors=["", " - ", f"two {scale}s", "apple", "a one"],
    )


def _ordinal(rng: random.Random) -> ToolVariant:
    glue, word = rng.choice([("", "joined"), ("-", "dash"), ("^", "caret"), (" ", "blank"), ("_", "underscore")])
    first = rng.choice([0, 1])
    return ToolVariant(
        name=f"ordinal_{word}_from_{first}",
        args={"number": "int"},
        returns="str",
        does=(
            f'Return the number followed by "{glue}" and its English ordinal ending: st, nd, rd or th.'
            if glue
            else "Return the number directly followed by its English ordinal ending: st, nd, rd or th.",
            f'Write the number as an English ordinal in digits, with "{glue}" before the ending: "2{glue}nd", '
            f'"4{glue}th".'
            if glue
            else 'Write the number as an English ordinal in digits: "2nd", "4th".',
            f'Turn the number into "N{glue}st", "N{glue}nd", "N{glue}rd" or "N{glue}th", as English has it.',
        ),
        behaviour=[
            "The last digit decides: st after 1, nd after 2, rd after 3, else th.",
            "But numbers whose last two digits are 11, 12 or 13 have th.",
        ],
        body=(
            f"if number < {first}:\n"
            "    raise ValueError('the number is too small')\n"
            "ending = {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')\n"
            "if number % 100 in (11, 12, 13):\n"
            "    ending = 'th'\n"
            f"return f'{{number}}{glue}{{ending}}'"
        ),
        draw={"number": {"kind": "integer", "low": first, "high": 250, "edges": [1, 2, 3, 11, 12, 13, 22, 33, 111]}},
        edges=[first, 1, 2, 3, 4, 11, 12, 13, 14, 21, 112, 113, 1003],
        raises=f"the number is less than {first}",
        errors=[first - 1, -11],
    )


def _digits(rng: random.Random) -> ToolVariant:
    before, after, word = rng.choice(
        [("(", ")", "brackets"), ("<", ">", "angles"), ("-", "-", "dashes"), ("", " ", "blank")]
    )
    case, wording, call = rng.choice(
        [
            ("small", "in lower case", ""),
            ("big", "in upper case", ".upper()"),
            ("title", "with a capital first letter", ".title()"),
        ]
    )
    mark = f'"{before}" before and "{after}" after it' if before else "one blank after it"
    return ToolVariant(
        name=f"digits_as_{case}_words_in_{word}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the text with each digit replaced by its English word {wording}, with {mark}.",
            f"Put in place of every digit of the text its name in English, {wording}, with {mark}.",
            f"Spell out all digits of the text in English, one by one, {wording}, each with {mark}.",
        ),
        behaviour=[
            'Digits are 0 to 9, named "zero" to "nine"; each digit of a longer number is replaced by itself.',
            "All other characters stay.",
        ],
        body=(
            f"words = {_DIGITS!r}{call}.split()\n"
            f"return ''.join(f'{before}{{words[int(c)]}}{after}' if c.isascii() and c.isdigit() else c for c in text)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": ["a1", "20", "sky", "7.5", "B-9", "Über", "3", "0x"],
                "min": 1,
                "max": 4,
            }
        },
        edges=["", "0123456789", "no digits", "x8y46"],
    )


def _replace(rng: random.Random) -> ToolVariant:
    most = rng.choice([5, 7, 9, 12])
    before, after, sign = rng.choice([("", "", "plain"), ("#", "", "hash"), ("(", ")", "brackets"), ("", ".", "dot")])
    form = f'"{before}N{after}"'
    return ToolVariant(
        name=f"number_words_to_{most}_as_{sign}_digits",
        args={"text": "str"},
        returns="str",
        does=(
            f'Return the text with every number word from "zero" up to the one for `most` replaced by {form}, N '
            "being its "
            "number in digits.",
            f"Replace the English words for 0 to `most` in the text by {form} with the number N in digits.",
            f"Write each English number word of the text whose value is at most `most` as {form}, where N is its "
            "value.",
        ),
        behaviour=[
            'Number words are "zero" to "nineteen", in any case.',
            "Only a whole run of letters a to z (in any case) can be one: nothing is replaced inside of longer runs.",
        ],
        body=(
            "import re\n"
            f"words = {_SMALL!r}.split()[: config.most + 1]\n"
            f"digits = {{word: f'{before}{{n}}{after}' for n, word in enumerate(words)}}\n"
            "return re.sub('[A-Za-z]+', lambda m: digits.get(m[0].lower(), m[0]), text)"
        ),
        draw={
            "text": {
                "kind": "words",
                "values": [
                    "one",
                    "Six",
                    "seventeen",
                    "eight,",
                    "ten",
                    "TWELVE",
                    "of",
                    "4",
                    "sky",
                    "two-fold",
                    "someone",
                    "five",
                ],
                "min": 2,
                "max": 5,
            }
        },
        edges=["", _SMALL, _SMALL.title(), "one2two, x-three"],
        options={"most": Option(type="int", default=most + 6, set=most)},
    )


def _letters(rng: random.Random) -> ToolVariant:
    what, wording, count = rng.choice(
        [
            ("letters", "letters", "len(word)"),
            ("vowels", "vowels (a, e, i, o, u)", "len([c for c in word if c in 'aeiou'])"),
            ("different_letters", "different letters", "len(set(word))"),
        ]
    )
    power, short = rng.choice([(1, "once"), (2, "squared")])
    result = f"the {'square of the ' if power == 2 else ''}number of {wording}"
    return ToolVariant(
        name=f"{what}_of_number_word_{short}",
        args={"number": "int"},
        returns="int",
        does=(
            f"Spell the number that the last two digits make in English and return {result} in its name.",
            f"Take the number without its sign modulo 100, write it in English and return {result} in that.",
            f"Return {result} in the English name of what is left when the number without its sign is divided by 100.",
        ),
        behaviour=[
            'The name has neither blank nor hyphen ("fortytwo"), and 0 is "zero".',
            "The sign of the number does not matter.",
        ],
        body=(
            f"{_TABLES}"
            "rest = abs(number) % 100\n"
            "word = small[rest] if rest < 20 else tens[rest // 10 - 2]\n"
            "if rest > 20 and rest % 10:\n"
            "    word += small[rest % 10]\n"
            f"return {count}{' ** 2' if power == 2 else ''}"
        ),
        draw={"number": {"kind": "integer", "low": -300, "high": 999, "edges": [0, 1, 12, 30, 73]}},
        edges=[0, 19, 20, 21, 90, 99, 100, -7, 1012, -342],
    )


FAMILY = Family(
    name="number_words",
    subject="numbers written as words",
    tools=(
        ToolTemplate(level=3, make=_spell),
        ToolTemplate(level=3, make=_read),
        ToolTemplate(level=2, make=_ordinal),
        ToolTemplate(level=1, make=_digits),
        ToolTemplate(level=2, make=_replace),
        ToolTemplate(level=2, make=_letters),
    ),
)
