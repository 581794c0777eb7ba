"""What `train_agenthands.sh` starts, on machines with and without GPUs; the programs that it calls are stand-ins."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from signs import SIGNS, signs_of

from skyrl_nat.config.load import config_from_file, load_config, save_config
from skyrl_nat.planning.gpus import Gpu, Gpus
from skyrl_nat.planning.hardware import look
from skyrl_nat.planning.profiles import overrides_of, resolve

SCRIPT = Path(__file__).parents[3] / "examples" / "nat_agent_creation" / "train_agenthands.sh"
PROGRAM = f"""#!/bin/bash
if [ "$1" = hardware ]; then exec {sys.executable} -m skyrl_nat.cli "$@"; fi
printf '%s\\n' "$*" >> "$CALLS"
if [ "$1" = prepare ]; then mkdir -p "$2" && echo '{{}}' > "$2/report.json"; fi
"""


def smi(num_gpus: int) -> str:
    """Return a stand-in for a driver's tool that finds so many H100."""
    listed = "".join(f"echo 'GPU {number}: H100'\n" for number in range(num_gpus))
    asked = "echo 'NVIDIA H100 80GB HBM3, 81559, Disabled'\n" * num_gpus
    return f'#!/bin/bash\ncase "$1" in\n--list-gpus)\n{listed};;\n--query-gpu*)\n{asked};;\nesac\n'


def profile_of(num_gpus: int) -> list[str]:
    """Return what fits so many H100 and the cores of this machine."""
    gpus = Gpus("cuda", (Gpu("NVIDIA H100 80GB HBM3", 81559),) * num_gpus)
    hardware = replace(look(), gpus=gpus)
    return overrides_of(resolve("auto", hardware), hardware)


def start(folder: Path, num_gpus: int, *overrides: str) -> list[str]:
    """Run the script and return the calls of `skyrl-nat` that do something."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, text in (("skyrl-nat", PROGRAM), ("nvidia-smi", smi(num_gpus))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    calls = folder / "calls"
    calls.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PATH": f"{programs}:/usr/bin:/bin",
        "CALLS": str(calls),
        "PYTHONPATH": str(SCRIPT.parents[2]),
        "AGENTHANDS_DATA": str(folder / "tasks"),
    }
    subprocess.run(["bash", SCRIPT, *overrides], env=environment, check=True, capture_output=True)
    return calls.read_text().splitlines()


@pytest.mark.parametrize(("num_gpus", "preset"), [(1, "agenthands_h100x1"), (8, "agenthands_h100x8")])
def test_on_gpus_tasks_of_the_library_are_made_once(tmp_path: Path, num_gpus: int, preset: str) -> None:
    tasks = tmp_path / "tasks"
    profile = " ".join(profile_of(num_gpus))
    assert profile.startswith(f"experiment={preset}")
    train = (
        f'train {profile} environment.train_files=["{tasks}/train.parquet"] '
        f'environment.validation_files=["{tasks}/validation.parquet"] trainer.steps=3'
    )
    assert start(tmp_path, num_gpus, "trainer.steps=3") == [f"prepare {tasks} --num-samples 1000", train]
    assert start(tmp_path, num_gpus, "trainer.steps=3") == [train]


@pytest.mark.parametrize("override", ["environment.train_files=[mine.parquet]", "environment.family=skyrl_gym/gsm8k"])
def test_other_tasks_take_their_place(tmp_path: Path, override: str) -> None:
    assert start(tmp_path, 1, override) == [f"train {' '.join(profile_of(1))} {override}"]


def test_a_preset_that_is_named_is_taken(tmp_path: Path) -> None:
    [train] = start(tmp_path, 1, "environment.train_files=[mine.parquet]", "experiment=smoke_cpu")
    assert train == "train environment.train_files=[mine.parquet] experiment=smoke_cpu"


def test_signs_arrive_at_the_last_process_through_the_example_script_and_back_from_the_saved_config(tmp_path: Path):
    """CF-01: shell script, child process, JSON, YAML."""
    programs = tmp_path / "bin"
    programs.mkdir()
    plan = (
        f'#!/bin/bash\n[ "$1" = train ] || exec {sys.executable} -m skyrl_nat.cli "$@"\nshift\n'
        f'exec {sys.executable} -m skyrl_nat.cli plan --json "$@"\n'
    )
    for name, text in (("skyrl-nat", plan), ("nvidia-smi", smi(1))):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    word = signs_of("tracking.wandb_project")
    files = ["environment.train_files=[builtin:nat_agent/train]", "trainer.steps=1"]
    found = subprocess.run(
        ["bash", SCRIPT, word, *files],
        env={**os.environ, "PATH": f"{programs}:/usr/bin:/bin", "PYTHONPATH": str(SCRIPT.parents[2])},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["config"]["tracking"]["wandb_project"] == SIGNS
    config = load_config([word])
    save_config(config, tmp_path / "config.yaml")
    assert config_from_file(tmp_path / "config.yaml") == config
    assert config_from_file(tmp_path / "config.yaml", [word]) == config
