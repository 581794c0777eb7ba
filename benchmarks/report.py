"""Render what was measured against the bars into benchmarks/README.md.

usage: python benchmarks/report.py [--check]

Every result is one file, `results/<bar>-<date>-<card>[-<variant>].json`. `--check` writes nothing and exits with 1
where the page is not what the results say.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"
COLUMNS = ("bar", "value", "target", "met", "unit", "card", "date", "file")


def read_results(folder: Path) -> list[dict[str, Any]]:
    """Return the results of all bars, newest first within a bar."""
    every = (json.loads(path.read_text(encoding="utf-8")) | {"file": path.name} for path in folder.glob("*.json"))
    found = [result for result in every if "bar" in result]
    return sorted(found, key=lambda result: (result["bar"], _newest_first(result["date"]), result["file"]))


def table(results: Iterable[dict[str, Any]]) -> str:
    """Return results as a Markdown table."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for result in results:
        value = "failed" if result["value"] is None else f"{result['value']:.3g}"
        shown = result | {"value": value, "met": "yes" if result["met"] else "no"}
        lines.append(f"| {' | '.join(str(shown[column]) for column in COLUMNS)} |")
    return "\n".join(lines)


def render(page: str, results: Iterable[dict[str, Any]]) -> str:
    """Return a page with a new table between its marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(results)}\n{END}{after}"


def _newest_first(date: str) -> list[int]:
    return [-int(part) for part in date.split("-")]


def main() -> int:
    """Write the page, or compare."""
    page = PAGE.read_text(encoding="utf-8")
    rendered = render(page, read_results(HERE / "results"))
    if "--check" in sys.argv[1:]:
        return int(page != rendered)
    PAGE.write_text(rendered, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
