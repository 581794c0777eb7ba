"""`skyrl-nat compare` from the command line to its page."""

import json
from pathlib import Path

import pytest
from evaluated import group

from skyrl_nat.cli import main
from skyrl_nat.evaluation.folder import GREEDY, EvaluationFolder


def evaluation(folder: Path, rewards: list, **about) -> str:
    groups = [group(i, [reward], difficulty=1 + i % 2, family="fg"[i % 2]) for i, reward in enumerate(rewards)]
    EvaluationFolder(folder, {"model": folder.name, "seed": 0, **about}).finish(GREEDY, groups)
    return str(folder)


def test_a_gain_is_named_with_its_tasks_and_shown(tmp_path, capsys):
    before = evaluation(tmp_path / "before", [0.0] * 12 + [1.0, 0.5])
    after = evaluation(tmp_path / "after", [1.0] * 10 + [0.0, 0.25, 1.0, 0.5])
    assert main(["compare", before, after]) == 0
    output = capsys.readouterr().out.splitlines()
    assert output[0].startswith("better: ")
    page = Path(output[-1])
    assert page == tmp_path / "comparison-before-after" / "comparison.html"
    data = json.loads((page.parent / "comparison.json").read_text())
    assert data["verdict"]["decision"] == "better"
    assert (len(data["gained"]), data["lost"], data["success"]["test"]["p"]) == (10, [], 2 / 2**10)
    markdown = (page.parent / "comparison.md").read_text()
    assert "| succeeds more often | 10 | t0, t1, t2, t3" in markdown
    header, _, success = [line for line in markdown.splitlines() if line.startswith("|")][:3]
    told = dict(zip(header.replace("\\", "").split(" | "), success.split(" | "), strict=True))
    assert (told["rose"], told["fell"]) == ("10", "0")
    assert float(told["d_z"]) == pytest.approx(data["success"]["effect_size"], rel=0.01)
    lines = markdown.splitlines()
    sides = lines[lines.index("|  | before | from | to | after | from | to |") + 2 :][:2]
    for line, name in zip(sides, ("success", "reward"), strict=True):
        ends = [data[name][f"{side}_interval"][end] for side in ("before", "after") for end in ("low", "high")]
        cells = [float(cell) for cell in line.strip("| ").split(" | ")[1:]]
        assert [cells[place] for place in (1, 2, 4, 5)] == pytest.approx(ends, rel=1e-3)
    html = page.read_text()
    assert all(f">{name}</th>" in html for name in ("rose", "fell", "d_z"))
    assert "Each side by itself" in html
    assert html.count("<svg") == 4


def test_the_same_pages_in_any_order_and_twice(tmp_path):
    """EV-11."""
    for name, order in (("a", 1), ("b", -1)):
        folder = tmp_path / name
        for side, worth in (("before", 0.0), ("after", 1.0)):
            groups = [group(i, [worth if i % 3 else 0.5]) for i in range(9)][::order]
            EvaluationFolder(folder / side, {"model": "m"}).finish(GREEDY, groups)
        assert main(["compare", str(folder / "before"), str(folder / "after"), "--out", str(folder / "page")]) == 0
    first, second = ((tmp_path / name / "page" / "comparison.json").read_text() for name in "ab")
    assert first.replace("/a/", "/b/") == second


def test_other_settings_are_a_warning_at_the_top(tmp_path, capsys):
    before = evaluation(tmp_path / "before", [0.0] * 6)
    after = evaluation(tmp_path / "after", [0.0] * 6, seed=1)
    assert main(["compare", before, after]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "the evaluations differ in seed: 0 and 1"
    assert "Beware: the evaluations differ in seed" in (tmp_path / "comparison-before-after/comparison.md").read_text()


@pytest.mark.parametrize(
    ("after", "options", "code", "sentence"),
    [
        ([1.0] * 3, [], 2, "may be on one side only"),
        ([None] * 5 + [1.0] * 5, [], 2, "valuate"),
        ([1.0] * 10, ["--alpha", "0"], 2, "alpha of a comparison must be in (0, 1), got 0.0"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_sentence(tmp_path, capsys, after, options, code, sentence):
    """EV-07, EV-08."""
    before = evaluation(tmp_path / "before", [0.0] * 10)
    assert main(["compare", before, evaluation(tmp_path / "after", after), *options]) == code
    error = capsys.readouterr().err
    assert sentence in error and len(error.strip().splitlines()) == 1
    assert not (tmp_path / "comparison-before-after").exists()
