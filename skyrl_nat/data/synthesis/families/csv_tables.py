"""Tables as text: a line per row, a separator between cells."""

import random

from skyrl_nat.data.synthesis.family import Family, Option, ToolTemplate, ToolVariant

_MARKS = [("comma", ","), ("semicolon", ";"), ("bar", "|")]
_CITIES = ["Rome", "Oslo", "Bern", "Lima"]
_SALES = [("a", 3, 12), ("b", 7, -4), ("c", 10, 40), ("d", 12, 8), ("e", -5, 6), ("f", 31, 9), ("g", 18, 25)]
_NUMBERS = [3, 7, 10, 12, 40, -5, 9]


def _total(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_MARKS)
    column = rng.choice(["qty", "price"])
    name, what, how, code = rng.choice(
        [
            ("sum", "sum of the numbers", "Add up the numbers", "sum(numbers)"),
            ("largest", "largest number", "Find the largest number", "max(numbers, default=0)"),
            ("smallest", "smallest number", "Find the smallest number", "min(numbers, default=0)"),
        ]
    )
    orders = ((0, 1, 2), (2, 0, 1), (1, 0, 2))
    rows = {order: [cut.join(str(cells[i]) for i in order) for cells in _SALES] for order in orders}
    return ToolVariant(
        name=f"{name}_of_column_{column}_with_{mark}",
        args={"table": "str"},
        returns="int",
        does=(
            f"Return the {what} in the column '{column}' of a table whose cells are separated by '{cut}' and whose "
            "first line has the column names.",
            f"{how} below the heading '{column}'. The table's first line has the headings; '{cut}' stands between "
            "cells.",
            f"The lines of the table are rows, with '{cut}' between cells; the first row names the columns. Give the "
            f"{what} of all other rows in that named '{column}'.",
        ),
        behaviour=[
            "The numbers are whole; white space around a cell or a heading does not count.",
            "A table without further rows gives 0.",
        ],
        body=(
            f"rows = [[cell.strip() for cell in line.split({cut!r})] for line in table.splitlines()]\n"
            f"if not rows or {column!r} not in rows[0]:\n"
            f"    raise ValueError('no column {column}')\n"
            f"numbers = [int(row[rows[0].index({column!r})]) for row in rows[1:]]\n"
            f"return {code}"
        ),
        draw={
            "table": {
                "kind": "one_of",
                "of": [
                    {
                        "kind": "template",
                        "pattern": cut.join(["name", "qty", "price"][i] for i in order) + "\n{rows}",
                        "parts": {"rows": {"kind": "words", "values": lines, "min": 1, "max": 4, "separator": "\n"}},
                    }
                    for order, lines in rows.items()
                ],
            }
        },
        edges=[
            cut.join(["price", "qty"]),
            f"qty{cut}price\n4{cut}6\n8{cut}-1",
            f" price {cut} qty \n -2 {cut} -3 ",
        ],
        raises=f"no column is named '{column}', also because the table is empty",
        errors=["", f"name{cut}Qty{cut}Price\na{cut}1{cut}2"],
    )


def _column(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_MARKS)
    place, ordinal = rng.choice([(0, "first"), (1, "second"), (2, "third")])
    glue_name, glue = rng.choice([("plus", "+"), ("slash", "/"), ("blank", " ")])
    return ToolVariant(
        name=f"{ordinal}_column_at_{mark}_joined_by_{glue_name}",
        args={"table": "str"},
        returns="str",
        does=(
            f"Return the {ordinal} cell of every line, joined by '{glue}'; '{cut}' separates the cells of a line.",
            f"Take the {ordinal} column of a table with '{cut}' between cells and write its cells in one line, with "
            f"'{glue}' between them.",
            f"Cut each line of the text at every '{cut}', keep only piece number {place + 1} of each, and join these "
            f"with '{glue}'.",
        ),
        behaviour=[
            "White space around a cell is removed, and an empty cell stays as an empty piece.",
            f"Lines with fewer than {place + 1} cells are left out; the first line is a row like any other.",
        ],
        body=(
            f"rows = [line.split({cut!r}) for line in table.splitlines()]\n"
            f"return {glue!r}.join(row[{place}].strip() for row in rows if len(row) > {place})"
        ),
        draw={
            "table": {
                "kind": "words",
                "values": [
                    f"ann{cut}7{cut}Rome",
                    f"bob{cut} 12 {cut}Oslo",
                    f"cy{cut}3{cut}x y{cut}z",
                    f"dee{cut}{cut} Bern",
                    f" eve{cut}40",
                    "fay",
                    f"{cut}5{cut}Lima",
                    f"gus {cut}8{cut}Kiel{cut}",
                ],
                "min": 2,
                "max": 5,
                "separator": "\n",
            }
        },
        edges=["", f"a{cut}b{cut}c", f"p{cut}q\n\nr{cut}s{cut}t\nu"],
    )


