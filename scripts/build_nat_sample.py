"""Build the shipped `nat_agent` task files from their readable sources, and prove every task.

For each task: ask the references for the hidden outputs, choose mutants that the vectors notice, render an honest
solution, and check through the real validator that it earns exactly 1.0 and that broken answers earn little. The
same sources give the same bytes.

    usage: build_nat_sample.py [--check] [--only SPLIT] [--task NAME] [--no-proof]

`--check` compares with the files that are there and writes nothing.
"""

import argparse
import logging
import sys
import tempfile
from pathlib import Path

import yaml

from skyrl_nat.config.environment import EnvironmentConfig
from skyrl_nat.data.making.build import FAMILY, Source, all_functions, build_task
from skyrl_nat.data.making.prove import prove
from skyrl_nat.data.specs import resolve_file, write_tasks
from skyrl_nat.environments.nat_agent.validator import NatAgentValidator, open_oracle
from skyrl_nat.errors import DataError
from skyrl_nat.types import Task

SPLITS = ("train", "validation")

_logger = logging.getLogger("build_nat_sample")


def load_source(split: str) -> list[Source]:
    """Return the entries of a split's source file."""
    path = resolve_file(f"builtin:{FAMILY}/{split}").with_suffix(".source.yaml")
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def main() -> int:
    """Build, prove, and write or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare with the files that are there")
    parser.add_argument("--only", choices=SPLITS, help="one split")
    parser.add_argument("--task", help="one task, built and proved but not written")
    parser.add_argument("--no-proof", action="store_true", help="leave out the validator")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    sources = {split: load_source(split) for split in SPLITS}
    names = {
        split: {tool["name"] for entry in entries for tool in all_functions(entry)}
        for split, entries in sources.items()
    }
    if shared := names["train"] & names["validation"]:
        raise DataError(f"no tool may be in both splits, got {', '.join(sorted(shared))}. Rename or move them")
    config = EnvironmentConfig()
    oracle = open_oracle(config.sandbox)
    validator = NatAgentValidator(config, oracle=oracle)
    faults: list[str] = []
    for split in [options.only] if options.only else SPLITS:
        entries = [entry for entry in sources[split] if options.task in (None, entry["id"])]
        tasks = [build_task(entry, f"{FAMILY}/{split}/{entry['id']}", oracle) for entry in entries]
        if not options.no_proof:
            for task in tasks:
                faults += prove(task, validator, oracle)
        if options.task is None:
            faults += _write(split, tasks, is_check=options.check, may_write=not faults)
    validator.close()
    for fault in faults:
        _logger.error("%s", fault)
    return 1 if faults else 0


def _write(split: str, tasks: list[Task], *, is_check: bool, may_write: bool) -> list[str]:
    path = resolve_file(f"builtin:{FAMILY}/{split}")
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / path.name
        write_tasks(tasks, fresh)
        content = fresh.read_bytes()
    _logger.info("%s: %d tasks, %d bytes", split, len(tasks), len(content))
    if is_check and (not path.exists() or path.read_bytes() != content):
        return [f"{path.name} differs from what its source gives; run without --check"]
    if not is_check and may_write:
        path.write_bytes(content)
    return []


if __name__ == "__main__":
    sys.exit(main())
