"""The doctor's table, its counts, and both as JSON."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from skyrl_nat.doctor.examination import Examined

VERDICTS = ("ok", "WRONG", "note", "skipped")
WIDTH = 160
"""Of the table where nobody says how wide the terminal is."""
_STYLES = {"ok": "green", "WRONG": "bold red", "skipped": "dim", "note": ""}


def progress_line(part: Examined) -> str:
    """Return what a section came to, and what is wrong in it."""
    wrong = [f"\n  WRONG: {check.name}: {check.found}" for check in part.checks if check.verdict == "WRONG"]
    return f"{part.section.title}: {_counts([part])} ({part.seconds:.1f} s){''.join(wrong)}"


def print_table(parts: Sequence[Examined], console: Console | None = None) -> None:
    """Print one table by section, then a sentence for each row that is wrong, then the counts.

    Args:
        parts: In order.
        console: Where to; default: standard output.
    """
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, highlight=False, width=WIDTH)
    table = Table(title="What the doctor found", title_justify="left", show_lines=False)
    table.add_column("what", ratio=4)
    table.add_column("row")
    table.add_column("must be", ratio=3)
    table.add_column("found", ratio=5)
    table.add_column("verdict")
    for part in parts:
        table.add_row(Text(part.section.title, style="bold"), end_section=False)
        for check in part.checks:
            cells = (f"  {check.name}", check.rows, check.expected, check.found)
            table.add_row(*map(Text, cells), Text(check.verdict, style=_STYLES[check.verdict]))
        table.add_section()
    console.print(table)
    for sentence in sentences(parts):
        console.print(Text(sentence), soft_wrap=True)
    seconds = sum(part.seconds for part in parts)
    number = sum(len(part.checks) for part in parts)
    console.print(f"{number} checks in {seconds:.0f} s: {_counts(parts)}", soft_wrap=True)


def sentences(parts: Iterable[Examined]) -> list[str]:
    """Return for each row that is wrong what must hold, what was found and what to do."""
    return [
        f"{part.section.title}: {check.name} must be {check.expected}, found {check.found.rstrip('.')}."
        + (f" {check.advice}." if check.advice else " See docs/doctor.md.")
        for part in parts
        for check in part.checks
        if check.verdict == "WRONG"
    ]


def wrong_names(parts: Iterable[Examined]) -> list[str]:
    """Return the names of what is wrong."""
    return [check.name for part in parts for check in part.checks if check.verdict == "WRONG"]


def write_json(parts: Sequence[Examined], path: Path) -> None:
    """Write the table as JSON: `checks` (a list of rows), `counts` by verdict, `seconds` by section.

    Raises:
        OSError: The file cannot be written.
    """
    rows: list[dict[str, Any]] = [
        {
            "section": str(part.section),
            "name": check.name,
            "rows": check.rows,
            "expected": check.expected,
            "found": check.found,
            "verdict": check.verdict,
            "advice": check.advice if check.verdict == "WRONG" else "",
        }
        for part in parts
        for check in part.checks
    ]
    counts = {verdict: sum(part.number(verdict) for part in parts) for verdict in VERDICTS}
    seconds = {str(part.section): round(part.seconds, 3) for part in parts}
    data = {"checks": rows, "counts": counts, "seconds": seconds}
    path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def _counts(parts: Sequence[Examined]) -> str:
    numbers = {verdict: sum(part.number(verdict) for part in parts) for verdict in VERDICTS}
    return ", ".join(f"{number} {verdict}" for verdict, number in numbers.items() if number or verdict != "note")
