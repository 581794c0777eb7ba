"""One table, a sentence for what is wrong, counts, and the same as JSON."""

import io
import json

from rich.console import Console

from skyrl_nat.doctor.check import Check, none_of, skipped
from skyrl_nat.doctor.examination import Examined, Section
from skyrl_nat.doctor.report import print_table, progress_line, write_json, wrong_names

PARTS = [
    Examined(section=Section.environment, checks=[none_of("", "conflicts", [])], seconds=0.5),
    Examined(
        section=Section.data,
        checks=[
            none_of("", "leaks", ["a", "b"], advice="Split again"),
            skipped("prompts", "no tokenizer"),
            Check(name="contents", expected="", found="[red]3", is_ok=None, rows="42"),
        ],
        seconds=1.25,
    ),
]


def test_the_table_has_every_row_by_section_and_the_counts_come_last() -> None:
    out = io.StringIO()
    print_table(PARTS, Console(file=out))
    lines = out.getvalue().splitlines()
    assert lines[-1] == "4 checks in 2 s: 1 ok, 1 WRONG, 1 note, 1 skipped"
    assert lines[-2] == "data set: leaks must be none, found a; b. Split again."
    table = "\n".join(lines[:-2])
    places = [table.index(word) for word in ("environment", "conflicts", "data set", "leaks", "prompts", "[red]3")]
    assert places == sorted(places)


def test_progress_says_what_is_wrong_at_once() -> None:
    assert progress_line(PARTS[0]) == "environment: 1 ok, 0 WRONG, 0 skipped (0.5 s)"
    assert progress_line(PARTS[1]).splitlines()[1] == "  WRONG: leaks: a; b"


def test_json_holds_rows_counts_and_seconds(tmp_path) -> None:
    path = tmp_path / "table.json"
    write_json(PARTS, path)
    data = json.loads(path.read_text())
    assert data["counts"] == {"ok": 1, "WRONG": 1, "note": 1, "skipped": 1}
    assert data["seconds"] == {"environment": 0.5, "data": 1.25}
    assert data["checks"][1] == {
        "section": "data",
        "name": "leaks",
        "rows": "",
        "expected": "none",
        "found": "a; b",
        "verdict": "WRONG",
        "advice": "Split again",
    }
    assert wrong_names(PARTS) == ["leaks"]
