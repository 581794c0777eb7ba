"""The files of a report."""

import csv
import json
from pathlib import Path

from evaluated import group

from skyrl_nat.evaluation.folder import GREEDY, SAMPLED, EvaluationFolder
from skyrl_nat.evaluation.model_report import write_report

HOSTILE = "</pre><script>alert(1)</script>"


def evaluated(folder: Path) -> Path:
    kept = EvaluationFolder(folder, {"model": "m<b>", "seed": 0})
    greedy = [group(0, [1.0]), group(1, [0.5], text=HOSTILE), group(2, [None]), group(3, [0.5], difficulty=2)]
    kept.finish(GREEDY, greedy)
    kept.finish(SAMPLED, [group(i, [1.0, 0.0]) for i in range(3)])
    return folder


def test_every_task_is_a_line_and_every_figure_is_json(tmp_path):
    write_report(evaluated(tmp_path / "e"))
    with (tmp_path / "e" / "tasks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["task_id"], row["label"], row["successes"], row["rollouts"]) for row in rows[:3]] == [
        ("t0", "greedy", "1", "1"),
        ("t1", "greedy", "0", "1"),
        ("t2", "greedy", "0", "1"),
    ]
    assert len(rows) == 7 and rows[2]["reward"] == "" and rows[2]["outcome"] == "infrastructure_failure"
    data = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    assert data["greedy"]["success"]["value"] == 1 / 3
    assert data["sampled"]["pass_at_k"]["2"]["value"] == 1.0


def test_the_page_says_first_how_many_succeed_and_what_is_missing(tmp_path):
    markdown, html = (path.read_text() for path in write_report(evaluated(tmp_path / "e")))
    assert "33.3% of 3 tasks succeed (greedy; 95 % interval 6.1% to 79.2%). 1 tasks have no verdict" in markdown
    assert "| must be 1, found 0.5 | 2 |" in markdown
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert html.count("<svg") == 5


def test_twice_is_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_report(evaluated(tmp_path / name))
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) > 8
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_nothing_but_lost_tasks_is_said_to_be_nothing(tmp_path):
    EvaluationFolder(tmp_path / "e", {"model": "m"}).finish(GREEDY, [group(0, [None])])
    markdown, _ = write_report(tmp_path / "e")
    assert "No task has a verdict: evaluate again." in markdown.read_text()
