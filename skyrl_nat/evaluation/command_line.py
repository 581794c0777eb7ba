"""The commands that look at finished runs: analyze; imports late."""

import argparse
from pathlib import Path
from typing import Any


def add_commands(commands: Any) -> None:
    """Add `analyze` to the subparsers of `skyrl-nat`."""
    analyze = commands.add_parser("analyze", help="say what a run teaches: findings, failures, curves, as a page")
    analyze.add_argument("run", type=Path, help="run folder")
    analyze.add_argument("--out", type=Path, help="folder of the page; default: analysis/ in the run folder")
    analyze.set_defaults(function=_analyze, goes_on="the same command")


def _analyze(options: argparse.Namespace) -> None:
    from skyrl_nat.evaluation.analysis.analyze import NAME, analyze, write_analysis

    analysis = analyze(options.run)
    paths = write_analysis(analysis, options.out or options.run / NAME)
    for line in [*analysis.material.record.notes, *(f"{each.severity}: {each.sentence}" for each in analysis.findings)]:
        print(line)
    print(paths[-1])
