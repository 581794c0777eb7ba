"""Print a JSON summary of a data set: rows, split, families, difficulty, leaks, hash; scores and mutants by running.

    usage: dataset_report.py DIR [--limit N] [--no-run]

Every solution is judged and every reference asked again, `--limit` looks at so many tasks of each split. Exit code 1
where something is not as it must be: the split is not 90/10, the splits share something, a solution earns less than 1,
a recorded output is wrong, or a tool's inputs notice less than 0.8 of the mistakes.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from skyrl_nat.config.environment import EnvironmentConfig, SandboxConfig
from skyrl_nat.data.report import describe, examine
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator, open_oracle
from skyrl_nat.errors import DataError


def faults_of(report: dict[str, Any]) -> list[str]:
    """Return what is not as it must be."""
    split = report["split"]
    shared = [report["leaks"], *([report["leaks_of_other_families"]] if "leaks_of_other_families" in report else [])]
    faults = []
    if split["validation"] != (split["train"] + split["validation"]) // 10:
        faults.append(f"the split must be 90/10, got {split}")
    names = ("shared_ids", "shared_tools", "shared_tasks", "same_code", "near_duplicates")
    if any(leaks[name] for leaks in shared for name in names):
        faults.append("the splits must share nothing, see leaks")
    if num_twice := max(leaks["duplicates_within"] for leaks in shared):
        faults.append(f"no task may be there twice, got {num_twice}")
    ran = report.get("ran")
    if ran and (ran["solutions_with_1"] < ran["examined"] or ran["wrong_vectors"] or ran["tools_below_0.8"]):
        faults.append("every solution must earn 1, every recorded output be right, every tool's mutants be killed")
    return faults


def run(folder: Path, limit: int) -> dict[str, Any]:
    """Return what running every solution and reference says, on all cores."""
    num_workers = os.cpu_count() or 1
    config = EnvironmentConfig(sandbox=SandboxConfig(num_servers=num_workers))
    oracle = open_oracle(config.sandbox, num_servers=num_workers)
    validator = NatAgentValidator(config, oracle=oracle)
    columns = (TextColumn("tasks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            bar = progress.add_task("")
            return examine(
                folder,
                validator,
                oracle,
                limit=limit,
                num_workers=num_workers,
                watch=lambda done, total: progress.update(bar, completed=done, total=total),
            )
    finally:
        validator.close()


def main() -> int:
    """Print and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--limit", type=int, default=0, help="tasks of each split to run; default: all")
    parser.add_argument("--no-run", action="store_true", help="look at the files alone")
    options = parser.parse_args()
    try:
        report = describe(options.folder)
        if not options.no_run:
            report["ran"] = run(options.folder, options.limit)
    except DataError as error:
        print(f"dataset_report: {error}", file=sys.stderr)
        return 2
    report["faults"] = faults_of(report)
    print(json.dumps(report, indent=1))
    return 1 if report["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
