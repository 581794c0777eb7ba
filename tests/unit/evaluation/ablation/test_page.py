"""`skyrl-nat ablate` from the command line to its page; a small program that copies runs stands for the training."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from recorded_run import evaluated_run

from skyrl_nat.cli import main
from skyrl_nat.evaluation.ablation import running
from skyrl_nat.evaluation.ablation.page import write_ablation
from skyrl_nat.evaluation.ablation.results import read_results
from skyrl_nat.evaluation.ablation.sweep import make_sweep

TRAIN = """
import shutil, sys
words = dict(word.split("=", 1) for word in sys.argv[2:])
root, name = (words[key].strip('"') for key in ("root_dir", "name"))
try:
    shutil.copytree(f"{sys.argv[1]}/{name}", f"{root}/{name}")
except FileNotFoundError:
    sys.exit(f"skyrl-nat: there is no <b>{name}</b>")
"""
VARY = ["--vary", "algorithm=grpo,dapo"]
GRPO, DAPO = "algorithm-grpo", "algorithm-dapo"
BAD, GOOD = ([0] * 8, [0] * 8, [1, *[0] * 7]), ([0] * 8, [1, *[0] * 7], [1] * 8)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of what the program trains."""
    monkeypatch.setattr(running, "PROGRAM", (sys.executable, "-c", TRAIN, str(tmp_path / "runs")))
    return tmp_path / "runs"


def test_variants_are_trained_compared_and_shown(tmp_path, runs, capsys):
    for seed in (0, 1):
        evaluated_run(runs / f"{GRPO}-seed{seed}", *BAD)
        evaluated_run(runs / f"{DAPO}-seed{seed}", *GOOD)
    out = tmp_path / "out"
    asked = ["ablate", str(out), *VARY, "--seeds", "0,1", "--threshold", "1", "trainer.steps=2"]
    assert main(asked) == 0
    output = capsys.readouterr()
    assert output.err.splitlines()[0].startswith("ablate: 1 of 4: algorithm-grpo-seed0 is training, see ")
    *_, sentence, page = output.out.splitlines()
    assert sentence.startswith("algorithm=dapo: better: success went from 12.5 to 100.0, by +87.5 percentage points")
    data = json.loads((out / "results.json").read_text(), parse_constant=pytest.fail)
    assert (data["baseline"], data["threshold"], data["failed"]) == ("algorithm=grpo", 1.0, {})
    assert json.loads((out / "ablation.json").read_text()) == {
        "overrides": ["trainer.steps=2"],
        "seeds": [0, 1],
        "variants": [{"name": f"algorithm={name}", "overrides": [f"algorithm={name}"]} for name in ("grpo", "dapo")],
    }
    assert (Path(page), Path(page).read_text().count("<svg")) == (out / "ablation.html", 2)
    markdown = (out / "ablation.md").read_text()
    assert "| algorithm=grpo | 2/2 | 8 | 0.125 |" in markdown
    assert "| algorithm=grpo | not reached | 16 | 20 | 40 |\n| algorithm=dapo | 16 | 16 | 20 | 40 |" in markdown
    pages = {path.name: path.read_bytes() for path in out.glob("*.*") if path.suffix in (".html", ".md", ".json")}
    assert main(asked) == 0
    assert "ablate: 4 of 4: algorithm-dapo-seed1 was trained before" in capsys.readouterr().err
    assert {name: (out / name).read_bytes() for name in pages} == pages
    assert main([*asked[:-1], "trainer.steps=3"]) == 2
    assert "has overrides ['trainer.steps=2'] there and ['trainer.steps=3'] now" in capsys.readouterr().err


