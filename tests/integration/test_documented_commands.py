"""Commands of the pages, run as they stand: on a copy of the checkout, in which one small run lies under every name."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import small_run
from documented import ROOT, Command, commands, kind_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1200)]

COPIED = ("conf", "docs", "examples", "scripts", "benchmarks", "slurm", "skyrl_nat", "pyproject.toml")
RUNS = re.compile(r"\bruns/(NAME|mine|first)\b")
SMALLER = {
    r"--num-samples \d+": "--num-samples 20",
    r"--step \d+": "--step 2",
    r"--limit \d+": "--limit 2",
    r"\bmy_model\b": "out/model",
}
"""What is shortened: the small run has three steps, data sets are made for a check alone, and nothing is done twice."""
NOT_HERE = {
    r"--format (lora|gguf|ollama)": "needs adapters, llama.cpp or Ollama: test_exports_of_runs.py, test_ollama.py",
    r"\b(MODEL|BASELINE|TRAINED|FOLDER|FILE|OUT)\b": "stands for what only its reader has",
    r"runs/(jira|jira_grpo|warm|dag)": "stands for a long training",
}
PROGRAMS = (
    "scripts/make_jira_tasks.py --episodes",
    "scripts/build_task_dag.py --episodes",
    "skyrl-nat prepare data/agents --num-samples",
    "scripts/dataset_report.py data/agents --limit",
)
"""Programs besides those on a run that are quick enough, by their beginning."""


@dataclass(frozen=True, slots=True)
class Place:
    """A copy of the checkout with a run in it."""

    folder: Path
    environment: dict[str, str]

    def run(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a line in the copy's shell."""
        shell = ["bash", "-euo", "pipefail", "-c", text]
        return subprocess.run(shell, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=900)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Copy what is needed."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "tests")]),
        "OMP_NUM_THREADS": "1",
        "SKYRL_NAT_SANDBOX_PYTHON": str(ROOT / ".venv-nat/bin/python"),
    }
    return Place(folder, environment)


@pytest.fixture(scope="module")
def run_of_three_steps(place: Place) -> None:
    """Train under the name that pages give a run."""
    overrides = small_run.arguments(place.folder, "name=NAME", "trainer.steps=3", "engine.deterministic=true")
    trained = place.run(shlex.join(["skyrl-nat", "train", *overrides]))
    assert trained.returncode == 0, trained.stdout + trained.stderr


def text_of(command: Command) -> str:
    """Return a command as it is run here."""
    text = RUNS.sub("runs/NAME", shlex.join(command.words))
    for pattern, smaller in SMALLER.items():
        text = re.sub(pattern, smaller, text)
    return text


def chosen(*, on_a_run: bool) -> list[str]:
    """Return what is run, each line once, in the order of the pages; a data set is made before it is looked at."""
    texts = []
    for command in commands():
        text = re.sub(r"^(\.venv/bin/)?", "", text_of(command))
        is_on_a_run = kind_of(command) == "run on a run"
        is_quick = is_on_a_run or text.removeprefix("python ").startswith(PROGRAMS)
        if is_quick and is_on_a_run == on_a_run and not any(re.search(pattern, text) for pattern in NOT_HERE):
            texts.append(text)
    return sorted(dict.fromkeys(texts), key=lambda text: "dataset_report" in text)


@pytest.mark.parametrize("text", chosen(on_a_run=True), ids=str)
@pytest.mark.usefixtures("run_of_three_steps")
def test_command_on_a_run_runs(place, text):
    done = place.run(text)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("text", chosen(on_a_run=False), ids=str)
def test_program_runs(place, text):
    done = place.run(text)
    assert done.returncode == 0, done.stdout + done.stderr
