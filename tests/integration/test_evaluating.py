"""`skyrl-nat evaluate` as a user starts it: the same figures as the run's own, the same files twice, no task twice."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_run
from letter_family import NAME
from tiny_model import make_tiny_model

from skyrl_nat.data.specs import write_tasks
from skyrl_nat.types import Task

pytestmark = pytest.mark.slow

NUM_TASKS = 12
EXACT = ("engine.deterministic=true", "environment.validation_files=[{}/many.parquet]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A run of one step, evaluated before and after."""
    folder = tmp_path_factory.mktemp("evaluating")
    many = [
        Task(task_id=f"say_{i}", family=NAME, payload={"letter": "gh"[i % 2]}, difficulty=1 + i % 2)
        for i in range(NUM_TASKS)
    ]
    write_tasks(many, folder / "many.parquet")
    small_run.run(folder, "name=one", "trainer.steps=1", *exact(folder))
    return folder


@pytest.fixture(scope="module")
def evaluated(folder: Path) -> Path:
    """The same checkpoint, evaluated from outside."""
    evaluate(folder, str(folder / "runs" / "one"), "--samples", "2", "--out", str(folder / "first"))
    return folder / "first"


def exact(folder: Path) -> list[str]:
    return [setting.format(folder) for setting in EXACT]


def start(folder: Path, *arguments: str) -> small_run.Running:
    return small_run.Running([sys.executable, "-m", "skyrl_nat.cli", "evaluate", *arguments])


def evaluate(folder: Path, *arguments: str) -> str:
    process = start(folder, *arguments)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 0, output
    return output


def files_of(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found.pop("timing.json")
    return found


def test_a_checkpoint_has_the_figures_of_the_runs_own_evaluation(folder: Path, evaluated: Path):
    own = json.loads((folder / "runs" / "one" / "evaluations.jsonl").read_text().splitlines()[-1])
    lines = map(json.loads, (folder / "runs" / "one" / "metrics.jsonl").read_text().splitlines())
    logged, again = (line for line in lines if line["step"] == 1 and "eval/rollout/reward/mean" in line)
    found = json.loads((evaluated / "evaluation.json").read_text())
    greedy = found["greedy"]
    assert (own["step"], found["about"]["step"], greedy["num_tasks"]) == (1, 1, NUM_TASKS)
    assert greedy["reward"]["value"] == own["reward"]
    assert greedy["success"]["value"] == own["success"]
    assert greedy["parts"] == own["parts"]
    for name, value in greedy["metrics"].items():
        assert logged[f"eval/{name}"] == again[f"eval/{name}"] == value, name


@pytest.mark.long
def test_twice_are_the_same_files_and_only_seconds_differ(folder: Path, evaluated: Path):
    evaluate(folder, str(folder / "runs" / "one"), "--samples", "2", "--out", str(folder / "second"))
    assert len(files_of(evaluated)) > 6
    assert files_of(folder / "second") == files_of(evaluated)


def test_an_evaluation_that_is_killed_goes_on_where_it_was(folder: Path, evaluated: Path):
    arguments = [str(folder / "runs" / "one"), "--samples", "2", "--out", str(folder / "killed")]
    process = start(folder, *arguments)
    part = folder / "killed" / "greedy.part.jsonl"
    deadline = time.monotonic() + 120
    while not part.exists() or part.read_bytes().count(b"\n") < 2:
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = part.read_bytes()
    output = evaluate(folder, *arguments)
    assert "of them were played before" in output, kept
    assert files_of(folder / "killed") == files_of(evaluated)


@pytest.mark.long
def test_a_models_folder_is_what_the_run_began_with(folder: Path):
    """The evaluation before the first step; nothing but the evaluation's folder is made."""
    overrides = [text for text in small_run.arguments(folder) if not text.startswith("model.path")]
    before = sorted((folder / "runs").iterdir())
    evaluate(folder, str(folder / "model"), "--out", str(folder / "model_alone"), *overrides, *exact(folder))
    own = json.loads((folder / "runs" / "one" / "evaluations.jsonl").read_text().splitlines()[0])
    greedy = json.loads((folder / "model_alone" / "evaluation.json").read_text())["greedy"]
    assert (own["step"], greedy["reward"]["value"], greedy["parts"]) == (0, own["reward"], own["parts"])
    assert sorted((folder / "runs").iterdir()) == before


def test_an_adapter_plays_as_the_run_that_trained_it(folder: Path):
    small_run.run(folder, "name=adapted", "trainer.steps=3", "model.lora.rank=2", "optimizer.lr=0.3", *exact(folder))
    own = [json.loads(line) for line in (folder / "runs" / "adapted" / "evaluations.jsonl").read_text().splitlines()]
    command = [sys.executable, "-m", "skyrl_nat.cli", "export", str(folder / "runs" / "adapted"), str(folder / "lora")]
    exporting = small_run.Running([*command, "--format", "lora"])
    output, _ = exporting.communicate(timeout=240)
    assert exporting.returncode == 0, output
    evaluate(
        folder, str(folder / "lora"), "--out", str(folder / "of_lora"), *small_run.arguments(folder), *exact(folder)
    )
    greedy = json.loads((folder / "of_lora" / "evaluation.json").read_text())["greedy"]
    assert greedy["parts"] == own[-1]["parts"] != own[0]["parts"]
    assert greedy["reward"]["value"] == own[-1]["reward"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nothing-here"], "model.path must be an existing folder"),
        (["{folder}/runs/one", "--out", "{folder}/runs/one"], "holds neither. Name another"),
        (["{folder}/runs/one", "--samples", "-1"], "--samples must be 0 or more, got -1"),
        (["{folder}/model", "--checkpoint", "best"], "--checkpoint must be used with a run's folder"),
    ],
)
def test_bad_input_is_one_sentence(folder: Path, arguments: list[str], sentence: str):
    command = [sys.executable, "-m", "skyrl_nat.cli", "evaluate", *(text.format(folder=folder) for text in arguments)]
    done = subprocess.run(command, env=small_run.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.long
def test_another_model_in_the_same_folder_is_refused(folder: Path, evaluated: Path):
    other = make_tiny_model(folder / "other", seed=5, hidden_size=64)
    overrides = [text for text in small_run.arguments(folder) if not text.startswith("model.path")]
    process = start(folder, str(other), "--out", str(evaluated), *overrides, *exact(folder))
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 2
    assert "--out must be a folder of the same evaluation" in output
