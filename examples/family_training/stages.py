"""Train a family and show what it gained: imitation where it needs it, GRPO, evaluations, a paired comparison.

usage: stages.py FAMILY OUT MODEL [--minutes M] [--imitate | --no-imitate] [--only-imitation] [--grpo-levels N]
                 [--fresh SHARE] [key=value ...]

Every start of the product costs a minute or more on a GPU, so that there are as few as can be: held-out tasks are
played inside of the runs. The environment variables SFT and GRPO hold overrides of one stage, EPISODES a file of
dialogues to imitate where the family has none of its own. Writes OUT/results.json and OUT/learning_curve.png; what is
done already is not done again, and a stage that was told to end goes on.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results import SECONDS, seconds_of, write_results

from skyrl_nat.config.load import load_config
from skyrl_nat.data.near_duplicates import function_names
from skyrl_nat.data.specs import load_tasks, write_tasks
from skyrl_nat.environments.jira.episodes import reference_episodes as jira_episodes
from skyrl_nat.environments.task_dag.episodes import reference_episodes as task_dag_episodes
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

PROGRAM = (sys.executable, "-m", "skyrl_nat.cli")
PRESETS = {
    "task_dag": ("task_dag_h100x1", "task_dag_cpu"),
    "jira": ("jira_h100x1", "jira_cpu"),
    "nat_agent": ("first_experiment_h100x1", "smoke_cpu"),
}
"""Family -> presets for a GPU and for none."""
DIALOGUES = {"task_dag": task_dag_episodes, "jira": jira_episodes}
"""Family -> its reference dialogues."""
WARM_STARTED = ("task_dag",)
"""Families whose protocol a small model must learn by imitation, unless the command line says otherwise."""
SFT = (
    "algorithm=sft",
    "trainer.steps=0",
    "trainer.epochs=2",
    "optimizer.lr=2e-4",
    "optimizer.warmup_steps=5",
    "optimizer.schedule=linear",
    "evaluation.every_steps=0",
    "checkpoint.keep_last=1",
)
GRPO = ("algorithm=grpo", "checkpoint.keep_last=1", "checkpoint.keep_best=0")
ENDING_S = 75.0
"""For the last step, held-out tasks, saving and the results."""
TOLD = 143


class Stages:
    """One way from a model to results."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Begin in a folder, or go on with it."""
        self.family: str = options.family
        self.out: Path = options.out.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.began = time.monotonic() - sum(seconds_of(self.out / SECONDS).values())
        self.model: str = options.model
        self.minutes: float = options.minutes
        self.imitates: bool = self.family in WARM_STARTED if options.imitate is None else options.imitate
        self.is_only_imitation: bool = options.only_imitation
        self.grpo_levels: int = options.grpo_levels
        self.fresh: float = options.fresh
        preset = f"experiment={PRESETS[self.family][0 if has_gpu() else 1]}"
        has_preset = any(text.startswith("experiment=") for text in options.overrides)
        self.overrides: list[str] = [*([] if has_preset else [preset]), *options.overrides]

    def play(self) -> None:
        """Do what is missing.

        Raises:
            subprocess.CalledProcessError: A stage failed.
        """
        model = self.model
        if episodes := self.episodes():
            self.imitate(episodes)
            model = str(self.out / "sft_model")
        chosen = self.grpo_tasks()
        if self.is_only_imitation:
            return
        with self.stage("grpo") as is_missing:
            if is_missing:
                overrides = [*GRPO, *chosen, *self.time_left(), *os.environ.get("GRPO", "").split()]
                self.train("grpo", model, *overrides)
        write_results(self.out)

    def episodes(self) -> Path | None:
        """Return the file of dialogues to imitate, None where nothing is imitated."""
        if given := os.environ.get("EPISODES"):
            return self.not_fresh(Path(given).resolve(strict=True))
        if not self.imitates or self.family not in DIALOGUES:
            return None
        path = self.out / "train_episodes.jsonl"
        if not path.exists():
            chosen = load_config(self.overrides).environment
            tasks = load_tasks(chosen.train_files, family=self.family, max_difficulty=chosen.max_difficulty)
            lines = [json.dumps(episode) + "\n" for episode in DIALOGUES[self.family](tasks)]
            path.write_text("".join(lines), encoding="utf-8")
        return path

    def not_fresh(self, episodes: Path) -> Path:
        """Return a file without the dialogues that show a function which GRPO alone is to see."""
        if not self.fresh:
            return episodes
        imitated = {task.task_id for task in self.tasks() if not any(map(self.is_fresh, function_names(task)))}
        lines = episodes.read_text(encoding="utf-8").splitlines(keepends=True)
        path = self.out / "imitated_episodes.jsonl"
        path.write_text("".join(line for line in lines if json.loads(line)["task_id"] in imitated), encoding="utf-8")
        return path

    def grpo_tasks(self) -> list[str]:
        """Write the tasks that GRPO trains on, where that are not all, and return the override that names them."""
        if not self.grpo_levels and not self.fresh:
            return []
        found = [task for task in self.tasks() if not self.grpo_levels or task.difficulty <= self.grpo_levels]
        if self.fresh:
            found = [task for task in found if all(map(self.is_fresh, function_names(task)))]
        path = self.out / "grpo_tasks.parquet"
        write_tasks(found, path)
        return [f'environment.train_files=["{path}"]']

    def tasks(self) -> list[Task]:
        """Return all training tasks."""
        return load_tasks(load_config(self.overrides).environment.train_files, family=self.family)

    def is_fresh(self, function: str) -> bool:
        """Return whether GRPO alone is to see a function; the same for every seed."""
        return int.from_bytes(hashlib.sha256(function.encode()).digest()[:4], "big") < self.fresh * 2**32

    def imitate(self, episodes: Path) -> None:
        """Train the model on dialogues and write it as a folder."""
        with self.stage("sft") as is_missing:
            if is_missing:
                recorded = f'environment.recorded_files=["{episodes}"]'
                self.train("sft", self.model, *SFT, recorded, *os.environ.get("SFT", "").split())
        with self.stage("export") as is_missing:
            if is_missing:
                folder = self.out / "sft_model"
                shutil.rmtree(folder, ignore_errors=True)
                # GRPO begins in the other engine right after, and says how far they are apart.
                run_program("export", str(self.out / "sft"), str(folder), "--engines", "hf")

    def time_left(self) -> list[str]:
        """Return the override that ends a run in time, where there is a limit."""
        left = self.began + 60 * self.minutes - ENDING_S - time.monotonic()
        return [f"trainer.max_minutes={max(left, 1) / 60:.2f}"] if self.minutes else []

    def train(self, name: str, model: str, *overrides: str) -> None:
        """Train a run of the folder."""
        run_program(
            "train",
            *self.overrides,
            f"model.path={model}",
            f"name={name}",
            f"root_dir={self.out}",
            "resume=latest",
            *overrides,
        )

    @contextmanager
    def stage(self, name: str) -> Iterator[bool]:
        """Give whether a stage is still to do; its wall-clock seconds are written down however it ends."""
        done = self.out / f"{name}.done"
        if done.exists():
            yield False
            return
        print(f"== {name}", flush=True)
        begun = time.monotonic()
        try:
            yield True
            done.touch()
        finally:
            with (self.out / SECONDS).open("a", encoding="utf-8") as file:
                file.write(f"{name}\t{time.monotonic() - begun:.1f}\n")


