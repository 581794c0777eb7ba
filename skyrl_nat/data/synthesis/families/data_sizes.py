"""Sizes of data."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_UNITS = {1024: ["B", "KiB", "MiB", "GiB", "TiB"], 1000: ["B", "kB", "MB", "GB", "TB"]}
_BASES = {1024: "binary", 1000: "decimal"}


def _human(rng: random.Random) -> ToolVariant:
    base = rng.choice([1024, 1000])
    digits = rng.choice([0, 1, 2, 3])
    glue_name, glue = rng.choice([("blank", " "), ("tight", "")])
    units = _UNITS[base]
    listed = ", ".join(units)
    example = f"{3.25:.{digits}f}{glue}{units[2]}"
    return ToolVariant(
        name=f"{_BASES[base]}_size_text_{digits}_decimals_{glue_name}",
        args={"size": "int"},
        returns="str",
        does=(
            f'Write a number of bytes in the largest of {listed} of which there is at least one, such as "{example}".',
            f'Return a size in bytes as text like "{example}", in the largest unit of {listed} that fits into it.',
            f'Make a number of bytes readable, like "{example}": take the largest of {listed} that is not more.',
        ),
        behaviour=[
            f"Each unit is {base} times the one before. The unit is chosen before rounding.",
            f"In B the number is whole, without decimals; else size / unit is written by Python's format type "
            f"'.{digits}f'.",
            f"There is {'a blank' if glue else 'nothing'} between number and unit. Zero is in B; a negative size is "
            "written like the positive one with '-' in front.",
        ],
        body=(
            f"units, power = {units}, 0\n"
            "for step in range(1, 5):\n"
            f"    if abs(size) >= {base}**step:\n"
            "        power = step\n"
            f"number = str(size) if power == 0 else f'{{size / {base}**power:.{digits}f}}'\n"
            f"return f'{{number}}{glue}{{units[power]}}'"
        ),
        draw={
            "size": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -3000, "high": 9000, "edges": [0, base, base - 1]},
                    {"kind": "integer", "low": 0, "high": 3 * base**2},
                    {"kind": "integer", "low": base**2, "high": 3 * base**3},
                    {"kind": "integer", "low": base**3, "high": 3 * base**5},
                ],
            }
        },
        edges=[0, 1, base - 1, *(base**power for power in (1, 2, 3, 4, 5)), -(base**2), base**2 - 1, base * 1100],
    )


def _read(rng: random.Random) -> ToolVariant:
    base = rng.choice([1024, 1000])
    name, what, code = rng.choice(
        [
            ("down", "rounded down to whole ones", "int(size)"),
            ("up", "rounded up to whole ones", "math.ceil(size)"),
            ("nearest", "rounded to the nearest whole number, ties to the even one", "round(size)"),
        ]
    )
    return ToolVariant(
        name=f"bytes_of_{_BASES[base]}_size_text_{name}",
        args={"text": "str"},
        returns="int",
        does=(
            f"Return the number of bytes that text such as '1.5 MB' or '20k' says, {what}.",
            f"Read a size like '300', '2.5G' or '7 kb' and give it in bytes, {what}.",
            f"Convert a size with one of the letters K, M and G, or none, to bytes, {what}.",
        ),
        behaviour=[
            "The text is digits, maybe a point and more digits, maybe one blank, maybe K, M or G, and maybe B; letters "
            "in either case.",
            f"K means {base}, M means {base}**2, G means {base}**3 bytes; without one of them the number is bytes.",
            "The exact decimal number of the text counts, not a float near it.",
        ],
        body=(
            "import math\nimport re\nfrom fractions import Fraction\n\n"
            if name == "up"
            else "import re\nfrom fractions import Fraction\n\n"
        )
        + (
            "found = re.fullmatch('([0-9]+(?:[.][0-9]+)?) ?([KMG]?)B?', text.upper())\n"
            "if not found:\n    raise ValueError('no size')\n"
            f"size = Fraction(found[1]) * {base} ** ['', 'K', 'M', 'G'].index(found[2])\n"
            f"return {code}"
        ),
        draw={
            "text": {
                "kind": "template",
                "pattern": "{number}{gap}{letter}{end}",
                "parts": {
                    "number": {
                        "kind": "choice",
                        "values": ["1", "0.5", "2.55", "3.14159", "12", "07.7", "100.001", "1.5"],
                    },
                    "gap": {"kind": "choice", "values": ["", " "]},
                    "letter": {"kind": "choice", "values": ["", "k", "K", "M", "m", "G", "g"]},
                    "end": {"kind": "choice", "values": ["", "b", "B"]},
                },
            }
        },
        edges=["0", "1.5", "2.5", "0.7 B", "1 kb", "1 MB", "1g", "0.0005 K", "1.0001"],
        raises="the text has another form",
        errors=["", "KB", "1,5 MB", "1 TB", "-1 K", "1  K", "1 KiB", ".5G"],
    )


def _transfer(rng: random.Random) -> ToolVariant:
    name, unit, code = rng.choice(
        [
            ("megabits", "megabits (1000000 bits) per second", "size * 8 / (config.rate * 1000000)"),
            ("megabytes", "megabytes (1000000 bytes) per second", "size / (config.rate * 1000000)"),
            ("kibibytes", "kibibytes (1024 bytes) per second", "size / (config.rate * 1024)"),
            (
                "baud",
                "thousands of bits per second, where each byte is sent as 10 bits",
                "size * 10 / (config.rate * 1000)",
            ),
        ]
    )
    rate = rng.choice([2.5, 16.0, 50.0, 100.0])
    digits = rng.choice([2, 3])
    return ToolVariant(
        name=f"seconds_at_{int(10 * rate)}_tenths_of_{name}_{digits}_digits",
        args={"size": "int"},
        returns="float",
        does=(
            f"Return how many seconds it takes to send size bytes, at `rate` {unit}.",
            f"At a speed of `rate` {unit}, how long does a file of size bytes take? Return the seconds.",
            f"Give the time, in seconds, for the transfer of so many bytes over a line of `rate` {unit}.",
        ),
        behaviour=[
            f"The answer is {code.replace('config.', '')}, rounded to {digits} digits by Python's round.",
            "A byte has 8 bits." if name == "megabits" else "There is no other delay.",
        ],
        body=f"if size < 0:\n    raise ValueError('size must not be negative')\nreturn round({code}, {digits})",
        draw={
            "size": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": 100000, "high": 90000000},
                    {"kind": "integer", "low": 10**8, "high": 10**10},
                ],
            }
        },
        edges=[0, 1, 1000000, 123456789, 1024],
        raises="size is negative",
        errors=[-1, -1000],
        options={"rate": Option(type="float", default=10.0, set=rate)},
        laws=[{"kind": "monotone"}],
    )


def _blocks(rng: random.Random) -> ToolVariant:
    block = rng.choice([100, 512, 1440, 4096])
    empty_name, empty, least = rng.choice([("free", "takes no block", ""), ("one", "takes one block", "1")])
    name, what, code = rng.choice(
        [
            ("blocks", "the number of blocks", "{0}"),
            ("bytes", "the bytes of all blocks together", "{0} * config.block"),
            ("waste", "the bytes of its blocks that it leaves unused", "{0} * config.block - size"),
        ]
    )
    count = "-(-size // config.block)"
    count = f"max(1, {count})" if least else count
    return ToolVariant(
        name=f"{name}_on_disk_of_{block}_empty_{empty_name}",
        args={"size": "int"},
        returns="int",
        does=(
            f"A file takes whole blocks of `block` bytes on a disk. Return {what} for a file of size bytes.",
            f"Return {what}, for a file of size bytes on a disk whose blocks have `block` bytes; as few blocks as "
            "possible are used.",
            f"Split size bytes into blocks of `block` bytes, of which the last may be partly used, and give {what}.",
        ),
        behaviour=[f"A file of 0 bytes {empty}."],
        body=f"if size < 0:\n    raise ValueError('size must not be negative')\nreturn {code.format(count)}",
        draw={"size": {"kind": "integer", "low": 0, "high": 40 * block, "edges": [block, 10 * block, 3 * block + 1]}},
        edges=[0, 1, block - 1, block, block + 1, 7 * block],
        raises="size is negative",
        errors=[-1, -block],
        options={"block": Option(type="int", default=2048, set=block)},
    )


def _whole_unit(rng: random.Random) -> ToolVariant:
    base = rng.choice([1024, 1000])
    last = rng.choice([2, 3, 4])
    units = _UNITS[base][1 : last + 1]
    zero_name, zero = rng.choice([("word", "empty"), ("b", "0 B"), ("largest", f"0 {units[-1]}")])
    listed = ", ".join(["B", *units])
    return ToolVariant(
        name=f"exact_{_BASES[base]}_size_to_{units[-1].lower()}_zero_{zero_name}",
        args={"size": "int"},
        returns="str",
        does=(
            f'Write a number of bytes with the largest unit of {listed} that gives a whole number: "{base} B" is '
            f'"1 {units[0]}".',
            f"Return the size as a whole number, a blank and the largest of {listed} of which it is a multiple, such "
            f'as "3 {units[0]}".',
            f"Of {listed} choose the largest unit that divides the number of bytes without a remainder; return text "
            f'like "12 {units[1]}" or "{base + 1} B".',
        ),
        behaviour=[
            f"Each unit is {base} times the one before.",
            f"Zero is \"{zero}\", and a negative size is written like the positive one with '-' in front.",
        ],
        body=(
            f"if size == 0:\n    return {zero!r}\n"
            "unit = 'B'\n"
            f"for larger in {units}:\n"
            f"    if size % {base} == 0:\n"
            f"        size, unit = size // {base}, larger\n"
            "return f'{size} {unit}'"
        ),
        draw={
            "size": {
                "kind": "one_of",
                "of": [
                    {"kind": "integer", "low": -50, "high": 5000},
                    {"kind": "choice", "values": [base * count for count in (1, 3, 7, 15, 500, -2, 2 * base + 1)]},
                    {
                        "kind": "choice",
                        "values": [base**2 * count for count in (1, 2, 9, 70, -4, 3 * base, 5 * base**2)],
                    },
                ],
            }
        },
        edges=[0, 1, *(base**power for power in (1, 2, 3, 4, 5)), -base, base + 1, base**3 + base, 7 * base**2],
    )


_FITS = [
    ("first_fit", "on the first disk that has enough room for it", "rooms[0]"),
    ("last_fit", "on the disk begun last among those with enough room for it", "rooms[-1]"),
    (
        "best_fit",
        "on the disk with the least room among those with enough for it",
        "min(rooms, key=free.__getitem__)",
    ),
    (
        "worst_fit",
        "on the disk with the most room, if that is enough for it",
        "max(rooms, key=free.__getitem__)",
    ),
]


def _disks(rng: random.Random) -> ToolVariant:
    capacity = rng.choice([64, 100, 250, 700])
    name, how, pick = rng.choice(_FITS)
    tie = " Of disks with equal room it is the one begun first." if "key" in pick else ""
    order_name, order, items = rng.choice(
        [
            ("in_order", "in the given order", "sizes"),
            ("largest_first", "the largest first", "sorted(sizes, reverse=True)"),
        ]
    )
    step = capacity // 10
    return ToolVariant(
        name=f"room_on_disks_of_{capacity}_{name}_{order_name}",
        args={"sizes": "list[int]"},
        returns="list[int]",
        does=(
            f"Put files on disks of `capacity` each, {order}: every file goes {how}, or on a new one if there is none. "
            "Return the room left on each disk.",
            f"Go through the files, {order}, and store each {how}; where none is found, begin a new disk of size "
            "`capacity`. Return what is free on the disks, in the order in which they were begun.",
            f"Return the list of the free space of all disks used, if files are stored {order}, each {how}, and a new "
            "disk (of size `capacity`) is begun only if it must be.",
        ),
        behaviour=[
            f"Disks are listed in the order in which they are begun.{tie}",
            "No files need no disks: the list is [].",
        ],
        body=(
            "if any(not 0 < size <= config.capacity for size in sizes):\n    raise ValueError('no such file')\n"
            "free = []\n"
            f"for size in {items}:\n"
            "    rooms = [disk for disk, room in enumerate(free) if room >= size]\n"
            "    if rooms:\n"
            f"        free[{pick}] -= size\n"
            "    else:\n"
            "        free.append(config.capacity - size)\n"
            "return free"
        ),
        draw={
            "sizes": {
                "kind": "list",
                "item": {"kind": "integer", "low": step, "high": 7 * step, "edges": [2 * step, 5 * step]},
                "min": 4,
                "max": 10,
            }
        },
        edges=[
            [],
            [1],
            [capacity, capacity],
            [6 * step, 7 * step, 2 * step, 3 * step, step],
            [5 * step, 8 * step, capacity - 5 * step, step],
            [4 * step, 7 * step, 4 * step, 7 * step, step, 2 * step],
        ],
        raises="a size is zero, negative or more than `capacity`",
        errors=[[0], [5, -1], [capacity + 1]],
        options={"capacity": Option(type="int", default=capacity * 2, set=capacity)},
    )


FAMILY = Family(
    name="data_sizes",
    subject="sizes of data",
    tools=(
        ToolTemplate(level=2, make=_human),
        ToolTemplate(level=2, make=_read),
        ToolTemplate(level=1, make=_transfer),
        ToolTemplate(level=1, make=_blocks),
        ToolTemplate(level=2, make=_whole_unit),
        ToolTemplate(level=3, make=_disks),
    ),
)
