"""Commands of the pages, run as they stand: on a copy of the checkout, in which one small run lies under every name."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import small_run
from documented import ROOT, Command, commands, kind_of

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1200)]

COPIED = ("conf", "docs", "examples", "scripts", "benchmarks", "slurm", "skyrl_nat", "pyproject.toml")
RUNS = re.compile(r"\bruns/(NAME|mine)\b")
SMALLER = {r"--num-samples \d+": "--num-samples 12", r"--step \d+": "--step 2", r"--limit \d+": "--limit 2"}
"""What is shortened: the small run has three steps, and data sets are made for a check alone."""
NOT_HERE = {
    r"--format (lora|gguf|ollama)": "needs adapters, llama.cpp or Ollama; test_exports_of_runs.py has them",
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
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Copy what is needed, and train three steps; its name is that of a page's run."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in COPIED:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name)
    programs = Path(sys.executable).parent
    paths = os.pathsep.join([str(folder), str(ROOT / "tests")])
    environment = {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": paths,
        "OMP_NUM_THREADS": "1",
        "SKYRL_NAT_SANDBOX_PYTHON": str(ROOT / ".venv-nat/bin/python"),
    }
    place = Place(folder, environment)
    overrides = small_run.arguments(folder, "name=NAME", "trainer.steps=3", "engine.deterministic=true")
    trained = place.run(shlex.join(["skyrl-nat", "train", *overrides]))
    assert trained.returncode == 0, trained.stdout + trained.stderr
    yield place


def text_of(command: Command) -> str:
    """Return a command as it is run here."""
    text = RUNS.sub("runs/NAME", shlex.join(command.words))
    for pattern, smaller in SMALLER.items():
        text = re.sub(pattern, smaller, text)
    return text


def chosen() -> list[str]:
    """Return what is run, each line once, in the order of the pages."""
    texts = []
    for command in commands():
        text = re.sub(r"^(\.venv/bin/)?", "", text_of(command))
        is_quick = kind_of(command) == "run on a run" or text.removeprefix("python ").startswith(PROGRAMS)
        if is_quick and not any(re.search(pattern, text) for pattern in NOT_HERE):
            texts.append(text)
    return sorted(dict.fromkeys(texts), key=lambda text: "dataset_report" in text)


@pytest.mark.parametrize("text", chosen(), ids=str)
def test_documented_command_runs(place, text):
    done = place.run(text)
    assert done.returncode == 0, done.stdout + done.stderr
