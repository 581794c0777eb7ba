"""A run folder becomes a page, the same each time, whatever a model wrote."""

import json
from html.parser import HTMLParser

import numpy as np
import pytest
from recorded_run import RecordedRun, group_of, judged, stages, train_run

from skyrl_nat import cli
from skyrl_nat.evaluation.analysis.analyze import analyze, write_analysis
from skyrl_nat.evaluation.analysis.page import DRAWN, HEALTH, page_of
from skyrl_nat.evaluation.pages import Figure

HOSTILE = "<script>alert(1)</script> </pre> ``` | \ud800 \x1b[2J \u202e 🙂 東京"


def play(step, rng):
    parts = {"oracle": float(rng.random() < step / 40), "form": float(rng.random())}
    total = 0.8 * parts["oracle"] + 0.2 * parts["form"]
    findings = [] if parts["oracle"] else [f"tool word_{step}: {step} of 40 right", f"{HOSTILE} '{step}'"]
    return judged(
        f"r/{step}",
        total,
        text=HOSTILE * (20_000 if step == 10 else 1),
        parts=parts,
        is_success=parts["oracle"] == 1.0,
        findings=findings,
        suspicions=[HOSTILE] if rng.random() < 0.1 else [],
        stages=stages(static=True, oracle=bool(parts["oracle"])),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    run = train_run(tmp_path_factory.mktemp("runs") / "run", play, num_steps=10, time__rollout_s=1.0, time__step_s=2.0)
    rng = np.random.default_rng(1)
    for step in (0, 5, 10):
        run.evaluate(step, [group_of(i, [play(step, rng)], f"{HOSTILE} {i}") for i in range(10)])
    return run.folder


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    return write_analysis(analyze(folder), tmp_path_factory.mktemp("page"))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)


def files_of(folder) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_run_gives_the_same_bytes(folder, written, tmp_path):
    write_analysis(analyze(folder), tmp_path)
    assert files_of(tmp_path) == files_of(written[0].parent)
    assert {"analysis.json", "analysis.md", "analysis.html"} <= files_of(tmp_path).keys()


def test_nothing_that_a_model_wrote_is_markup_or_a_command_to_a_terminal(written):
    _, markdown, page = written
    tags = Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert "script" not in tags.seen
    assert {"details", "table", "svg"} <= tags.seen
    for path in (markdown, page):
        text = path.read_text(encoding="utf-8")
        assert not {"\x1b", "\u202e"} & set(text)
        assert "東京" in text
        assert len(text) < 1_000_000


def test_data_is_standard_json(written):
    def refuse(name):
        raise AssertionError(name)

    data = json.loads(written[0].read_text(), parse_constant=refuse)
    assert data["run"] == "run"
    assert data["num_steps"] == 10
    assert [each["step"] for each in data["held_out"]] == [0, 5, 10]
    assert data["clusters"][0]["example"]["step"] == 10
    assert data["stages"]["static"] == {"wanted": 160, "reached": 160, "passed": 160}
    assert all(finding["sentence"] for finding in data["findings"])
    assert data["training"]["rollout/staleness/mean"]["early"] is None


def test_a_run_of_noise_has_no_claim_of_a_change(tmp_path):
    def noise(step, rng):
        parts = {"a": float(rng.random()), "b": float(rng.random())}
        findings = [f"kind {letter}" for letter in "abc" if rng.random() < 0.3]
        total = (parts["a"] + parts["b"]) / 2
        return judged(
            "r", total, parts=parts, is_success=total > 0.7, findings=findings, num_tokens=int(rng.integers(5, 50))
        )

    train_run(tmp_path, noise)
    found = analyze(tmp_path).findings
    assert {finding.evidence.get("direction", "cannot tell") for finding in found} == {"cannot tell"}
    assert {str(finding.severity) for finding in found} == {"note"}


def test_distance_and_staleness_are_drawn_where_there_are_any(folder, tmp_path):
    metric = "rollout/staleness/mean"
    run = train_run(tmp_path / "stale", play, num_steps=10, **{metric.replace("/", "__"): lambda step: float(step % 2)})
    stale, fresh = (page_of(found.material, found.findings) for found in map(analyze, (run.folder, folder)))
    drawn, others = (
        {block.caption for block in page.blocks if isinstance(block, Figure)}
        & {HEALTH[name].capitalize() for name in DRAWN}
        for page in (stale, fresh)
    )
    assert drawn == {HEALTH[name].capitalize() for name in DRAWN}
    assert drawn - others == {HEALTH[metric].capitalize()}


def test_a_run_of_one_step_has_a_page_where_it_is_told_to_be(tmp_path, capsys):
    RecordedRun(tmp_path / "run").train(1, [group_of(0, [judged("a", 0.5)])])
    assert cli.main(["analyze", str(tmp_path / "run"), "--out", str(tmp_path / "a" / "b")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(tmp_path / "a" / "b" / "analysis.html")
    assert not (tmp_path / "run" / "analysis").exists()


def test_the_command_prints_its_findings_and_where_the_page_is(folder, capsys):
    assert cli.main(["analyze", str(folder)]) == 0
    *said, path = capsys.readouterr().out.splitlines()
    assert path == str(folder / "analysis" / "analysis.html")
    assert any(line.startswith("note: The training reward") or "Cannot tell" in line for line in said)


def test_a_folder_without_a_run_is_a_sentence_and_a_code(tmp_path, capsys):
    assert cli.main(["analyze", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"skyrl-nat: {tmp_path} must be a run folder with metrics.jsonl, found none")
    assert len(said.splitlines()) == 1


def test_a_file_in_the_place_of_the_page_is_a_sentence_and_a_code(folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    assert cli.main(["analyze", str(folder), "--out", str(tmp_path / "file")]) == 2
    assert "must be a folder" in capsys.readouterr().err
