"""What the first experiment says is what its evaluations hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from evaluated import group

from skyrl_nat.evaluation.folder import GREEDY, EvaluationFolder

COLLECT = Path(__file__).parents[3] / "examples" / "nat_agent_creation" / "first_experiment" / "collect.py"


def way(folder: Path, seed: int, solved: dict[str, int]) -> Path:
    """Write the evaluations of one seed: of 8 tasks, four of each level, the first `solved` ones are."""
    for stage, number in solved.items():
        groups = [group(i, [float(i < number)], difficulty=1 + i // 4) for i in range(8)]
        EvaluationFolder(folder / stage, {"model": stage, "seed": seed}).finish(GREEDY, groups)
    (folder / "seconds.tsv").write_text("start\t30\nsft\t60\nsft\t30\ngrpo\t180\n")
    return folder


def collected(results: Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COLLECT), str(results), *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_seeds_are_averaged_within_a_task_and_tasks_are_counted(tmp_path):
    """Of level 1 both seeds solve 1, 2 and 3 of 4 after imitation and 4 of 4 after GRPO."""
    one = way(tmp_path / "one", 0, {"start": 0, "after_sft": 1, "after_grpo": 8})
    two = way(tmp_path / "two", 1, {"start": 0, "after_sft": 3, "after_grpo": 6})
    done = collected(tmp_path / "results.json", one, two)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["seeds"] == [0, 1]
    assert [found[stage]["level 1"]["value"] for stage in ("start", "sft", "grpo")] == [0.0, 0.5, 1.0]
    assert [found[stage]["all"]["value"] for stage in ("start", "sft", "grpo")] == [0.0, 0.25, 0.875]
    assert found["grpo"]["level 1"]["n"] == 4
    # Seven of eight tasks gain and one (the first) cannot: two-sided sign test.
    assert found["p_value_grpo_vs_sft"] == pytest.approx(2 / 2**7)
    assert found["gpu_minutes"] == [5.0, 5.0]
    assert found["seconds"][0] == {"start": 30.0, "sft": 90.0, "grpo": 180.0}


def test_a_missing_part_or_a_seed_twice_is_one_sentence(tmp_path):
    one = way(tmp_path / "one", 0, {"start": 0, "after_sft": 1, "after_grpo": 8})
    half = way(tmp_path / "half", 1, {"start": 0})
    same = way(tmp_path / "same", 0, {"start": 0, "after_sft": 1, "after_grpo": 8})
    for folders, sentence in (((one, half), "after_sft must be a folder of"), ((one, same), "must be of another seed")):
        done = collected(tmp_path / "results.json", *folders)
        assert done.returncode == 2
        assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results.json").exists()
