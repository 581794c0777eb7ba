"""How a family is trained and told of: stages that are done, figures from the folders of runs."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from family_runs import run_folder

from skyrl_nat.config.load import load_config
from skyrl_nat.data.near_duplicates import function_names
from skyrl_nat.data.specs import load_tasks

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "examples/family_training"
FAMILIES = ("task_dag", "jira")
EXPERIMENTS = [f"{family}_{device}" for family in FAMILIES for device in ("h100x1", "cpu", "tiny_cpu")]


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("stages")


@pytest.fixture
def results(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("results")


def test_results_are_those_of_start_and_last_evaluation(results: ModuleType, tmp_path: Path) -> None:
    run_folder(tmp_path, "sft", {0: [0.0] * 12, 60: [0.5] * 12}, {})
    held_out = {0: [0.5] * 12, 5: [0.6] * 12, 10: [1.0] * 9 + [0.4] + [0.5] * 2}
    run_folder(tmp_path, "grpo", held_out, {step: [step / 10] * 4 for step in range(1, 9)})
    (tmp_path / "seconds.tsv").write_text("sft\t60\nexport\t30\ngrpo\t100\ngrpo\t50\n")
    results.write_results(tmp_path)
    found = json.loads((tmp_path / results.RESULTS).read_text())
    against = found["comparisons"]["trained_vs_start"]
    assert (against["success"]["num_wins"], against["success"]["num_losses"]) == (9, 0)
    assert against["success"]["p"] == pytest.approx(2 / 2**9)
    assert found["comparisons"]["trained_vs_untrained"]["reward"]["num_wins"] == 12
    assert [found["policies"][name]["success"]["value"] for name in ("untrained", "start", "trained")] == [0, 0, 0.75]
    assert found["evaluated_steps"] == [0, 5, 10]
    assert (found["train_reward"]["first"], found["train_reward"]["last"]) == (pytest.approx(0.2), pytest.approx(0.7))
    assert found["train_reward"]["num_groups"] == [12, 12] and found["train_reward"]["p"] < 0.001
    assert found["seconds"] == {"sft": 60.0, "export": 30.0, "grpo": 150.0}
    assert found["gpu_minutes"] == 4.0
    assert (found["seed"], found["settings"]["grpo"]["tasks_per_step"]) == (4, 32)
    assert (tmp_path / results.CURVE).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "trained_vs_start" / "comparison.html").is_file()


def test_without_imitation_the_start_is_the_model_itself(results: ModuleType, tmp_path: Path) -> None:
    run_folder(tmp_path, "grpo", {0: [0.5] * 4}, {1: [0.5] * 4})
    (tmp_path / "seconds.tsv").write_text("grpo\t30\n")
    found = results.write_results(tmp_path)
    assert list(found["policies"]) == ["start", "trained"]
    assert found["train_reward"] == {"num_steps": 0}


def test_a_run_that_ends_badly_has_failed(stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.py"
    program.write_text("import sys\nsys.exit(int(sys.argv[1]))\n")
    monkeypatch.setattr(stages, "PROGRAM", (sys.executable, str(program)))
    stages.run_program("0")
    with pytest.raises(subprocess.CalledProcessError):
        stages.run_program("3")


def test_what_is_done_is_not_done_again(stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(stages, "run_program", lambda *arguments, **_: started.append(arguments))
    monkeypatch.setattr(stages, "write_results", lambda out: None)
    monkeypatch.setattr(stages, "has_gpu", lambda: True)
    monkeypatch.setenv("SFT", "trainer.epochs=1")
    monkeypatch.setattr(sys, "argv", ["stages.py", "task_dag", str(tmp_path), "model", "--minutes", "6", "seed=3"])
    assert stages.main() == 0
    assert [arguments[0] for arguments in started] == ["train", "export", "train"]
    sft, _, grpo = started
    assert {"experiment=task_dag_h100x1", "seed=3", "model.path=model", "algorithm=sft"} <= set(sft)
    assert sft[-1] == "trainer.epochs=1"
    assert {"experiment=task_dag_h100x1", "seed=3", f"model.path={tmp_path / 'sft_model'}"} <= set(grpo)
    load_config(sft[1:])
    load_config(grpo[1:])
    assert len((tmp_path / "train_episodes.jsonl").read_text().splitlines()) == 480
    assert stages.main() == 0
    assert len(started) == 3


def test_dialogues_that_are_given_are_imitated_and_time_that_was_spent_counts(
    stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(stages, "run_program", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(stages, "write_results", lambda out: None)
    monkeypatch.setattr(stages, "has_gpu", lambda: True)
    monkeypatch.setenv("EPISODES", str(tmp_path / "mine.jsonl"))
    command = ["stages.py", "nat_agent", str(tmp_path / "out"), "model", "--minutes", "25", "--only-imitation"]
    monkeypatch.setattr(sys, "argv", command)
    assert stages.main() == 1, "there are no dialogues"
    (tmp_path / "mine.jsonl").write_text("{}")
    assert stages.main() == 0
    assert [arguments[0] for arguments in started] == ["train", "export"]
    recorded = f'environment.recorded_files=["{tmp_path / "mine.jsonl"}"]'
    assert {"experiment=first_experiment_h100x1", recorded} <= set(started[0])
    assert not any("max_minutes" in text for text in started[0])
    (tmp_path / "out" / "seconds.tsv").write_text("sft\t1000\nexport\t20\n")
    monkeypatch.setattr(sys, "argv", command[:-1])
    assert stages.main() == 0
    [grpo] = started[2:]
    assert f"model.path={tmp_path / 'out' / 'sft_model'}" in grpo
    [minutes] = [float(text.partition("=")[2]) for text in grpo if text.startswith("trainer.max_minutes=")]
    assert minutes == pytest.approx(25 - (1020 + stages.ENDING_S) / 60, abs=0.1)


def test_a_second_signal_does_not_cut_short_the_end_of_what_was_started(tmp_path: Path) -> None:
    """`timeout` tells a whole group of processes, of which one tells another again."""
    program = tmp_path / "program.py"
    program.write_text(
        "import pathlib, signal, sys, time\n"
        "num_signals = 0\n"
        "def end(*_):\n"
        "    global num_signals\n"
        "    num_signals += 1\n"
        "    if num_signals == 1:\n        sys.exit(130)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "here = pathlib.Path(__file__).parent\n"
        "(here / 'begun').touch()\n"
        "try:\n    time.sleep(60)\n"
        "finally:\n    time.sleep(2)\n    (here / 'saved').write_text(str(num_signals))\n"
    )
    script = (
        "import sys, stages\n"
        f"stages.PROGRAM = (sys.executable, {str(program)!r})\n"
        f"sys.argv = ['stages.py', 'jira', {str(tmp_path / 'out')!r}, 'model']\n"
        "sys.exit(stages.main())\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{FOLDER}:{ROOT}", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGTERM)
    time.sleep(0.5)
    process.terminate()
    assert process.wait(30) == 143
    assert (tmp_path / "saved").read_text() == "1", "the group's signal reaches it through stages alone, once"
    assert not (tmp_path / "out" / "grpo.done").exists()
    assert (tmp_path / "out" / "seconds.tsv").read_text().startswith("grpo\t")


@pytest.mark.parametrize(
    ("family", "option", "names"),
    [
        ("jira", [], ["grpo"]),
        ("jira", ["--imitate"], ["sft", "export", "grpo"]),
        ("task_dag", ["--no-imitate"], ["grpo"]),
    ],
)
def test_imitation_is_a_matter_of_the_family_or_of_the_command_line(
    stages: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    option: list[str],
    names: list[str],
) -> None:
    monkeypatch.setattr(stages, "run_program", lambda *_, **__: None)
    monkeypatch.setattr(stages, "write_results", lambda out: None)
    monkeypatch.setattr(stages, "has_gpu", lambda: False)
    arguments = [family, str(tmp_path), "model", *option, "environment.max_difficulty=3"]
    monkeypatch.setattr(sys, "argv", ["stages.py", *arguments])
    assert stages.main() == 0
    assert sorted(path.stem for path in tmp_path.glob("*.done")) == sorted(names)
    if "sft" in names:
        rows = [json.loads(line) for line in (tmp_path / "train_episodes.jsonl").read_text().splitlines()]
        assert {row["difficulty"] for row in rows} == {1, 2, 3}


def test_grpo_trains_on_easier_tasks_and_all_levels_are_held_out(
    stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(stages, "run_program", lambda *arguments, **_: started.append(arguments))
    monkeypatch.setattr(stages, "write_results", lambda out: None)
    monkeypatch.setattr(stages, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "argv", ["stages.py", "jira", str(tmp_path), "model", "--grpo-levels", "2"])
    assert stages.main() == 0
    environment = load_config(started[0][1:]).environment
    assert {task.difficulty for task in load_tasks(environment.train_files)} == {1, 2}
    held_out = load_tasks(environment.validation_files, max_difficulty=environment.max_difficulty)
    assert {task.difficulty for task in held_out} == {1, 2, 3, 4, 5}


def test_no_function_that_grpo_alone_is_to_see_is_imitated(
    stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, ...]] = []
    tasks = load_tasks(["builtin:nat_agent/library_train"])
    (tmp_path / "all.jsonl").write_text("".join(json.dumps({"task_id": task.task_id}) + "\n" for task in tasks))
    monkeypatch.setenv("EPISODES", str(tmp_path / "all.jsonl"))
    monkeypatch.setattr(stages, "run_program", lambda *arguments: started.append(arguments))
    monkeypatch.setattr(stages, "write_results", lambda out: None)
    monkeypatch.setattr(stages, "has_gpu", lambda: True)
    out = tmp_path / "out"
    command = ["stages.py", "nat_agent", str(out), "model", "--grpo-levels", "2", "--fresh", "0.4"]
    files = 'environment.train_files=["builtin:nat_agent/library_train"]'
    monkeypatch.setattr(sys, "argv", [*command, files])
    assert stages.main() == 0
    sft, _, grpo = started
    assert f'environment.recorded_files=["{out / "imitated_episodes.jsonl"}"]' in sft
    imitated = {json.loads(line)["task_id"] for line in (out / "imitated_episodes.jsonl").open()}
    seen = {name for task in tasks if task.task_id in imitated for name in function_names(task)}
    played = load_tasks([str(out / "grpo_tasks.parquet")])
    assert load_config(grpo[1:]).environment.train_files == [str(out / "grpo_tasks.parquet")]
    assert not seen & {name for task in played for name in function_names(task)}
    assert {task.difficulty for task in played} == {1, 2}
    easy = sum(task.difficulty <= 2 for task in tasks)
    assert 0.25 * easy < len(played) < 0.55 * easy
    for wrong in (["nat_agent", "--fresh", "1"], ["jira", "--fresh", "0.4"]):
        monkeypatch.setattr(sys, "argv", ["stages.py", wrong[0], str(out), "model", *wrong[1:]])
        with pytest.raises(SystemExit):
            stages.main()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_are_whole_configs(name: str) -> None:
    config = load_config([f"experiment={name}"])
    assert config.environment.family == next(family for family in FAMILIES if name.startswith(family))
    assert config.environment.validation_files == [f"builtin:{config.environment.family}/validation"]
    assert (config.cluster.device == "cuda") == name.endswith("h100x1")
