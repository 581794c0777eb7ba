"""One run of the product counts against both peers, and what a peer did not find leaves no figure."""

import importlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "benchmarks"))
against_peers = importlib.import_module("against_peers")


def test_a_step_counts_with_the_engines_that_did_best(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    runs = {
        number: {"tokens_per_s": 1.0, "run": {"step": 4.0 / number}, "overrides": [str(number)]} for number in (1, 3)
    }
    against_peers.write(path, {}, runs)
    assert not list(tmp_path.iterdir())
    against_peers.write(path, {"trl": {"step": 4.0}}, {**runs, 8: {"error": "no memory"}})
    found = json.loads((tmp_path / "result-P2.json").read_text())
    assert (found["value"], found["met"], found["raw"]["overrides"]) == (1 / 3, True, ["3"])
    against_peers.write(path, {"raw": {"tokens_per_s": 2.0}, "trl": {"error": "none"}}, runs)
    assert json.loads((tmp_path / "result-P2.json").read_text())["value"] is None
    found = json.loads((tmp_path / "result-P1.json").read_text())
    assert (found["value"], found["met"]) == (0.5, False)
