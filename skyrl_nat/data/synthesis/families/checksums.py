"""Check digits and checksums."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_DIGITS = "Only the digits 0 to 9 of the text count; all other characters are skipped."
_READ = "digits = [int(c) for c in text if c in '0123456789']\n"
_CODE = {"kind": "text", "alphabet": "0123456789012345678901234567890123456789- x", "min": 3, "max": 14}
_WEIGHTS = [("3_1", (3, 1)), ("1_2", (1, 2)), ("7_3_1", (7, 3, 1)), ("1_3_7", (1, 3, 7)), ("2_5", (2, 5))]
_PHRASE = {"kind": "words", "values": ["Red", "sky", "at", "NIGHT", "x2", "zoo!", "...", "{7}"], "min": 1, "max": 6}


def _luhn(rng: random.Random) -> ToolVariant:
    name, which, rest = rng.choice(
        [
            ("last", "the last digit, the third last one, and so on", 0),
            ("second_last", "the second last digit, the fourth last one, and so on", 1),
        ]
    )
    result, what, code = rng.choice(
        [
            ("remainder", "the last decimal digit of the sum", "total % 10"),
            ("check_digit", "the digit that must be added to the sum to reach a multiple of 10", "-total % 10"),
        ]
    )
    return ToolVariant(
        name=f"doubling_{name}_digit_{result}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Double {which}, counted from the right; take 9 from every result above 9; add up these and all other "
            f"digits, and return {what}.",
            f"Compute a checksum of the Luhn kind. Doubled are {which}; a doubled digit above 9 counts 9 less. Of the "
            f"sum of all digits so changed, give {what}.",
            f"Go through the digits from right to left and double every other one, namely {which}, replacing two-digit "
            f"results by the sum of their digits. Return {what}, where the sum is over all digits after that.",
        ),
        behaviour=[_DIGITS, "No digit gives 0."],
        body=(
            _READ + "total = 0\n"
            "for i, digit in enumerate(reversed(digits)):\n"
            f"    if i % 2 == {rest}:\n"
            "        digit = digit * 2 - 9 if digit > 4 else digit * 2\n"
            "    total += digit\n"
            f"return {code}"
        ),
        draw={"text": _CODE},
        edges=["", "5", "50", "9x4", "1234 5678 9012 345", "4-4-5-5"],
        laws=[{"kind": "bounds", "low": 0, "high": 9}],
    )


def _weighted(rng: random.Random) -> ToolVariant:
    name, weights = rng.choice(_WEIGHTS)
    modulus = rng.choice([10, 11, 97])
    listed = ", ".join(map(str, weights))
    return ToolVariant(
        name=f"weights_{name}_modulo_{modulus}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Multiply the digits from left to right by {listed}, {listed}, and so on, and return the rest of the "
            f"sum of the products divided by {modulus}.",
            f"Return the sum of the digits, weighted with {listed} over and over again from the first digit on, modulo "
            f"{modulus}.",
            f"Each digit has a weight: {listed} in turn, beginning on the left. Add up digit times weight and give "
            f"what is left when the sum is divided by {modulus}.",
        ),
        behaviour=[_DIGITS + " They use up no weight.", "No digit gives 0."],
        body=(
            _READ + f"weights = {weights}\n"
            f"return sum(digit * weights[i % {len(weights)}] for i, digit in enumerate(digits)) % {modulus}"
        ),
        draw={"text": {**_CODE, "min": 5, "max": 16}},
        edges=["", "x", "1-1-1-1", "987654321098765", "90x80"],
        laws=[{"kind": "bounds", "low": 0, "high": modulus - 1}],
    )


def _book(rng: random.Random) -> ToolVariant:
    name, size, formula, code = rng.choice(
        [
            (
                "isbn10",
                9,
                "10 times the first digit, 9 times the second, and so on down to 2 times the ninth",
                "{d} * (10 - i)",
            ),
            (
                "issn",
                7,
                "8 times the first digit, 7 times the second, and so on down to 2 times the seventh",
                "{d} * (8 - i)",
            ),
            ("ean13", 12, "the digits at odd places and 3 times those at even places", "{d} * (1 + i % 2 * 2)"),
            ("ean8", 7, "3 times the digits at odd places and the digits at even places", "{d} * (3 - i % 2 * 2)"),
            ("upc", 11, "3 times the digits at odd places and the digits at even places", "{d} * (3 - i % 2 * 2)"),
        ]
    )
    modulus = 11 if name.startswith("is") else 10
    letter = "; 10 is written as X" if modulus == 11 else ""
    end = "('X' if check == 10 else str(check))" if modulus == 11 else "str(check)"
    return ToolVariant(
        name=f"complete_{name}_code",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the {size} digits with their check digit behind: the smallest number from 0 on that, added to the "
            f"sum of {formula}, gives a multiple of {modulus}{letter}.",
            f"Complete a code of {size} digits. Take the sum of {formula}; append what is missing to the next multiple "
            f"of {modulus}, or 0 where nothing is missing{letter}.",
            f"Append the check digit c to the text, which has {size} digits, such that c plus the sum of {formula} can "
            f"be divided by {modulus}, with c as small as possible but not negative{letter}.",
        ),
        behaviour=["Places are counted from 1, from the left."],
        body=(
            "import re\n\n"
            f"if not re.fullmatch('[0-9]{{{size}}}', text):\n    raise ValueError('not {size} digits')\n"
            f"check = -sum({code.format(d='int(c)')} for i, c in enumerate(text)) % {modulus}\n"
            f"return text + {end}"
        ),
        draw={"text": {"kind": "text", "alphabet": "0123456789", "min": size, "max": size}},
        edges=["0" * size, "1" * size, "0" * (size - 1) + "6", "9" * size],
        raises=f"the text does not consist of exactly {size} digits 0 to 9",
        errors=["", "1" * (size - 1), "1" * (size + 1), "1" * (size - 1) + "x"],
    )


def _fold(rng: random.Random) -> ToolVariant:
    name, what, code = rng.choice(
        [
            ("sum", "the value plus the character's code", "value + ord(c)"),
            ("times_31", "31 times the value plus the character's code", "value * 31 + ord(c)"),
            ("minus", "the character's code minus the value", "ord(c) - value"),
        ]
    )
    default, start = rng.choice([(0, 7), (1, 90), (0, 201)])
    return ToolVariant(
        name=f"hex_checksum_{name}_from_{start}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Start with the value `start`; for each character the new value is {what}, modulo 256. Return the last "
            "value.",
            f"Compute a one-byte checksum: begin with `start` and replace, character by character, the value by "
            f"{what}, of which only the rest of the division by 256 is kept.",
            f"Fold the characters of the text from left to right into a number, first `start`, then each time {what} "
            "modulo 256, and return the final number.",
        ),
        behaviour=[
            "The result is written as two lower-case hexadecimal digits.",
            "A character's code is its Unicode number, and the rest is never negative; an empty text gives `start`.",
        ],
        body=(f"value = config.start\nfor c in text:\n    value = ({code}) % 256\nreturn f'{{value:02x}}'"),
        draw={"text": _PHRASE},
        edges=["", "a", "\x01", "~~~~ zzzz"],
        options={"start": Option(type="int", default=default, set=start)},
    )


def _twin(rng: random.Random) -> ToolVariant:
    modulus = rng.choice([97, 101, 211, 251])
    first = rng.choice([1, 5])
    return ToolVariant(
        name=f"twin_sums_modulo_{modulus}_from_{first}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Keep two numbers, a = {first} and b = 0. For each character add its code to a, then a to b, both modulo "
            f"{modulus}. Return 1000 * b + a.",
            f"Compute a checksum like Adler's: a starts at {first} and grows by every character's code, b starts at 0 "
            f"and grows by the new a, each taken modulo {modulus}; the result is a plus 1000 times b.",
            f"Return 1000 times the second sum plus the first, both modulo {modulus}: the first sum is {first} plus "
            "the codes of the characters, the second is the total of the values that the first has after each "
            "character.",
        ),
        behaviour=[f"A character's code is its Unicode number; an empty text gives {first}."],
        body=(
            f"a, b = {first}, 0\n"
            "for c in text:\n"
            f"    a = (a + ord(c)) % {modulus}\n"
            f"    b = (b + a) % {modulus}\n"
            "return b * 1000 + a"
        ),
        draw={"text": _PHRASE},
        edges=["", "a", "zzzzzzzz", "ab", "ba"],
        laws=[{"kind": "bounds", "low": 0, "high": 1001 * (modulus - 1)}],
    )


def _valid(rng: random.Random) -> ToolVariant:
    name, weights = rng.choice(_WEIGHTS)
    listed = ", ".join(map(str, weights))

    def total(digits: str) -> int:
        return sum(int(digit) * weights[i % len(weights)] for i, digit in enumerate(digits))

    good = [code for code in map(str, range(1003, 99999, 97)) if total(code) % 10 == 0]
    return ToolVariant(
        name=f"is_code_valid_by_weights_{name}",
        args={"text": "str"},
        returns="bool",
        does=(
            f"Say whether the sum of the digits, multiplied from left to right by {listed}, {listed} and so on, can be "
            "divided by 10.",
            f"Return True if the digits, weighted by {listed} in turn from the left, add up to a multiple of 10.",
            f"Check a code: each digit times its weight ({listed}, repeated, from the first digit on); the code is "
            "valid if the sum of these ends in 0.",
        ),
        behaviour=[_DIGITS + " They use up no weight.", "A text with fewer than two digits is never valid."],
        body=(
            _READ + f"weights = {weights}\n"
            f"total = sum(digit * weights[i % {len(weights)}] for i, digit in enumerate(digits))\n"
            "return len(digits) > 1 and total % 10 == 0"
        ),
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    {"kind": "choice", "values": good},
                    {"kind": "template", "pattern": "{a}-x", "parts": {"a": {"kind": "choice", "values": good}}},
                    _CODE,
                    _CODE,
                ],
            }
        },
        edges=["", "0", "00", "x0", *[f"{n:02}" for n in range(10, 99) if total(f"{n:02}") % 10 == 0][:3]],
    )


FAMILY = Family(
    name="checksums",
    subject="check digits and checksums",
    tools=(
        ToolTemplate(level=3, make=_luhn),
        ToolTemplate(level=2, make=_weighted),
        ToolTemplate(level=3, make=_book),
        ToolTemplate(level=1, make=_fold),
        ToolTemplate(level=2, make=_twin),
        ToolTemplate(level=2, make=_valid),
    ),
)
