"""What the first experiment says is what its evaluations hold, and how its script starts and ends its seeds."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from evaluated import played
from family_runs import run_folder

from skyrl_nat.algorithms.advantages import ZERO_SPREAD_TOLERANCE
from skyrl_nat.config.load import load_config
from skyrl_nat.environments.nat_agent.rewards import WEIGHTS
from skyrl_nat.evaluation.ablation.sweep import read_variants
from skyrl_nat.rewards.rubric import make_rubric
from skyrl_nat.types import RolloutGroup

FOLDER = Path(__file__).parents[3] / "examples" / "nat_agent_creation" / "first_experiment"
STAGES = {"start": ("sft", 0), "sft": ("grpo", 0), "grpo": ("grpo", 15)}
"""Stage -> run and step of its evaluation."""


def held_out(number: int, rewards: list[float]) -> RolloutGroup:
    """Return task `number` of 8: four of level 1, four of level 2; the last of each level is of another family."""
    split = "other_families" if number % 4 == 3 else "validation"
    found = played(f"nat_agent/{split}/{number:05d}-name", *rewards, difficulty=1 + number // 4)
    return replace(found, index=number)


def way(folder: Path, seed: int, solved: dict[str, int]) -> Path:
    """Write the runs of one seed: of 8 tasks the first `solved` ones of a stage are."""
    rewards: dict[str, dict[int, list[float]]] = {"sft": {}, "grpo": {}}
    for stage, number in solved.items():
        run, step = STAGES[stage]
        rewards[run][step] = [float(i < number) for i in range(8)]
    for run, found in rewards.items():
        if found:
            run_folder(folder, run, found, {1: [0.5]}, seed=seed, make=held_out)
    (folder / "seconds.tsv").write_text("sft\t60\nsft\t30\nexport\t30\ngrpo\t180\n")
    return folder


def collected(results: Path, *folders: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "collect.py"), str(results), *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_seeds_are_averaged_within_a_task_and_tasks_are_counted_by_split_and_level(tmp_path):
    """The seeds solve 1 and 3 of level 1 after imitation, and 8 and 6 of all after GRPO."""
    one = way(tmp_path / "one", 0, {"start": 0, "sft": 1, "grpo": 8})
    two = way(tmp_path / "two", 1, {"start": 0, "sft": 3, "grpo": 6})
    done = collected(tmp_path / "results.json", one, two)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert found["seeds"] == [0, 1]
    assert [found[stage]["validation"]["level 1"]["value"] for stage in STAGES] == pytest.approx([0.0, 2 / 3, 1.0])
    assert [found[stage]["other_families"]["all"]["value"] for stage in STAGES] == [0.0, 0.0, 0.75]
    assert found["grpo"]["validation"]["level 1"]["n"] == 3
    assert found["grpo"]["validation"]["level 1"]["low"] < 1.0
    # Seven of eight tasks gain and one (the first) cannot: two-sided sign test.
    assert found["p_value_grpo_vs_sft"] == pytest.approx(2 / 2**7)
    tests = found["grpo_vs_sft"]
    assert tests["validation"]["all"]["p"] == pytest.approx(2 / 2**5)
    assert (tests["all"]["level 1"]["rose"], tests["all"]["level 1"]["num_tasks"]) == (3, 4)
    assert tests["all"]["all"]["gain"] == pytest.approx(0.875 - 0.25)
    assert found["gpu_minutes"] == [5.0, 5.0]
    assert found["seconds"][0] == {"sft": 90.0, "export": 30.0, "grpo": 180.0}
    assert found["evaluation"]["rollouts_per_task_and_seed"] == 1
    # Level 1 of the split with templates that were seen has three tasks; one of the other families.
    curves = found["curves"]["0"]["held_out_level_1"]
    assert curves["validation"] == [[0, pytest.approx(1 / 3)], [15, 1.0]]
    assert curves["other_families"] == [[0, 0.0], [15, 1.0]]
    assert found["curves"]["1"]["train_success"] == [[1, 0.5]]
    failed = {split: sum(kind["answers"] for kind in kinds) for split, kinds in found["failures"]["sft"].items()}
    assert failed == {"validation": 2 + 0, "other_families": 2}
    assert (tmp_path / "learning_curve.png").stat().st_size > 1000


def test_a_missing_part_or_a_seed_twice_is_one_sentence(tmp_path):
    one = way(tmp_path / "one", 0, {"start": 0, "sft": 1, "grpo": 8})
    half = way(tmp_path / "half", 1, {"start": 0})
    same = way(tmp_path / "same", 0, {"start": 0, "sft": 1, "grpo": 8})
    for folders, sentence in (
        ((one, half), "must hold the runs sft and grpo"),
        ((one, same), "must be of another seed"),
    ):
        done = collected(tmp_path / "results.json", *folders)
        assert done.returncode == 2
        assert sentence in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results.json").exists()


def test_the_preset_plays_held_out_tasks_greedily_and_leaves_the_checks_that_episodes_offer():
    config = load_config(["experiment=first_experiment_h100x1"])
    assert (config.rollout.eval_temperature, config.rollout.temperature) == (0.0, 1.0)
    assert config.rollout.max_turns > 1
    assert config.trainer.steps % config.evaluation.every_steps == 0


def test_formulations_pay_for_other_things_and_ask_the_same_of_a_success():
    variants = read_variants(FOLDER / "rewards.yaml")
    weights = {}
    for name, overrides in variants.items():
        given = load_config(["experiment=first_experiment_h100x1", *overrides]).environment.reward_weights
        weights[name] = make_rubric(WEIGHTS, given).weights
    assert list(weights) == ["default", "hidden outputs alone", "shaped", "form alone"]
    assert weights["default"] == WEIGHTS
    for name, found in weights.items():
        paid = {part for part, weight in found.items() if weight > ZERO_SPREAD_TOLERANCE}
        hidden = {part for part in found if not part.startswith("shaping")}
        assert all(found[part] > 0 for part in hidden), name
        if name == "hidden outputs alone":
            assert paid == {"tools_oracle"}
        elif name == "form alone":
            assert paid == set(found) - hidden
            assert sum(found[part] for part in hidden) < ZERO_SPREAD_TOLERANCE


PROGRAM = """#!{python}
import os, pathlib, signal, sys, time
calls = pathlib.Path(os.environ["CALLS"])
def end(*_):
    time.sleep(1)
    (calls / ("ended-" + str(os.getpid()))).touch()
    sys.exit(130)
