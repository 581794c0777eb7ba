"""The page of results says what the results say."""

import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "benchmarks" / "report.py"
spec = importlib.util.spec_from_file_location("benchmarks_report", SCRIPT)
assert spec is not None
assert spec.loader is not None
report = importlib.util.module_from_spec(spec)
spec.loader.exec_module(report)
RESULT = {"bar": "P3", "value": 0.43878, "target": 0.45, "met": False, "unit": "MFU", "card": "X", "file": "f.json"}


def test_page_in_the_repository_is_the_rendered_one() -> None:
    assert subprocess.run([sys.executable, SCRIPT, "--check"], check=False).returncode == 0


def test_table_stands_between_its_marks_and_all_else_stays() -> None:
    page = f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n"
    rendered = report.render(page, [{**RESULT, "date": "2026-11-28"}])
    assert rendered.startswith(f"before\n{report.BEGIN}\n| bar |")
    assert "| P3 | 0.439 | 0.45 | no | MFU | X | 2026-11-28 | f.json |" in rendered
    assert rendered.endswith(f"{report.END}\nafter\n")
    assert "old" not in rendered


def test_newest_result_of_a_bar_comes_first(tmp_path: Path) -> None:
    for date in ("2026-11-28", "2026-12-02"):
        (tmp_path / f"P3-{date}-x.json").write_text(f'{{"bar": "P3", "date": "{date}"}}')
    (tmp_path / "P2-2026-01-01-x.json").write_text('{"bar": "P2", "date": "2026-01-01"}')
    (tmp_path / "other.json").write_text("{}")
    found = [(result["bar"], result["date"]) for result in report.read_results(tmp_path)]
    assert found == [("P2", "2026-01-01"), ("P3", "2026-12-02"), ("P3", "2026-11-28")]


def test_bar_that_could_not_be_measured_is_shown_as_failed() -> None:
    shown = report.table([{**RESULT, "value": None, "date": "2026-11-28"}])
    assert "| P3 | failed | 0.45 | no |" in shown
