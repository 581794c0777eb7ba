"""Texts that must have a certain format."""

import random
from typing import Any

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_BIG, _SMALL, _DIGIT = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789"


def _text(alphabet: str, low: int, high: int | None = None) -> dict[str, Any]:
    return {"kind": "text", "alphabet": alphabet, "min": low, "max": high or low}


def _shaped(shape: str, letters: str, digits: str) -> dict[str, Any]:
    """Return a generator of texts in which every L is a drawn letter and every D a drawn digit."""
    pattern = "".join(f"{{p{i}}}" if c in "LD" else c for i, c in enumerate(shape))
    parts = {f"p{i}": _text(letters if c == "L" else digits, 1) for i, c in enumerate(shape) if c in "LD"}
    return {"kind": "template", "pattern": pattern, "parts": parts}


def _plate(rng: random.Random) -> ToolVariant:
    name, what, shape, pattern = rng.choice(
        [
            (
                "two_letters_four_digits",
                "two letters, a dash, and four digits",
                "LL-DDDD",
                "[A-Z]{2}-[0-9]{4}",
            ),
            (
                "three_digits_three_letters",
                "three digits, a blank, and three letters",
                "DDD LLL",
                "[0-9]{3} [A-Z]{3}",
            ),
            (
                "letters_around_digits",
                "two letters, a dash, three digits, a dash, and two letters",
                "LL-DDD-LL",
                "[A-Z]{2}-[0-9]{3}-[A-Z]{2}",
            ),
            (
                "digit_letters_digits",
                "one digit, three letters, and three digits",
                "DLLLDDD",
                "[0-9][A-Z]{3}[0-9]{3}",
            ),
            ("city_letter_digits", "one letter, a blank, and five digits", "L DDDDD", "[A-Z] [0-9]{5}"),
        ]
    )
    return ToolVariant(
        name=f"is_plate_of_{name}",
        args={"text": "str"},
        returns="bool",
        does=(
            f"Say whether the text is a number plate of this form: {what}.",
            f"Return True if the text consists of {what}, and of nothing else.",
            f"Check a number plate. It is valid only if it is made of {what}, in this order.",
        ),
        behaviour=[
            "Letters are A to Z in either case, digits are 0 to 9.",
            "White space before and after the plate is ignored, but nowhere else.",
        ],
        body=f"import re\n\nreturn re.fullmatch(r'{pattern}', text.strip().upper()) is not None",
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    _shaped(shape, _BIG + _SMALL, _DIGIT),
                    _shaped(f" {shape} ", _BIG, _DIGIT),
                    _shaped(shape, "7-.x", _DIGIT),
                    _shaped(shape[:-1], _BIG, _DIGIT),
                ],
            }
        },
        edges=["", shape.replace("L", "q").replace("D", "1"), shape.replace("L", "Z").replace("D", "0") + "X"],
    )


def _address(rng: random.Random) -> ToolVariant:
    form, how, code, pad = rng.choice(
        [
            ("plain", "without zeros in front", "str(n)", "{0}"),
            ("padded", "always written with three digits, such as 007", "f'{n:03}'", "{0:03}"),
        ]
    )
    kind, rules, verdict = rng.choice(
        [
            (
                "network",
                "'loopback' if the first number is 127, 'private' if it is 10 or if the first two are 192 and 168, "
                "else 'public'",
                "if first == 127:\n    return 'loopback'\nreturn 'private' if first == 10 or (first == 192 and "
                "int(parts[1]) == 168) else 'public'",
            ),
            (
                "class",
                "'A' if the first number is below 128, 'B' if it is from 128 to 191, 'C' if it is from 192 to 223, "
                "else 'D'",
                "if first < 128:\n    return 'A'\nreturn 'B' if first < 192 else 'C' if first < 224 else 'D'",
            ),
        ]
    )
    firsts = (10, 127, 127, 192, 8, 100) if kind == "network" else (10, 127, 192, 191, 128, 223, 224, 240)
    return ToolVariant(
        name=f"{kind}_of_{form}_ipv4_address",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the kind of an IPv4 address: {rules}; 'invalid' if the text is no such address.",
            f"Classify the text: 'invalid' if it is no IPv4 address, otherwise {rules}.",
            f"Check that the text is an IPv4 address (else return 'invalid'), and say of which kind: {rules}.",
        ),
        behaviour=[f"An address is four whole numbers from 0 to 255, {how}, with dots between them and nothing else."],
        body=(
            "parts = text.split('.')\n"
            f"numbers = [{code} for n in range(256)]\n"
            "if len(parts) != 4 or any(part not in numbers for part in parts):\n"
            "    return 'invalid'\n"
            f"first = int(parts[0])\n{verdict}"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{a}.{b}.{c}{d}",
                "parts": {
                    "a": {"kind": "choice", "values": [pad.format(n) for n in firsts]},
                    "b": {"kind": "choice", "values": [pad.format(n) for n in (168, 168, 99)]},
                    "c": {"kind": "choice", "values": [pad.format(n) for n in (0, 7, 31, 90, 255)]},
                    "d": {"kind": "choice", "values": [*(f".{pad.format(n)}" for n in (1, 20, 255, 9, 64, 30)), ".x"]},
                },
            }
        },
        edges=[
            "",
            *(pad.format(n) + f".{pad.format(168)}" + f".{pad.format(1)}" * 2 for n in (256, 255, 192, 10, 127)),
        ],
    )