def _filter(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_MARKS)
    default, value = rng.choice([(0, 10), (5, 9), (8, 5)])
    name, what, other, sign = rng.choice(
        [("at_least", "at least `limit`", "below `limit`", ">="), ("below", "below `limit`", "at least `limit`", "<")]
    )
    return ToolVariant(
        name=f"rows_{name}_{value}_with_{mark}",
        args={"table": "str"},
        returns="str",
        does=(
            f"Return the table with its first line and those rows whose last cell is {what}; '{cut}' separates cells.",
            f"Remove from the table every row that ends with a number {other}, but never the first line. Cells are "
            f"separated by '{cut}'.",
            f"Filter a table with '{cut}' between cells: the heading line stays, and a further line stays only if the "
            f"number in its last cell is {what}.",
        ),
        behaviour=[
            "The last cells of all rows but the first are whole numbers, maybe negative; lines stay as they are.",
            "The lines of the result are joined by a line break, with none at the end; an empty table stays empty.",
        ],
        body=(
            "lines = table.splitlines()\n"
            f"kept = [line for line in lines[1:] if int(line.split({cut!r})[-1]) {sign} config.limit]\n"
            "return '\\n'.join(lines[:1] + kept)"
        ),
        draw={
            "table": {
                "kind": "template",
                "pattern": "{head}\n{rows}",
                "parts": {
                    "head": {"kind": "choice", "values": [f"name{cut}score", f"day{cut}place{cut}sold"]},
                    "rows": {
                        "kind": "words",
                        "values": [f"{a}{cut}{n}" for n in [*_NUMBERS, 5, 8] for a in (f"x{cut}2", "y")],
                        "min": 1,
                        "max": 6,
                        "separator": "\n",
                    },
                },
            }
        },
        edges=["", "only head", f"h\n{value}\n{value - 1}\na{cut}{value + 1}"],
        options={"limit": Option(type="int", default=default, set=value)},
        laws=[{"kind": "idempotent"}],
    )


def _sort(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_MARKS)
    name, first, last, sign = rng.choice([("rising", "lowest", "highest", ""), ("falling", "highest", "lowest", "-")])
    ties, rule, code = rng.choice(
        [
            ("by_name", "Rows that tie are sorted by their first cell, alphabetically.", ", row[0]"),
            ("in_order", "Rows that tie keep their order.", ","),
        ]
    )
    return ToolVariant(
        name=f"sort_{mark}_table_{name}_ties_{ties}",
        args={"table": "str"},
        returns="str",
        does=(
            f"Sort the lines of a table, with '{cut}' between cells, by the number in the second cell, the {first} "
            "first; the first line stays where it is.",
            f"Keep the heading line and put the rows below it in order: from the {first} to the {last} number in the "
            f"second column. '{cut}' separates columns.",
            f"Return the table with its rows ordered by column 2 (numbers), such that the {last} comes last. The first "
            f"line has column names and is not moved; cells have '{cut}' between them.",
        ),
        behaviour=[
            rule,
            "The numbers are whole and compared as numbers; lines are not changed.",
            "The lines of the result are joined by a line break, with none at the end; an empty table stays empty.",
        ],
        body=(
            f"rows = [line.split({cut!r}) for line in table.splitlines()]\n"
            f"rows[1:] = sorted(rows[1:], key=lambda row: ({sign}int(row[1]){code}))\n"
            f"return '\\n'.join({cut!r}.join(row) for row in rows)"
        ),
        draw={
            "table": {
                "kind": "template",
                "pattern": f"name{cut}qty{cut}note\n{{rows}}",
                "parts": {
                    "rows": {
                        "kind": "words",
                        "values": [
                            f"{a}{cut}{n}{cut}{a}{n}" for a in ("kim", "ada", "Bo") for n in (7, 10, 9, -1, 100)
                        ],
                        "min": 2,
                        "max": 6,
                        "separator": "\n",
                    }
                },
            }
        },
        edges=["", f"head{cut}er", f"n{cut}q\nz{cut}5\ny{cut}5\nx{cut}20\nw{cut}5"],
        laws=[{"kind": "idempotent"}],
    )


