"""The scripts around a comparison say the commands that they stand for."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest
from near_workers import play_answers

from skyrl_nat.data.specs import load_tasks
from skyrl_nat.environments.task_dag.episodes import reference_answers
from skyrl_nat.environments.task_dag.graph import PlanGraph
from skyrl_nat.environments.task_dag.payload import parse_hidden
from skyrl_nat.evaluation.folder import EvaluationFolder
from skyrl_nat.evaluation.model_report import write_report

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "scripts"))

import collect_baseline  # noqa: E402
from compare_baseline_trained import steps_of  # noqa: E402


def test_the_baseline_is_the_model_that_the_config_trains(tmp_path):
    _, found = collect_baseline.baseline_arguments(
        [str(tmp_path), "--samples", "4", f"model.path={tmp_path}/m", "seed=3"]
    )
    assert found == [
        "evaluate",
        f"{tmp_path}/m",
        "--out",
        str(tmp_path),
        "--samples",
        "4",
        f"model.path={tmp_path}/m",
        "seed=3",
    ]
    assert collect_baseline.baseline_arguments([str(tmp_path)])[1][1] == "smollm2-135m-instruct"


@pytest.mark.parametrize(
    ("success", "said"),
    [
        (0.5, ""),
        (0.95, ""),
        (0.49, "between 50% and 95% (environment.baseline_success), found 49.0%"),
        (0.96, "found 96.0%"),
        (None, "found no verdict"),
    ],
)
def test_a_baseline_that_tells_little_is_exit_code_3(
    success: float | None,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def evaluate(arguments: list[str]) -> int:
        written = {collect_baseline.GREEDY: {"success": {"value": success}}}
        (Path(arguments[3]) / collect_baseline.RESULT).write_text(json.dumps(written))
        return 0

    monkeypatch.setattr(collect_baseline, "main", evaluate)
    code = collect_baseline.collect([str(tmp_path), "environment=task_dag"])
    assert code == (collect_baseline.INSANE if said else 0)
    assert said in capsys.readouterr().err
    assert collect_baseline.collect([str(tmp_path)]) == (3 if success is None else 0), "other families take any"


@pytest.mark.parametrize(("num_solved", "code"), [(72, 0), (59, 3), (120, 3)])
def test_a_baseline_of_task_dag_tells_all_of_its_plans(
    num_solved: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All held-out tasks are played; so many as the reference is, and none of the others gets an answer of use."""
    tasks = load_tasks(["builtin:task_dag/validation"])
    solved = tasks[:num_solved]

    def evaluate(arguments: list[str]) -> int:
        played = [(task, reference_answers(task) if task in solved else ["Sure!"]) for task in tasks]
        folder = EvaluationFolder(Path(arguments[3]), {"model": "answers"})
        folder.finish(collect_baseline.GREEDY, asyncio.run(play_answers(played)))
        write_report(folder.path)
        return 0

    monkeypatch.setattr(collect_baseline, "main", evaluate)
    assert collect_baseline.collect([str(tmp_path), "environment=task_dag"]) == code
    found = json.loads((tmp_path / "evaluation.json").read_text())["greedy"]
    assert (found["num_tasks"], found["num_without_verdict"]) == (120, 0)
    assert found["success"]["value"] == pytest.approx(num_solved / 120)
    graphs = [PlanGraph(parse_hidden(task.hidden).reference_nodes) for task in solved]
    num_calls = sum(len(reference_answers(task)) for task in solved) + 120 - num_solved
    for name, value in {
        "environment/depth/mean": mean(graph.depth() for graph in graphs),
        "environment/num_subtasks/mean": mean(len(graph.leaves) for graph in graphs),
        "rollout/turns/mean": num_calls / 120,
        "rollout/completion_tokens/mean": 60 * num_calls / 120,
    }.items():
        assert found["metrics"][name] == pytest.approx(value), name
    assert 1.0 < found["metrics"]["environment/parallelism_ratio/mean"] <= 3.0
    assert found["metrics"]["environment/execution_h/mean"] > 0.0


def test_a_run_is_evaluated_and_then_compared():
    evaluate, compare = steps_of(["base", "runs/mine", "--checkpoint", "best", "seed=3"])
    folder = "runs/mine/evaluations/against_base"
    assert evaluate == ["evaluate", "runs/mine", "--checkpoint", "best", "--samples", "0", "--out", folder, "seed=3"]
    assert compare == ["compare", "base", folder]


def test_scripts_end_with_a_sentence_where_input_is_bad(tmp_path):
    commands = {
        "collect_baseline.py": [str(tmp_path), "no.such=1"],
        "evaluate_model.py": ["nothing-here"],
        "compare_baseline_trained.py": ["base", str(tmp_path)],
    }
    for script, arguments in commands.items():
        done = subprocess.run(
            [sys.executable, str(ROOT / "scripts" / script), *arguments], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
