"""Compare the correctness contract with the tests that name its rows and cases.

usage: correctness_coverage.py [--list] [--tests FOLDER] [--contract FILE]

A test names what it covers in its name (`..._gm_05`) or docstring: "Row 29", "Rows 1, 2 and 5", "Rows 42 to 44",
"GM-05"; a file's docstring speaks for all its tests. Prints JSON and exits 1 if a row or case is covered by nothing,
is named by a test and said to need none, or does not exist.
"""

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("test", "doctor", "not applicable")
NUMBERS = r"\d+(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+|\s+to\s+)\d+)*"
ROWS = re.compile(rf"\brows?\s+({NUMBERS})\b", re.IGNORECASE)
CASES = re.compile(r"\b(GM|MT|WS|EN)-(\d\d)")
CASES_IN_NAMES = re.compile(r"_(gm|mt|ws|en)_(\d\d)(?=_|$)")
TABLE_LINE = re.compile(r"^\| *(\d+|[A-Z]{2}-\d\d) *\| *([^|]+?) *\| *([^|]+?) *\| *([^|]*?) *\|$")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the contract."""

    key: str
    """Row number or case id."""
    title: str
    kind: str
    """One of `KINDS`."""
    reason: str


def read_contract(path: Path) -> tuple[list[Entry], list[str]]:
    """Return the entries of a contract and what is wrong with its lines."""
    matches = [match for line in path.read_text(encoding="utf-8").splitlines() if (match := TABLE_LINE.match(line))]
    entries = [Entry(*match.groups()) for match in matches]
    faults = [f"{entry.key}: unknown kind {entry.kind!r}" for entry in entries if entry.kind not in KINDS]
    faults += [f"{entry.key}: needs a reason" for entry in entries if entry.kind != "test" and not entry.reason]
    keys = [entry.key for entry in entries]
    faults += [f"{key}: listed twice" for key in sorted({key for key in keys if keys.count(key) > 1})]
    return entries, faults


def keys_in(text: str) -> set[str]:
    """Return the rows and cases that a docstring or a test's name speaks of."""
    keys = {f"{group}-{number}" for group, number in CASES.findall(text)}
    keys |= {f"{group.upper()}-{number}" for group, number in CASES_IN_NAMES.findall(text)}
    for numbers in ROWS.findall(text):
        for part in re.split(r"\s*,\s*(?:and\s+)?|\s+and\s+", numbers):
            first, *last = (int(number) for number in re.split(r"\s+to\s+", part))
            keys |= {str(number) for number in range(first, (last or [first])[0] + 1)}
    return keys


def tests_in(path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield every test of a file and what it covers."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    of_file = keys_in(ast.get_docstring(tree) or "")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name, of_file | keys_in(node.name) | keys_in(ast.get_docstring(node) or "")


def places_by_key(folder: Path) -> dict[str, list[str]]:
    """Return where each row and case is tested."""
    places: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for name, keys in tests_in(path):
            for key in keys:
                places.setdefault(key, []).append(f"{path.relative_to(folder)}::{name}")
    return places


def find_faults(entries: list[Entry], places: dict[str, list[str]]) -> list[str]:
    """Return where contract and tests contradict each other."""
    kinds = {entry.key: entry.kind for entry in entries}
    faults = [f"{key}: named by {where[0]}, not in the contract" for key, where in places.items() if key not in kinds]
    faults += [
        f"{key}: {kind} in the contract, named by {places[key][0]}"
        for key, kind in kinds.items()
        if kind != "test" and key in places
    ]
    return sorted(faults)


def summarise(entries: list[Entry], places: dict[str, list[str]]) -> dict[str, object]:
    """Return how many entries are covered by what, and which by nothing."""
    return {
        "tested": sum(entry.kind == "test" and entry.key in places for entry in entries),
        "doctor": sum(entry.kind == "doctor" for entry in entries),
        "not_applicable": sum(entry.kind == "not applicable" for entry in entries),
        "missing": [entry.key for entry in entries if entry.kind == "test" and entry.key not in places],
    }


def show(entries: list[Entry], places: dict[str, list[str]]) -> None:
    """Print every entry with where it is covered."""
    for entry in entries:
        print(f"{entry.key:>5}  {entry.kind:<14}  {entry.title}")
        for place in places.get(entry.key, [entry.reason or "NOWHERE"]):
            print(f"{'':23}{place}")


def main() -> int:
    """Print the summary; 0 if every row and case is covered and nothing contradicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every row with where it is covered")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    parser.add_argument("--contract", type=Path, default=ROOT / "tests/unit/correctness_contract.md")
    arguments = parser.parse_args()
    entries, faults = read_contract(arguments.contract)
    places = places_by_key(arguments.tests)
    faults += find_faults(entries, places)
    if arguments.list:
        show(entries, places)
    rows = [entry for entry in entries if entry.key.isdigit()]
    cases = [entry for entry in entries if not entry.key.isdigit()]
    summary = summarise(rows, places) | {"cases": summarise(cases, places)}
    print(json.dumps(summary))
    for fault in faults:
        print(fault, file=sys.stderr)
    is_whole = sorted(int(entry.key) for entry in rows) == list(range(1, 74))
    if not is_whole:
        print("The contract must list rows 1 to 73 once each", file=sys.stderr)
    has_missing = any(entry.kind == "test" and entry.key not in places for entry in entries)
    return 1 if faults or has_missing or not is_whole else 0


if __name__ == "__main__":
    sys.exit(main())