def _mail(rng: random.Random) -> ToolVariant:
    marks_name, marks, listed = rng.choice(
        [("dots", ".", "'.'"), ("dots_and_plus", ".+", "'.' or '+'"), ("dashes_and_lines", "_-", "'_' or '-'")]
    )
    size = rng.choice([2, 3])
    return ToolVariant(
        name=f"mail_verdict_{marks_name}_top_{size}",
        args={"text": "str"},
        returns="str",
        does=(
            "Check an e-mail address: return 'at' if it has not exactly one '@', else 'name' if the part before it is "
            "wrong, else 'domain' if the part after it is wrong, else 'good'.",
            "Name the first fault of an e-mail address. 'at': there is no '@' or more than one. 'name': what stands "
            "before it is malformed. 'domain': what stands after it is. 'good': there is no fault.",
            "Say 'good' to a well-formed e-mail address. Otherwise say what is wrong, trying in this order: the number "
            "of '@', which must be one ('at'), the left part ('name'), the right part ('domain').",
        ),
        behaviour=[
            f"The part before '@' is one or more groups of letters and digits with a single {listed} between groups.",
            "The part after '@' is two or more groups with dots between them; groups consist of letters, digits and "
            f"'-', the last one of at least {size} letters only.",
            "Letters are a to z in lower case; no group is empty.",
        ],
        body=(
            "import re\n\n"
            "name, at, domain = text.partition('@')\n"
            "if not at or '@' in domain:\n    return 'at'\n"
            f"if not re.fullmatch(r'[a-z0-9]+([{marks}][a-z0-9]+)*', name):\n    return 'name'\n"
            f"if not re.fullmatch(r'([a-z0-9-]+[.])+[a-z]{{{size},}}', domain):\n    return 'domain'\n"
            "return 'good'"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{name}{at}{domain}",
                "parts": {
                    "name": {
                        "kind": "choice",
                        "values": ["ann", f"bo{marks[-1]}b", f"c{marks[0]}d{marks[-1]}7", "", "e..f", "9"],
                    },
                    "at": {"kind": "choice", "values": ["@", "@", "@", "@", "@@", " at "]},
                    "domain": {
                        "kind": "choice",
                        "values": ["web.com", "a-b.c.org", "x.info", "y.de", "local", "z.c0m", ".net", "m.n.nl"],
                    },
                },
            }
        },
        edges=["", "@", "a@b.cde", "a@b.cd", "Ann@b.cde", "a@b@c.def", f"a{marks[0]}@b.cde", "ax@x.yz.", "a@bcde"],
    )


def _password(rng: random.Random) -> ToolVariant:
    default, size = rng.choice([(6, 8), (8, 10), (8, 5)])
    name, good, bad, what, code = rng.choice(
        [
            ("capital", "Q", "q", "it has a capital letter A to Z", f"any(c in {_BIG!r} for c in text)"),
            ("symbol", "#", "-", "it has one of the characters !?#%", "any(c in '!?#%' for c in text)"),
            ("no_blank", "-", " ", "it has no blank", "' ' not in text"),
        ]
    )
    return ToolVariant(
        name=f"broken_password_rules_{size}_{name}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Count how many of three rules a password breaks: it has at least `min_length` characters; it has a digit "
            f"0 to 9; {what}.",
            f"Return the number of these demands that the text does not meet: a length of `min_length` or more; at "
            f"least one digit 0 to 9; that {what}.",
            f"Check a password by its length (not below `min_length`), by its digits (0 to 9, one or more), and by "
            f"whether {what}; return how many of these three checks fail.",
        ),
        behaviour=["The result is from 0 (all is well) to 3; each rule counts once."],
        body=(
            "rules = [\n"
            "    len(text) >= config.min_length,\n"
            f"    any(c in {_DIGIT!r} for c in text),\n"
            f"    {code},\n"
            "]\n"
            "return rules.count(False)"
        ),
        draw={
            "text": {
                "kind": "one_of",
                "of": [
                    {
                        "kind": "template",
                        "pattern": "{start}{digit}{mark}{end}",
                        "parts": {
                            "start": _text("abcxyz", *sizes),
                            "digit": {"kind": "choice", "values": digits},
                            "mark": {"kind": "choice", "values": marks},
                            "end": _text("xyz", 0, 2),
                        },
                    }
                    for sizes, digits, marks in (
                        ((size, size + 3), ["7", "42"], [good, good, bad]),
                        ((1, size - 2), [""], [bad]),
                        ((1, size + 2), ["", "9"], [good, bad]),
                        ((size - 3, size + 1), ["", "5"], [good, bad]),
                    )
                ],
            }
        },
        edges=["", "x" * size, "X y", "x" * (size - 1), "Aa1!Aa1!Aa1!", "0" * (size + 1), "% 5", "Z9?" * 4],
        options={"min_length": Option(type="int", default=default, set=size)},
        laws=[{"kind": "bounds", "low": 0, "high": 3}],
    )


