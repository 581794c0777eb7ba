"""Simple ciphers over letters."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_VALUES = ["Attack", "at", "dawn", "XYZ", "zebra", "a1", "don't", "90", "Über", "Mix-Up", "of", "Quick"]
_SENTENCE = {"kind": "words", "values": _VALUES, "min": 1, "max": 4, "separator": " "}
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = "Letters are a to z and A to Z; all other characters stay as they are."


def _shift(rng: random.Random) -> ToolVariant:
    shift = rng.choice([1, 3, 5, 11, -2, -4])
    has_digits = rng.random() < 0.5
    kind = "with_digits" if has_digits else "letters_only"
    digits = "    elif c.isascii() and c.isdigit():\n        coded += str((int(c) + config.shift) % 10)\n"
    return ToolVariant(
        name=f"shift_{'forward' if shift > 0 else 'back'}_by_{abs(shift)}_{kind}",
        args={"text": "str"},
        returns="str",
        does=(
            "Return the text with each letter replaced by the one `shift` places further on in the alphabet.",
            "Shift every letter of the text by `shift` places in the alphabet.",
            "Encode the text: each letter becomes the one that comes `shift` places after it in the alphabet.",
        ),
        behaviour=[
            "After z comes a, before a comes z; a negative `shift` goes backwards.",
            "Letters are a to z and A to Z; upper case stays upper case and lower case stays lower case.",
            "Digits 0 to 9 are shifted likewise, with 0 after 9; all other characters stay as they are."
            if has_digits
            else "All other characters, digits too, stay as they are.",
        ],
        body=(
            "coded = ''\n"
            "for c in text:\n"
            "    if c.isascii() and c.isalpha():\n"
            "        first = ord('A') if c.isupper() else ord('a')\n"
            "        coded += chr((ord(c) - first + config.shift) % 26 + first)\n"
            f"{digits if has_digits else ''}"
            "    else:\n"
            "        coded += c\n"
            "return coded"
        ),
        draw={"text": _SENTENCE},
        edges=["", f"{_ALPHABET} 0123456789", f"{_ALPHABET.upper()} -[`{{@"],
        options={"shift": Option(type="int", default=13, set=shift)},
    )


def _mirror(rng: random.Random) -> ToolVariant:
    what, wording, plain, coded = rng.choice(
        [
            ("whole_alphabet", "a and z, b and y, and so on to m and n", _ALPHABET, _ALPHABET[::-1]),
            ("within_halves", "a and m, b and l, ... f and h, and also n and z, o and y, ... s and u", "", ""),
            ("between_halves", "a and n, b and o, and so on to m and z", _ALPHABET, _ALPHABET[13:] + _ALPHABET[:13]),
            ("neighbours", "a and b, c and d, and so on to y and z", _ALPHABET, "badcfehgjilknmporqtsvuxwzy"),
            ("vowels", "a and u, e and o", "aeou", "uoea"),
        ]
    )
    if what == "within_halves":
        plain, coded = _ALPHABET, _ALPHABET[12::-1] + _ALPHABET[:12:-1]
    return ToolVariant(
        name=f"exchange_letters_{what}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the text with these letters exchanged for each other: {wording}.",
            f"Replace every letter by its partner; partners are {wording}.",
            f"Encode the text by letting these letters change places: {wording}.",
        ),
        behaviour=[
            "The same goes for capital letters, which become capital letters.",
            "All other characters, and letters that have no partner, stay as they are.",
        ],
        body=(
            f"plain = {plain!r}\n"
            f"coded = {coded!r}\n"
            "return text.translate(str.maketrans(plain + plain.upper(), coded + coded.upper()))"
        ),
        draw={"text": _SENTENCE},
        edges=["", _ALPHABET, _ALPHABET.upper(), "A man, a plan: 7!"],
        laws=[{"kind": "involution"}],
    )


def _key(rng: random.Random) -> ToolVariant:
    key = rng.choice(["lemon", "kite", "bad", "quartz"])
    way, sign, to = rng.choice([("encode", "+", "forwards"), ("decode", "-", "backwards")])
    pace, rule = rng.choice(
        [
            ("letters", "Only letters of the text use up a letter of the key"),
            ("all", "Every character of the text, letter or not, uses up a letter of the key"),
        ]
    )
    count = "        used += 1\n    else:\n        coded += c\n"
    if pace == "all":
        count = "    else:\n        coded += c\n    used += 1\n"
    return ToolVariant(
        name=f"{way}_with_key_{key}_for_{pace}",
        args={"text": "str"},
        returns="str",
        does=(
            f'Shift each letter of the text {to} in the alphabet by the number of the letter of the key "{key}" that '
            "is "
            "its turn.",
            f"Return the text with its letters moved {to} in the alphabet, each by the number of the next letter of "
            f'"{key}".',
            f'Take the letters of "{key}" in turn: each moves one letter of the text {to} in the alphabet by its '
            "number.",
        ),
        behaviour=[
            "The number of a is 0, of b 1 and so on to 25 for z.",
            f"{rule}; after its last letter the key starts again.",
            "The alphabet goes round (z is followed by a), and upper and lower case are kept.",
            _LETTERS,
        ],
        body=(
            f"key = {key!r}\n"
            "coded, used = '', 0\n"
            "for c in text:\n"
            "    if c.isascii() and c.isalpha():\n"
            "        first = 97 if c.islower() else 65\n"
            "        step = ord(key[used % len(key)]) - 97\n"
            f"        coded += chr((ord(c) - first {sign} step) % 26 + first)\n"
            f"{count}"
            "return coded"
        ),
        draw={"text": _SENTENCE},
        edges=["", "aaaaaaaa AAAA", "zzzzzzzz ZZZZ", "A-b-C-d-E-f", f"{_ALPHABET}{_ALPHABET.upper()}"],
    )


def _rails(rng: random.Random) -> ToolVariant:
    rows = rng.choice([3, 4, 5])
    way = rng.choice(["zigzag", "cyclic"])
    cycle = 2 * rows - 2
    path = {
        "zigzag": f"down from the first row to row {rows}, up again to the first, and so on",
        "cyclic": f"from the first row to row {rows}, then from the first again, and so on",
    }[way]
    place = (
        f"step = at % {cycle}\n    rows[min(step, {cycle} - step)] += c"
        if way == "zigzag"
        else f"rows[at % {rows}] += c"
    )
    blanks = rng.random() < 0.5
    return ToolVariant(
        name=f"{way}_over_{rows}_rows_{'blanks' if blanks else 'no_blanks'}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Write the characters of the text into {rows} rows, one in a row at a time, {path}; return the rows one "
            "after the other.",
            f"Deal the characters out to {rows} rows, {path}, and join the rows from first to last.",
            f"Put each next character at the end of the next row, {path}; there are {rows} rows, whose texts in order, "
            "without a separator, are the result.",
        ),
        behaviour=["Blanks are characters like others." if blanks else "White space is removed from the text first."],
        body=(
            f"rows = [''] * {rows}\n"
            f"for at, c in enumerate({'text' if blanks else repr('') + '.join(text.split())'}):\n"
            f"    {place}\n"
            "return ''.join(rows)"
        ),
        draw={"text": {**_SENTENCE, "min": 2}},
        edges=["", "a", _ALPHABET, "we are found"],
    )


def _value(rng: random.Random) -> ToolVariant:
    order, wording, code = rng.choice(
        [
            ("a_is_1", "a counts 1, b counts 2, and so on to 26 for z", "ord(c) - 96"),
            ("z_is_1", "z counts 1, y counts 2, and so on to 26 for a", "123 - ord(c)"),
            ("a_is_0", "a counts 0, b counts 1, and so on to 25 for z", "ord(c) - 97"),
        ]
    )
    part, which, source = rng.choice(
        [
            ("all_letters", "all letters of the text", "text.lower()"),
            ("first_letters", "the first characters of the words of the text", "[w[0] for w in text.lower().split()]"),
            ("every_other", "every other character of the text, beginning with the first one,", "text.lower()[::2]"),
        ]
    )
    return ToolVariant(
        name=f"value_of_{part}_{order}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the sum of the values of {which} where {wording}.",
            f"Add up the values of {which}: {wording}.",
            f"Give the total value of {which} if {wording}.",
        ),
        behaviour=[
            "Case does not matter, and a character other than a to z (in either case) counts 0.",
            *(["A word is a run of characters that are not white space."] if part == "first_letters" else []),
        ],
        body=f"return sum({code} for c in {source} if c.isascii() and c.isalpha())",
        draw={"text": _SENTENCE},
        edges=["", "azAZ", "b{`y", "B 7c zz", "{z ~z `a"],
    )


def _numbers(rng: random.Random) -> ToolVariant:
    first = rng.choice([0, 1, 10])
    blank, rule, code = rng.choice(
        [
            ("minus", "A blank gives -1", "-1 if c == ' ' else {}"),
            ("skipped", "A blank gives nothing", ""),
            ("zero", "A blank gives 0", "0 if c == ' ' else {}"),
        ]
    )
    number = f"ord(c) - 97 + {first}" if first else "ord(c) - 97"
    item = code.format(number) if code else number
    return ToolVariant(
        name=f"letter_numbers_from_{first}_blank_{blank}",
        args={"text": "str"},
        returns="list[int]",
        does=(
            f"Return the numbers of the letters of the text, in order, where a has number {first}, b {first + 1} and "
            "so on.",
            f"Replace each letter by its place in the alphabet, counting from {first} for a, and list these numbers.",
            f"Turn the text into a list of numbers: {first} for a, {first + 1} for b, up to {first + 25} for z.",
        ),
        behaviour=["Case does not matter.", f"{rule}; the empty text gives an empty list."],
        body=(
            "text = text.lower()\n"
            f"if any(c not in '{_ALPHABET} ' for c in text):\n"
            "    raise ValueError('only letters and blanks can be numbered')\n"
            f"return [{item} for c in text{'' if code else repr(' ').join([' if c != ', ''])}]"
        ),
        draw={"text": {"kind": "words", "values": ["Attack", "at", "dawn", "XYZ", "b", "of"], "min": 1, "max": 3}},
        edges=["", " ", "Az", "a  b"],
        raises="the text has a character other than letters a to z (in either case) and blanks",
        errors=["a1", "don't", "a\tb"],
    )


FAMILY = Family(
    name="letter_ciphers",
    subject="ciphers over letters",
    tools=(
        ToolTemplate(level=2, make=_shift),
        ToolTemplate(level=1, make=_mirror),
        ToolTemplate(level=3, make=_key),
        ToolTemplate(level=3, make=_rails),
        ToolTemplate(level=1, make=_value),
        ToolTemplate(level=2, make=_numbers),
    ),
)
