"""Put the ways of several seeds together: success of each stage by level, and whether GRPO gained over SFT.

usage: collect.py RESULTS.json FOLDER [FOLDER ...]

Each FOLDER is one of warm_start.sh. Seeds are averaged within a task, so that tasks are what is counted.
"""

import csv
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skyrl_nat.errors import DataError
from skyrl_nat.evaluation.comparison import compare
from skyrl_nat.evaluation.figures import figures
from skyrl_nat.evaluation.folder import GREEDY, read_about, write_json
from skyrl_nat.evaluation.scores import averaged
from skyrl_nat.evaluation.sources import read_source

STAGES = {"start": "start", "sft": "after_sft", "grpo": "after_grpo"}
"""Name in the results -> folder of the evaluation."""
TIMES = "seconds.tsv"
"""Stage and wall-clock seconds, one line for each start of a stage."""


def collect(folders: Sequence[Path]) -> dict[str, Any]:
    """Return the results of the experiment as JSON data.

    Raises:
        DataError: A part of it is missing, or a seed is there twice.
    """
    stages = {
        name: averaged(read_source(str(folder / place), GREEDY).groups for folder in folders)
        for name, place in STAGES.items()
    }
    seeds = [(read_about(folder / STAGES["grpo"]) or {}).get("seed") for folder in folders]
    if len(set(seeds)) < len(seeds):
        raise DataError(f"Every folder must be of another seed, found {seeds}. Name each once")
    found = {name: figures(groups) for name, groups in stages.items()}
    against_sft = compare(stages["sft"], stages["grpo"])
    return {
        "seeds": seeds,
        **{name: {"all": each["success"], **_by_level(each)} for name, each in found.items()},
        "p_value_grpo_vs_sft": against_sft.success.test.p,
        "verdict": against_sft.verdict.sentence,
        "gpu_minutes": [round(sum(_seconds(folder).values()) / 60, 2) for folder in folders],
        "seconds": [_seconds(folder) for folder in folders],
    }


def _by_level(each: dict[str, Any]) -> dict[str, Any]:
    return {level: one["success"] for level, one in each["by_difficulty"].items()}


def _seconds(folder: Path) -> dict[str, float]:
    total: dict[str, float] = defaultdict(float)
    with (folder / TIMES).open(encoding="utf-8", newline="") as file:
        for stage, seconds in csv.reader(file, delimiter="\t"):
            total[stage] += float(seconds)
    return dict(total)


def main() -> int:
    """Write the file and print what it says."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        results = collect([Path(name) for name in sys.argv[2:]])
    except (DataError, OSError) as error:
        print(f"collect: {error}", file=sys.stderr)
        return 2
    write_json(Path(sys.argv[1]), results)
    print(json.dumps(results, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