def _keep(rng: random.Random) -> ToolVariant:
    name, what, pattern, good, bad = rng.choice(
        [
            (
                "colours",
                "a colour: '#' and six hexadecimal digits",
                "#[0-9a-f]{6}",
                ["#ff00aa", "#0C0C0C", " #abcdef", "#123456"],
                ["#12345", "ff00aa", "#gg0000", "#1234567"],
            ),
            (
                "times",
                "a time of day such as 09:05h: an hour from 00 to 23, a colon, a minute from 00 to 59, and 'h'",
                "([01][0-9]|2[0-3]):[0-5][0-9]h",
                ["00:00h", "23:59H ", "09:30h", " 19:05H"],
                ["24:00h", "9:30h", "12:60h", "12:30"],
            ),
            (
                "prices",
                "a price: one or more digits, a dot, two digits, and 'eur' or 'usd' right behind",
                "[0-9]+[.][0-9]{2}(eur|usd)",
                ["1.50EUR", "20.00usd", " 0.99Eur", "100.10usd"],
                ["1.5eur", "2.00 eur", "3.00gbp", ".50usd"],
            ),
            (
                "identifiers",
                "an identifier: a letter a to z or '_', then any number of letters, digits 0 to 9 and '_'",
                "[a-z_][a-z0-9_]*",
                ["Max_size", "x", " _k9", "Total"],
                ["9x", "a-b", "", "two words"],
            ),
        ]
    )
    return ToolVariant(
        name=f"keep_valid_{name}",
        args={"items": "list[str]"},
        returns="list[str]",
        does=(
            f"Return the items that are {what}.",
            f"Drop each item that is not {what}; return the others.",
            f"Filter the list. An item stays only if it is {what}.",
        ),
        behaviour=[
            "First, white space around each item is removed and it is put in lower case; so it is returned.",
            "Order and duplicates stay; nothing left gives an empty list.",
        ],
        body=(
            "import re\n\n"
            "tidy = [item.strip().lower() for item in items]\n"
            f"return [item for item in tidy if re.fullmatch(r'{pattern}', item)]"
        ),
        draw={"items": {"kind": "list", "item": {"kind": "choice", "values": [*good, *bad]}, "min": 1, "max": 6}},
        edges=[[], [good[0] + "x"], [*good, *bad], bad],
        laws=[{"kind": "idempotent"}],
    )


def _phone(rng: random.Random) -> ToolVariant:
    first, second, size = rng.choice([(3, 6, 10), (2, 5, 9), (4, 7, 9), (3, 5, 8)])
    mark, joint = rng.choice([("dash", "-"), ("dot", "."), ("blank", " ")])
    groups = f"{first}, {second - first} and {size - second} digits"
    return ToolVariant(
        name=f"phone_number_{first}_{second - first}_{size - second}_with_{mark}",
        args={"text": "str"},
        returns="str",
        does=(
            f"Return the digits of a phone number in groups of {groups}, with '{joint}' between the groups.",
            f"Write the number in the form of {groups} joined by '{joint}', whatever stands between its digits in the "
            "text.",
            f"Take all digits out of the text and put '{joint}' behind the first {first} and again after "
            f"{second - first} more.",
        ),
        behaviour=["Only the digits 0 to 9 are kept; their order stays."],
        body=(
            f"digits = ''.join(c for c in text if c in {_DIGIT!r})\n"
            f"if len(digits) != {size}:\n    raise ValueError('not {size} digits')\n"
            f"return {joint!r}.join([digits[:{first}], digits[{first}:{second}], digits[{second}:]])"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{start}{a}{cut}{b}",
                "parts": {
                    "start": {"kind": "choice", "values": ["", "tel. ", "(x) ", "+"]},
                    "a": _text(_DIGIT, 4),
                    "cut": {"kind": "choice", "values": ["-", " ", "/", "", ") x"]},
                    "b": _text(_DIGIT, size - 4),
                },
            }
        },
        edges=["1" * size, "x" + "9876543210"[:size], " ".join("0123456789"[:size])],
        raises=f"the text does not have exactly {size} digits",
        errors=["", "1" * (size - 1), "1" * (size + 1), "x" + "5" * (size - 1)],
        laws=[{"kind": "idempotent"}],
    )


FAMILY = Family(
    name="format_validation",
    subject="checking the format of texts",
    tools=(
        ToolTemplate(level=1, make=_plate),
        ToolTemplate(level=3, make=_address),
        ToolTemplate(level=3, make=_mail),
        ToolTemplate(level=2, make=_password),
        ToolTemplate(level=2, make=_keep),
        ToolTemplate(level=2, make=_phone),
    ),
)