def run_program(*arguments: str) -> None:
    """Run a command of the product.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    command = [*PROGRAM, *arguments]
    # In a session of its own: `timeout` and terminals tell all processes of a group to end, Ray's among them, and what
    # is trained could not be saved any more.
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait()
    if code:
        raise subprocess.CalledProcessError(code, command)


def has_gpu() -> bool:
    """Return whether a GPU may be used."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1") or shutil.which("nvidia-smi") is None:
        return False
    found = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, check=False)
    return "GPU" in found.stdout


def end(*_: object) -> None:
    """Leave at a signal: what was started is told to end, too, and a second signal does not cut its end short."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(TOLD)


def main() -> int:
    """Play all stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", choices=PRESETS)
    parser.add_argument("out", type=Path)
    parser.add_argument("model")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="wall time of all starts together; 0 trains all steps"
    )
    parser.add_argument(
        "--imitate", action=argparse.BooleanOptionalAction, help="reference dialogues first; default: task_dag alone"
    )
    parser.add_argument(
        "--only-imitation",
        action="store_true",
        help="end with the model that has imitated, and with the tasks for GRPO",
    )
    parser.add_argument(
        "--grpo-levels",
        type=int,
        default=0,
        help="GRPO trains on no harder tasks; held-out ones of all levels are played",
    )
    parser.add_argument(
        "--fresh",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="of the functions of nat_agent's tasks that are not imitated; GRPO trains on their tasks alone. 0: on all",
    )
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    if options.fresh and (options.family != "nat_agent" or not 0 < options.fresh < 1):
        parser.error(f"--fresh must be a share between 0 and 1, with nat_agent, got {options.fresh}. Leave it out")
    signal.signal(signal.SIGTERM, end)
    try:
        Stages(options).play()
    except (subprocess.CalledProcessError, DataError, OSError) as error:
        print(f"stages: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