def _group(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice(_MARKS)
    name, what, code = rng.choice(
        [
            ("sum", "sum of its numbers", "sum(numbers)"),
            ("count", "number of its lines", "len(numbers)"),
            ("span", "largest minus the smallest of its numbers", "max(numbers) - min(numbers)"),
        ]
    )
    order, rule, source = rng.choice(
        [
            ("sorted", "in alphabetical order", "sorted(groups.items())"),
            ("as_seen", "in the order in which they first occur", "groups.items()"),
        ]
    )
    return ToolVariant(
        name=f"{name}_per_name_with_{mark}_{order}",
        args={"table": "str"},
        returns="str",
        does=(
            f"Each line is a name, '{cut}', and a whole number. For each different name give 'name=x', where x is the "
            f"{what}; the names come {rule}.",
            f"Group the lines (name{cut}number) by name and give one entry 'name=x' per name {rule}; x is the {what}.",
            f"Make a summary of lines like 'Rome{cut}4': every name once, {rule}, followed by '=' and the {what}.",
        ),
        behaviour=[
            "Entries are joined by one blank; case counts.",
            f"White space around names and numbers is removed; lines without '{cut}' are left out.",
        ],
        body=(
            "groups = {}\n"
            "for line in table.splitlines():\n"
            f"    name, mark, number = line.partition({cut!r})\n"
            "    if mark:\n"
            "        groups.setdefault(name.strip(), []).append(int(number))\n"
            f"return ' '.join(f'{{name}}={{{code}}}' for name, numbers in {source})"
        ),
        draw={
            "table": {
                "kind": "words",
                "values": [f"{city}{cut}{n}" for city in _CITIES for n in (4, 7, -2, 15)]
                + [" Oslo " + cut + " 3 ", "end"],
                "min": 2,
                "max": 7,
                "separator": "\n",
            }
        },
        edges=["", f"b{cut}1\na{cut}2\nb{cut}-5\n\nA{cut}0", f"z{cut}3\nz{cut}3\ny{cut}30"],
    )


def _cells(rng: random.Random) -> ToolVariant:
    mark, cut = rng.choice([*_MARKS, ("slash", "/")])
    quote_name, quote = rng.choice([("double", '"'), ("single", "'")])
    return ToolVariant(
        name=f"cells_at_{mark}_outside_{quote_name}_quotes",
        args={"line": "str"},
        returns="list[str]",
        does=(
            f"Split the line at every {cut} that is not inside {quote_name} quotes ({quote}), and drop the quotes.",
            f"Return the cells of a row: {cut} separates them, except between {quote_name} quotes ({quote}), which are "
            "left out of the cells.",
            f"Read a line character by character. {quote} turns quoting on or off and is not kept; {cut} ends a cell "
            "unless quoting is on; whatever else belongs to the present cell.",
        ),
        behaviour=[
            "Quotes may be anywhere in a cell; one that is never closed reaches to the end of the line.",
            "White space stays, cells may be empty, and an empty line gives one empty cell.",
        ],
        body=(
            "cells, is_quoted = [''], False\n"
            "for c in line:\n"
            f"    if c == {quote!r}:\n"
            "        is_quoted = not is_quoted\n"
            f"    elif c == {cut!r} and not is_quoted:\n"
            "        cells.append('')\n"
            "    else:\n"
            "        cells[-1] += c\n"
            "return cells"
        ),
        draw={
            "line": {
                "kind": "words",
                "values": [
                    f"a{cut}b",
                    f"{quote}c{cut} d{quote}",
                    f"{quote}e{quote}f",
                    cut,
                    "g h",
                    quote,
                    "7",
                    f" i{cut}",
                ],
                "min": 1,
                "max": 6,
                "separator": cut,
            }
        },
        edges=["", f"{quote}{quote}", f"x{quote}y{cut}z", f"{cut}{cut}"],
    )


FAMILY = Family(
    name="csv_tables",
    subject="tables as lines of cells",
    tools=(
        ToolTemplate(level=2, make=_total),
        ToolTemplate(level=1, make=_column),
        ToolTemplate(level=2, make=_filter),
        ToolTemplate(level=3, make=_sort),
        ToolTemplate(level=3, make=_group),
        ToolTemplate(level=3, make=_cells),
    ),
)
