"""Write the shipped tasks of the family jira, byte for byte the same at every call.

usage: make_jira_tasks.py [FOLDER]      (default: where `builtin:jira/...` is read)
"""

import sys
from pathlib import Path

from skyrl_nat.data.specs import resolve_file, write_tasks
from skyrl_nat.environments.jira.generator import make_splits


def main(arguments: list[str]) -> int:
    """Write both splits."""
    folder = Path(arguments[0]) if arguments else resolve_file("builtin:jira/train").parent
    for split, tasks in zip(("train", "validation"), make_splits(), strict=True):
        written = write_tasks(tasks, folder / f"{split}.parquet")
        print(f"{written.files[0]}: {written.num_tasks} tasks")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
