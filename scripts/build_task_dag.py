"""Build the shipped `task_dag` task files; the same seed gives the same bytes.

Every reference plan is played in the environment and must be a full success.

    usage: build_task_dag.py [--check] [--seed N] [--episodes FOLDER]

`--check` compares with the files that are there and writes nothing; `--episodes` writes the reference dialogues as
`<split>_episodes.jsonl`, for `algorithm=sft environment.recorded_files=[...]`.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from skyrl_nat.data.specs import resolve_file, write_tasks
from skyrl_nat.environments.task_dag.env import FAMILY
from skyrl_nat.environments.task_dag.episodes import reference_episodes
from skyrl_nat.environments.task_dag.generate import generate
from skyrl_nat.types import Task


def main(arguments: list[str] | None = None) -> int:
    """Build, prove, and write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files that are there")
    parser.add_argument("--seed", type=int, default=0, help="of all tasks")
    parser.add_argument("--episodes", type=Path, help="folder for the reference dialogues")
    options = parser.parse_args(arguments)
    num_faults = 0
    for split, tasks in generate(options.seed).items():
        episodes = list(reference_episodes(tasks))
        if options.episodes is not None:
            options.episodes.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(episode, ensure_ascii=False) + "\n" for episode in episodes]
            (options.episodes / f"{split}_episodes.jsonl").write_text("".join(lines), encoding="utf-8")
        content = file_content(tasks)
        path = resolve_file(f"builtin:{FAMILY}/{split}")
        print(f"{split}: {len(tasks)} tasks, {len(content)} bytes")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        elif not path.exists() or path.read_bytes() != content:
            print(f"{path} must be what the generator makes, it is not. Run this script without --check")
            num_faults += 1
    return 1 if num_faults else 0


def file_content(tasks: list[Task]) -> bytes:
    """Return the bytes of the task file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tasks.parquet"
        write_tasks(tasks, path)
        return path.read_bytes()


if __name__ == "__main__":
    sys.exit(main())