def test_a_run_that_fails_is_on_the_page_and_the_command_ends_with_an_error(tmp_path, runs, capsys):
    evaluated_run(runs / f"{GRPO}-seed0", *BAD)
    out = tmp_path / "out"
    assert main(["ablate", str(out), *VARY, "trainer.steps=2"]) == 1
    output = capsys.readouterr()
    said = "algorithm-dapo-seed0 failed with exit code 1: skyrl-nat: there is no <b>algorithm-dapo-seed0</b>"
    assert said in output.out.splitlines()
    assert "algorithm=dapo: cannot tell: no run ended well of one of the two" in output.out
    assert "All 2 runs must end well, 1 did not. See the logs in " in output.err
    assert "there is no &lt;b&gt;algorithm-dapo" in (out / "ablation.html").read_text()
    assert json.loads((out / "results.json").read_text())["failed"] == {"algorithm-dapo-seed0": 1}
    evaluated_run(runs / f"{DAPO}-seed0", *GOOD)
    assert main(["ablate", str(out), *VARY, "trainer.steps=2"]) == 0
    assert "algorithm=dapo: better" in capsys.readouterr().out


def test_where_all_runs_fail_there_is_a_page_too(tmp_path, runs, capsys):
    assert main(["ablate", str(tmp_path / "out"), *VARY]) == 1
    assert "<svg" not in (tmp_path / "out" / "ablation.html").read_text()


def test_three_reward_formulations_by_name(tmp_path, runs, capsys):
    file = tmp_path / "rewards.yaml"
    weights = "environment.reward_weights.shaping_files"
    file.write_text(f"plain: []\nsome files: [{weights}=0.05]\n另一个: [{weights}=0.5]\n")
    for name, end in (("plain", BAD), ("some-files", GOOD), ("variant", BAD)):
        evaluated_run(runs / f"{name}-seed0", *end)
    assert main(["ablate", str(tmp_path / "out"), "--variants", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("The variants differ in environment.reward_weights: ")
    assert [re.sub(":.*", "", line) for line in lines[2:4]] == ["some files", "另一个"]
    assert json.loads((tmp_path / "out" / "results.json").read_text())["against"]["some files"]["reward"] is None


def test_more_variants_than_colours_show_the_baseline_and_the_best(tmp_path, runs, capsys):
    names = [f"v{number}" for number in range(9)]
    sweep = make_sweep({name: [f"x={name}"] for name in names}, [0], [])
    for number, run in enumerate(sweep.runs(runs)):
        evaluated_run(runs / run.name, [0] * 9, [1] * number + [0] * (9 - number))
    found = read_results(sweep, runs, failed=["v1-seed0"], threshold=0.5)
    write_ablation(found, {}, [], tmp_path)
    svg = (tmp_path / "figures" / "ablation_2.svg").read_text()
    assert [name for name in names if f">{name}<" in svg] == ["v0", *names[3:]]
    assert "; baseline and the best 6 others" in (tmp_path / "ablation.md").read_text()


def test_a_stop_ends_in_one_sentence(tmp_path, monkeypatch, capsys):
    stop = f"import os, signal; os.kill({os.getpid()}, signal.SIGTERM); signal.pause()"
    monkeypatch.setattr(running, "PROGRAM", (sys.executable, "-c", stop))
    assert main(["ablate", str(tmp_path / "out"), *VARY]) == 130
    assert capsys.readouterr().err.splitlines()[1:] == ["skyrl-nat: stopped. Go on with the same command"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([*VARY, "--seeds", "a"], "--seeds must be numbers with commas between them, got 'a'. Write 0,1,2"),
        ([*VARY, "--threshold", "nan"], "--threshold must be a share in [0, 1], got nan"),
        (["--variants", "v", "--one-at-a-time"], "--one-at-a-time must come with --vary"),
        ([*VARY, "trainer.stebs=1"], "trainer.stebs must be a declared key"),
        ([*VARY, "algorithm=gspo"], "algorithm must be set in one place"),
        (["--vary", "algorithm=grpo"], "must be KEY=A,B with two values or more"),
    ],
)
def test_a_mistake_is_told_before_anything_is_made(tmp_path, runs, capsys, options, sentence):
    assert main(["ablate", str(tmp_path / "out"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
