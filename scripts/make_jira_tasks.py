"""Write the shipped tasks of the family jira, byte for byte the same at every call.

usage: make_jira_tasks.py [FOLDER] [--episodes FOLDER]      (default: where `builtin:jira/...` is read)

`--episodes` writes the plans as dialogues, `<split>_episodes.jsonl`, for
`algorithm=sft environment.recorded_files=[...]`; each earned all that there is.
"""

import argparse
import json
import sys
from pathlib import Path

from skyrl_nat.data.specs import resolve_file, write_tasks
from skyrl_nat.environments.jira.episodes import reference_episodes
from skyrl_nat.environments.jira.generator import make_splits


def main(arguments: list[str] | None = None) -> int:
    """Write both splits."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=resolve_file("builtin:jira/train").parent)
    parser.add_argument("--episodes", type=Path, help="folder for the reference dialogues")
    options = parser.parse_args(arguments)
    for split, tasks in zip(("train", "validation"), make_splits(), strict=True):
        written = write_tasks(tasks, options.folder / f"{split}.parquet")
        print(f"{written.files[0]}: {written.num_tasks} tasks")
        if options.episodes is not None:
            options.episodes.mkdir(parents=True, exist_ok=True)
            lines = [json.dumps(episode, ensure_ascii=False) + "\n" for episode in reference_episodes(tasks)]
            (options.episodes / f"{split}_episodes.jsonl").write_text("".join(lines), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