if sys.argv[3:4] == ["ablate"]:
    told = [os.environ.get("CUDA_VISIBLE_DEVICES", "any"), *sys.argv[4:]]
    (calls / pathlib.Path(sys.argv[4]).name).write_text("\\n".join(told))
elif sys.argv[3:4] == ["analyze"]:
    (calls / ("analyze-" + pathlib.Path(sys.argv[4]).parent.name)).write_text("\\n".join(sys.argv[4:]))
elif sys.argv[1:2] == ["-m"]:
    folder = pathlib.Path(sys.argv[4])
    folder.mkdir(parents=True)
    (folder / "report.json").write_text("{{}}")
    (folder / "other_families.parquet").touch()
    (calls / "prepare").write_text(" ".join(sys.argv[3:]))
elif sys.argv[1].endswith("stages.py"):
    signal.signal(signal.SIGTERM, end)
    told = [os.environ.get("CUDA_VISIBLE_DEVICES", "any"), os.environ["EPISODES"], *sys.argv[2:]]
    (calls / ("stages-" + pathlib.Path(sys.argv[3]).name)).write_text("\\n".join(told))
    time.sleep(60 if os.environ.get("LONG") else 0.5)
else:
    (calls / "collect").write_text(" ".join(sys.argv[2:]))
"""


def start(
    folder: Path, num_gpus: int, *arguments: str, script: str = "run.sh", **variables: str
) -> subprocess.Popen[str]:
    """Start a copy of the script, whose interpreter is a stand-in."""
    examples = folder / "examples"
    here = examples / "nat_agent_creation" / "first_experiment"
    for source, target in ((FOLDER, here), (FOLDER.parents[1] / "family_training", examples / "family_training")):
        target.mkdir(parents=True, exist_ok=True)
        for path in source.glob("*.sh"):
            (target / path.name).write_text(path.read_text())
    programs, calls = folder / "bin", folder / "calls"
    smi = "".join(f"echo 'GPU {number}: H100'\n" for number in range(num_gpus))
    for path, text in (
        (folder / ".venv" / "bin" / "python", PROGRAM.format(python=sys.executable)),
        (programs / "nvidia-smi", f"#!/bin/bash\n{smi}"),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    calls.mkdir(exist_ok=True)
    environment = {**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "CALLS": str(calls), **variables}
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    command = ["bash", str(here / script), str(folder / "out"), *arguments]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("num_gpus", "cards"), [(0, ["any", "any"]), (1, ["any", "any"]), (2, ["0", "1"])])
def test_each_seed_is_a_whole_way_with_a_card_of_its_own_where_there_is_one(tmp_path, num_gpus, cards):
    process = start(tmp_path, num_gpus, "--minutes", "25", "trainer.steps=3", TASKS="40")
    assert process.wait(60) == 0, process.stderr.read()
    calls, data = tmp_path / "calls", tmp_path / "out" / "data"
    assert (calls / "prepare").read_text().startswith(f"prepare {data} --num-samples 40 --seed 3 --mix 1:72,")
    for seed, card in enumerate(cards):
        told = (calls / f"stages-seed_{seed}").read_text().splitlines()
        assert told[:4] == [
            card,
            str(data / "train_episodes.jsonl"),
            "nat_agent",
            str(tmp_path / "out" / f"seed_{seed}"),
        ]
        held_out_files = f'environment.validation_files=["{data}/validation.parquet","{data}/other_families.parquet"]'
        assert {"--minutes", "25", "trainer.steps=3", f"seed={seed}", held_out_files} <= set(told)
    seeds = [str(tmp_path / "out" / f"seed_{seed}") for seed in (0, 1)]
    assert (calls / "collect").read_text() == " ".join([str(tmp_path / "out" / "results.json"), *seeds])
    for seed in seeds:
        told = (calls / f"analyze-{Path(seed).name}").read_text().splitlines()
        assert told == [f"{seed}/grpo", "--out", f"{seed}/analysis"]


def test_told_to_end_it_waits_for_its_seeds_to_save(tmp_path):
    process = start(tmp_path, 2, LONG="1")
    calls = tmp_path / "calls"
    deadline = time.monotonic() + 60
    while len(list(calls.glob("stages-*"))) < 2:
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert len(list(calls.glob("ended-*"))) == 2
    assert not (calls / "collect").exists()


def test_the_ablation_begins_with_each_seeds_imitated_model(tmp_path):
    out = tmp_path / "out"
    (out / "data").mkdir(parents=True)
    process = start(tmp_path, 2, "trainer.steps=4", script="ablation.sh", SEEDS="0 3")
    assert process.wait(60) == 0, process.stderr.read()
    folder, *told = (tmp_path / "calls" / "rewards").read_text().splitlines()[1:]
    assert folder == str(out / "rewards")
    assert (told[told.index("--seeds") + 1], told[told.index("--at-once") + 1]) == ("0,3", "2")
    assert told[-1] == "trainer.steps=4"
    overrides = told[told.index("experiment=first_experiment_h100x1") :]
    config = load_config([*overrides, "seed=3"])
    assert config.model.path == f"{out}/seed_3/sft_model"
    assert config.environment.train_files == [f"{out}/seed_3/grpo_tasks.parquet"]
    assert config.trainer.tasks_per_step % config.trainer.updates_per_batch == 0
